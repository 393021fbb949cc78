"""The topic of a workload: made, and waited for."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from highwater.errors import UsageError
from highwater.fuzz.chaos.workload.raw_client import RawClient, RawError
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

# --------------------------------------------------------------------------------------------------
# What a cluster is put under: the topic, and how many of which client.


TOPIC: Final = "highwater"
TRANSACTIONS_TOPIC: Final = "highwater-transactions"
GROUP: Final = "workload"


@dataclass(frozen=True, slots=True)
class Load:
    """How much of which client. A process of the history is one record in flight, one consumer or one reader.

    Partition n is led by the nth broker first, so that a schedule can name brokers by id.
    """

    partitions: int = 2
    replicas: int = 3
    min_insync_replicas: int = 2
    acks: str = "all"
    confluent_producers: int = 2
    in_flight: int = 8
    kafka_python_producers: int = 1
    assigned_consumers: int = 1
    raw_readers: int = 1  # of each partition
    group_members: int = 2
    wanderers: int = 0
    transactional_producers: int = 0
    group_observers: int = 0
    rate: int = 0  # records a second of each producer at most; 0: as fast as it goes


def consumer_names(load: Load) -> list[str]:
    """What schedules call the consumers of a load."""
    alone = [f"consumer-{number}" for number in range(1, load.assigned_consumers + 1)]
    return alone + [f"member-{number}" for number in range(1, load.group_members + 1)]


CREATE_VERSION = 5
SETTLE_TIMEOUT_S = 20.0


def create_topic(bootstrap: str, load: Load, brokers: list[int] | None = None, topic: str = TOPIC) -> None:
    """Create it through the controller and wait until every partition has a leader and a full ISR."""
    client = RawClient(bootstrap)
    settings = (
        CreatableTopicConfig(name="min.insync.replicas", value=str(load.min_insync_replicas)),
        # A broker of 0.10 would elect anybody, and nobody could tell what it then loses from what it must not.
        CreatableTopicConfig(name="unclean.leader.election.enable", value="false"),
    )
    wanted = CreatableTopic(
        name=topic, num_partitions=load.partitions, replication_factor=load.replicas, configs=settings
    )
    if brokers:
        wanted = replace(wanted, num_partitions=-1, replication_factor=-1, assignments=_assignments(load, brokers))
    request = CreateTopicsRequest(topics=(wanted,), timeout_ms=5_000)
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    error = "no controller answers"
    while time.monotonic() < deadline:
        try:
            reply, _ = client.metadata(topic)
            controller = next((b for b in reply.brokers if b.node_id == reply.controller_id), None)
            if controller is not None:
                created = client.ask(f"{controller.host}:{controller.port}", request, CREATE_VERSION)
                code = created.topics[0].error_code
                if code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                    client.close()
                    settle(bootstrap, load, threading.Event(), topic)
                    return
                error = ErrorCode(code).name
        except RawError as failure:
            error = str(failure)
        time.sleep(0.1)
    raise UsageError(f"cannot create topic {topic}: {error}", where=bootstrap, hint="is the cluster healthy?")


def _assignments(load: Load, brokers: list[int]) -> tuple[CreatableReplicaAssignment, ...]:
    """Partition n has the nth broker as its preferred leader, and those after it as followers."""
    around = sorted(brokers) * 2
    return tuple(
        CreatableReplicaAssignment(partition_index=n, broker_ids=tuple(around[n % len(brokers) :][: load.replicas]))
        for n in range(load.partitions)
    )


def settle(
    bootstrap: str, load: Load, stop: threading.Event, topic: str = TOPIC, revive: Callable[[], None] = lambda: None
) -> bool:
    """Wait until every partition has a leader and its full ISR; False when that takes too long.

    `revive` is called again and again: a broker of 0.10 that meets its own session of before ends itself.
    """
    client = RawClient(bootstrap)
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    try:
        while time.monotonic() < deadline and not stop.is_set():
            revive()
            try:
                _, leaders = client.metadata(topic)
            except RawError:
                leaders = {}
            whole = [each for each in leaders.values() if each.node >= 0 and len(each.isr) == len(each.replicas)]
            if len(whole) == load.partitions:
                return True
            stop.wait(0.1)
    finally:
        client.close()
    return False

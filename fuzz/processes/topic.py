"""The topic of a workload: made, and waited for."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from fuzz.processes.load import TOPIC, Load
from fuzz.processes.raw import RawClient, RawError
from reference.wire.errors import ErrorCode
from reference.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from spec.formats.verdict import UsageError

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
    raise UsageError(f"cannot create topic {topic}: {error}", where=bootstrap, mend="is the cluster healthy?")


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

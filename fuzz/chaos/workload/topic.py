"""Describes the load, creates its topic, and waits until the topic is in sync."""

import re
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import msgspec

from highwater.errors import UsageError
from highwater.fuzz.chaos.workload.raw_client import RawClient, RawError
from highwater.fuzz.schedule import Fault, Schedule
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

TOPIC: Final = "highwater"
GROUP: Final = "workload"
NAMED: Final = re.compile(rf"(\(|\btopic=){TOPIC}(?=[-,\s:]|$)")
"""The name of the topic in a role or in the line of a fault of messages, also of that for transactions."""


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """The topic and the number of clients of each kind.

    A process of the history is one record in flight, one consumer or one reader. The nth broker is the preferred leader
    of partition n, so that a schedule can name brokers by id.
    """

    partitions: int = 2
    replicas: int = 3
    min_insync_replicas: int = 2
    acks: str = "all"
    confluent_producers: int = 2
    in_flight: int = 8
    kafka_python_producers: int = 1
    assigned_consumers: int = 1
    raw_readers: int = 1  # per partition
    group_members: int = 2
    wanderers: int = 0
    transactional_producers: int = 0
    group_observers: int = 0
    rate: int = 0  # records a second of each producer at most; 0: no limit
    idempotence: bool = True  # of confluent-kafka and kafka-python, where the cluster has it and acks is `all`
    retries: int | None = None  # of confluent-kafka; None for its default
    topic: str = TOPIC

    @property
    def transactions_topic(self) -> str:
        """The topic of the transactional clients."""
        return f"{self.topic}-transactions"


def consumer_names(load: TopicLoad) -> list[str]:
    """Return the names of the consumers of a load in schedules."""
    alone = [f"consumer-{number}" for number in range(1, load.assigned_consumers + 1)]
    return alone + [f"member-{number}" for number in range(1, load.group_members + 1)]


def free_topic(taken: Collection[str]) -> str:
    """Return the name of a topic that an earlier run has not left behind: `highwater`, `highwater-2` and so on."""
    names = (TOPIC if number == 1 else f"{TOPIC}-{number}" for number in count(1))
    return next(name for name in names if not {name, replace(TopicLoad(), topic=name).transactions_topic} & {*taken})


def with_topic(schedule: Schedule, topic: str) -> Schedule:
    """Return a schedule whose faults are about another topic than `highwater`, which schedules name."""
    if topic == TOPIC:
        return schedule
    return msgspec.structs.replace(schedule, faults=tuple(_fault_with_topic(each, topic) for each in schedule.faults))


def _fault_with_topic(fault: Fault, topic: str) -> Fault:
    options = {name: _renamed(value, topic) if name == "line" else value for name, value in fault.options.items()}
    return msgspec.structs.replace(fault, nodes=tuple(_renamed(node, topic) for node in fault.nodes), options=options)


def _renamed(text: Any, topic: str) -> Any:
    return NAMED.sub(rf"\g<1>{topic}", text)


CREATE_VERSION = 5
SETTLE_TIMEOUT_S = 20.0


def create_topic(bootstrap: str, load: TopicLoad, brokers: list[int] | None = None, topic: str = TOPIC) -> None:
    """Create it through the controller and wait until every partition has a leader and a full ISR."""
    client = RawClient(bootstrap)
    settings = (
        CreatableTopicConfig(name="min.insync.replicas", value=str(load.min_insync_replicas)),
        # The default of 0.10 allows unclean elections; an audit could not distinguish their losses from a bug.
        CreatableTopicConfig(name="unclean.leader.election.enable", value="false"),
    )
    topic_spec = CreatableTopic(
        name=topic, num_partitions=load.partitions, replication_factor=load.replicas, configs=settings
    )
    if brokers:
        topic_spec = replace(
            topic_spec, num_partitions=-1, replication_factor=-1, assignments=_assignments(load, brokers)
        )
    request = CreateTopicsRequest(topics=(topic_spec,), timeout_ms=5_000)
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
                    await_isr(bootstrap, load, threading.Event(), topic)
                    return
                error = ErrorCode(code).name
        except RawError as failure:
            error = str(failure)
        time.sleep(0.1)
    raise UsageError(f"cannot create topic {topic}: {error}", where=bootstrap, hint="is the cluster healthy?")


def _assignments(load: TopicLoad, brokers: list[int]) -> tuple[CreatableReplicaAssignment, ...]:
    """Return the assignments: the nth broker is the preferred leader of partition n, the next ones are followers."""
    around = sorted(brokers) * 2
    return tuple(
        CreatableReplicaAssignment(partition_index=n, broker_ids=tuple(around[n % len(brokers) :][: load.replicas]))
        for n in range(load.partitions)
    )


def await_isr(
    bootstrap: str,
    load: TopicLoad,
    stop: threading.Event,
    topic: str = TOPIC,
    revive: Callable[[], None] = lambda: None,
) -> bool:
    """Wait until every partition has a leader and its full ISR; return False if that takes too long.

    `revive` is called repeatedly: a 0.10 broker exits if ZooKeeper still has the session of its earlier process.
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
            in_sync = [
                leader for leader in leaders.values() if leader.node >= 0 and len(leader.isr) == len(leader.replicas)
            ]
            if len(in_sync) == load.partitions:
                return True
            stop.wait(0.1)
    finally:
        client.close()
    return False

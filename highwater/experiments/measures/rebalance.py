"""A rolling bounce: each member of a group in turn is closed and started again, while records arrive steadily."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, Producer

from highwater.conformance.client.broker import advertised_versions
from highwater.experiments.conditions import Condition, Found
from highwater.experiments.measures.java_members import JavaMember
from highwater.experiments.measures.observed import Observed
from highwater.experiments.pauses import found_in_steps, pauses
from highwater.experiments.plans import COOPERATIVE, EAGER, JAVA, NEW_PROTOCOL, STATIC
from highwater.experiments.targets import Bench
from highwater.reference.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from highwater.reference.wire.registry import api_of

EACH_S: Final = 0.05
"""Between two records of a partition."""
SESSION_MS: Final = 10_000
DOWN_S: Final = 1.0
"""How long a member is down. A static member that is back within its session gets its partitions back."""
SETTLE_S: Final = 60.0
STEADY_S: Final = 2.0
QUIET_S: Final = 1.0
"""How long every member must have partitions before the next one is closed."""
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    EAGER: {"partition.assignment.strategy": "range"},
    COOPERATIVE: {"partition.assignment.strategy": "cooperative-sticky"},
    STATIC: {"partition.assignment.strategy": "range"},
    NEW_PROTOCOL: {"group.protocol": "consumer"},
}
CLASSIC: Final = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}


class Member:
    """A confluent-kafka consumer in a thread of its own."""

    def __init__(self, name: str, settings: dict[str, Any], topic: str, observed: Observed) -> None:
        self._name, self._observed, self._stop = name, observed, threading.Event()
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self._observed.received[message.partition()].append(time.monotonic())
        self._consumer.close()

    def _assigned(self, _: Any, partitions: list[Any]) -> None:
        self._observed.assign(self._name, {one.partition for one in partitions})

    def _revoked(self, _: Any, partitions: list[Any]) -> None:
        if not self._stop.is_set():
            self._observed.revoke(self._name, {one.partition for one in partitions})

    def close(self) -> None:
        """Close the consumer: a static member stays in the group, another one leaves it."""
        self._stop.set()
        self._thread.join()
        self._observed.leave(self._name)


class RebalanceMeasure:
    """Measures conditions of the experiment rebalance on a real broker."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._groups = 0

    def lacks(self, bench: Bench, condition: Condition) -> str:
        """Return what the target lacks for the condition, or an empty text."""
        protocol, client = str(condition.settings["protocol"]), str(condition.settings["client"])
        if client == JAVA and (bench.release is None or bench.release < JavaMember.SINCE):
            return "the Java consumer is taken from the release of the target, Apache Kafka 4.0 or later"
        if protocol == NEW_PROTOCOL:
            versions = advertised_versions(next(iter(bench.addresses.values())))
            if api_of(ConsumerGroupHeartbeatRequest).key not in versions:
                return "the broker does not serve ConsumerGroupHeartbeat (KIP-848)"
        return ""

    def measure(self, bench: Bench, condition: Condition) -> Found:
        """Return the four pauses of a rolling bounce; raises TimeoutError and KafkaException."""
        self._groups += 1
        topic = f"bench-{self._run}-group-{self._groups}"
        members, partitions = condition.number("members"), condition.number("partitions")
        observed, started = Observed(partitions), dict[str, Any]()
        bench.create_topic(topic, partitions, min(3, len(bench.addresses)))
        try:
            with _steady_records(bench, topic, partitions):
                for number in range(members):
                    started[f"member-{number}"] = _start(bench, condition, topic, f"member-{number}", observed)
                _await_settled(observed, members)
                return _bounce(bench, condition, topic, observed, started)
        finally:
            closing = [threading.Thread(target=member.close) for member in started.values()]
            for thread in closing:
                thread.start()
            for thread in closing:
                thread.join()
            bench.delete_topic(topic)


def _bounce(bench: Bench, condition: Condition, topic: str, observed: Observed, started: dict[str, Any]) -> Found:
    """Close and start each member in turn; return the pauses of the whole, and those of each step as samples."""
    time.sleep(STEADY_S)
    steps = []
    for name in list(started):
        observed.revoked, begin = 0, time.monotonic()
        started.pop(name).close()
        time.sleep(DOWN_S)
        started[name] = _start(bench, condition, topic, name, observed)
        _await_settled(observed, len(started))
        end = time.monotonic()
        found = pauses(observed.received, begin, end)
        steps.append({**found, "revoked": observed.revoked, "bounce": 1e3 * (end - begin)})
    return found_in_steps(steps)


def _start(bench: Bench, condition: Condition, topic: str, name: str, observed: Observed) -> Any:
    protocol = str(condition.settings["protocol"])
    settings = {
        **bench.client_settings, "group.id": topic, "auto.offset.reset": "latest", "fetch.wait.max.ms": 50,
        **({} if protocol == NEW_PROTOCOL else CLASSIC), **SETTINGS[protocol],
        **({"group.instance.id": name} if protocol == STATIC else {}),
    }  # fmt: skip
    if condition.settings["client"] == JAVA:
        return JavaMember(name, bench, protocol, topic, observed)
    return Member(name, settings, topic, observed)


def _await_settled(observed: Observed, members: int) -> None:
    """Wait until every partition has had an owner, and every member a share, for `QUIET_S`; raises TimeoutError."""
    deadline, since = time.monotonic() + SETTLE_S, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        if time.monotonic() > deadline:
            shares = {name: len(share) for name, share in observed.owned.items()}
            raise TimeoutError(f"the group did not settle within {SETTLE_S:g} s: {shares}")
        if not observed.settled(members):
            since = time.monotonic()
        time.sleep(0.02)


@contextmanager
def _steady_records(bench: Bench, topic: str, partitions: int) -> Iterator[None]:
    """Send a record to each partition every `EACH_S`."""
    stop = threading.Event()

    def run() -> None:
        producer = Producer({**bench.client_settings, "acks": "1", "linger.ms": 5})
        due = time.monotonic()
        while not stop.is_set():
            for number in range(partitions):
                with_room = len(producer) < 10_000
                if with_room:
                    producer.produce(topic, b"record", partition=number)
            producer.poll(0)
            due += EACH_S
            stop.wait(max(0.0, due - time.monotonic()))
        producer.purge()
        producer.flush(2)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()

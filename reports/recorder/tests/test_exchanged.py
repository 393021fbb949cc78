"""The audit of what the client of a case saw: a false reply is found; what no client could have seen is not judged."""

from collections.abc import Callable

import pytest

from highwater.conformance.client.broker import Broker, Topic, advertised_versions, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.connection import access_to
from highwater.conformance.client.exchange import Event, ExchangeLog
from highwater.fuzz.virtual.target import SimulatorTarget
from highwater.reports.recorder.exchanged import finding_of

WRITE_TXN_MARKERS = bytes((0, 27))


def exchanged(*steps: Callable[[Broker, Topic], object]) -> ExchangeLog:
    """Return the log of these steps with a new topic of one simulated broker."""
    target = SimulatorTarget(1)
    target.begin_case("exchanged")
    cluster = Cluster(target, advertised_versions(target.bootstrap, access=access_to(target)), whole_log=True)
    topic = cluster.create_topic()
    leader = cluster.leader(topic)
    for step in steps:
        step(leader, topic)
    return cluster.log


def sends(value: bytes) -> Callable[[Broker, Topic], object]:
    return lambda leader, topic: leader.produce(topic, batch(value))


def reads(leader: Broker, topic: Topic) -> object:
    return leader.fetch(topic, 0)


def altered(log: ExchangeLog, alter: Callable[[Event], Event | None]) -> ExchangeLog:
    changed = ExchangeLog(whole=True)
    for event in log:
        if (kept := alter(event)) is not None:
            changed.add(kept)
    return changed


def without_send(value: bytes) -> Callable[[Event], Event | None]:
    return lambda event: None if event.api is None and value in event.data else event


def test_what_a_right_broker_answers_is_no_finding() -> None:
    assert finding_of(exchanged(sends(b"one"), sends(b"two"), reads)) == ""


def test_a_record_that_was_never_sent_is_found() -> None:
    log = altered(exchanged(sends(b"one"), sends(b"two"), reads), without_send(b"two"))
    assert "phantom-read" in finding_of(log)


def test_the_replies_of_two_connections_belong_to_requests_of_the_same() -> None:
    log = exchanged(sends(b"one"), lambda leader, topic: leader, reads)
    assert len({event.connection for event in log}) > 1
    assert finding_of(log) == ""


@pytest.mark.parametrize("kind", ["markers", "bytes", "tail"])
def test_what_no_client_could_have_seen_is_not_judged(kind: str) -> None:
    log = altered(exchanged(sends(b"one"), sends(b"two"), reads), without_send(b"two"))
    frame = (10).to_bytes(4) + WRITE_TXN_MARKERS + bytes(8)
    if kind == "tail":
        log.add_fault("kill, losing the tail", 1)
    else:
        log.add(Event("127.0.0.1:9092", "<- request", frame if kind == "markers" else frame[:9]))
    assert finding_of(log) == ""

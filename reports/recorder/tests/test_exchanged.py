"""The audit of what the client of a case saw: a false reply is found; what no client could have seen is not judged."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from highwater.conformance.client.broker import Broker, Topic, advertised_versions, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.connection import access_to
from highwater.conformance.client.exchange import LOST_TAIL, Event, ExchangeLog
from highwater.conformance.tests.listed_cases import run_case
from highwater.fuzz.virtual.target import SimulatorTarget
from highwater.reports.recorder.exchanged import CaseAudit, audit_case, recorded

WRITE_TXN_MARKERS = bytes((0, 27))


def exchanged(*steps: Callable[[Broker, Topic], object]) -> ExchangeLog:
    """Return the log of these steps, each on a connection of its own, with a new topic of one simulated broker."""
    target = SimulatorTarget(1)
    target.begin_case("exchanged")
    cluster = Cluster(target, advertised_versions(target.bootstrap, access=access_to(target)), whole_log=True)
    topic = cluster.create_topic()
    for step in steps:
        step(cluster.leader(topic), topic)
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
    audited = audit_case(exchanged(sends(b"one"), sends(b"two"), reads))
    assert audited.violation == ""
    assert audited.operations > 3


def test_a_record_that_was_never_sent_is_found() -> None:
    log = altered(exchanged(sends(b"one"), sends(b"two"), reads), without_send(b"two"))
    assert "phantom-read" in audit_case(log).violation


def test_a_reply_belongs_to_the_request_of_its_connection() -> None:
    """Two new connections number their requests alike, and wait at the same time."""
    *before, sent, acknowledged, asked, answered = exchanged(sends(b"one"), reads)
    assert sent.data[8:12] == asked.data[8:12]
    log = ExchangeLog(whole=True)
    for event in (*before, sent, asked, acknowledged, answered):
        log.add(event)
    events = [json.loads(line) for line in recorded(log).splitlines()]
    ends = {(event["f"], event["type"]) for event in events if event["type"] != "invoke"}
    assert {("send", "ok"), ("fetch", "ok")} <= ends


@pytest.mark.parametrize("kind", ["markers", "bytes", "tail"])
def test_what_no_client_could_have_seen_is_not_judged(kind: str) -> None:
    log = altered(exchanged(sends(b"one"), sends(b"two"), reads), without_send(b"two"))
    frame = (10).to_bytes(4) + WRITE_TXN_MARKERS + bytes(8)
    if kind == "tail":
        log.add_fault(LOST_TAIL, 1)
    else:
        log.add(Event("127.0.0.1:9092", "<- request", frame if kind == "markers" else frame[:9]))
    assert audit_case(log) == CaseAudit(0)


CASE = """
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Broker, batch
from highwater.conformance.client.exchange import ExchangeLog

@clause("PRD-1")
def test_a_record_of_a_client_that_is_not_recorded_is_read(cluster, topic):
    other = Broker(topic.leader, cluster.advertised, log=ExchangeLog(), access=cluster.access)
    assert other.produce(topic, batch(b"v")).error_code == 0
    assert cluster.leader(topic).fetch(topic, 0).records
"""


@pytest.mark.parametrize(("options", "failed"), [(["--hw-audit"], True), ([], False)])
def test_a_case_with_right_replies_fails_if_it_is_audited(tmp_path: Path, options: list[str], failed: bool) -> None:
    ended = run_case(tmp_path, CASE, "--hw-target=simulator", *options)
    assert bool(ended.returncode) == failed, ended.stdout
    assert ("phantom-read" in ended.stdout) == failed

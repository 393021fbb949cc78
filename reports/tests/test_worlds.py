"""The oracle on histories whose right verdict is known, and on what the simulated cluster produces."""

import json
from pathlib import Path
from typing import Any

import pytest

from highwater import reports
from highwater.reports.tests.worlds.campaign import histories_of, ndjson, shrunk
from highwater.reports.tests.worlds.drawn import drawn_history
from highwater.reports.tests.worlds.operations import Event, History
from highwater.reports.tests.worlds.oracle import Decision, verdict

KNOWN = sorted((Path(reports.__file__).parent / "tests" / "verdicts").glob("*.ndjson"))
RIGHT = {"invalid": Decision.IMPOSSIBLE, "valid": Decision.POSSIBLE, "unknown": Decision.POSSIBLE}
SETTINGS = {
    "acks": "all", "idempotence": True, "isolation": "read_uncommitted", "unclean_election": False, "retention": False,
    "compaction": False,
}  # fmt: skip


def read(path: Path) -> History:
    return [json.loads(line) for line in path.read_text().splitlines()]


def history(*events: Event, **settings: Any) -> History:
    header = {"process": "nemesis", "type": "info", "f": "header", "value": SETTINGS | settings}
    return [header, *({"topic": "t", "partition": 0, **event} for event in events)]


def operation(process: int, f: str, type_: str = "ok", **fields: Any) -> tuple[Event, Event]:
    """Return the invocation and the completion."""
    return {"process": process, "type": "invoke", "f": f, **fields}, {
        "process": process,
        "type": type_,
        "f": f,
        **fields,
    }


def send(value: int, offset: int, process: int = 0, **fields: Any) -> tuple[Event, Event]:
    return operation(process, "send", value=value, offset=offset, **fields)


def fetch(*records: tuple[int, int], **fields: Any) -> tuple[Event, Event]:
    return operation(9, "fetch", position=0, value=[list(record) for record in records], **fields)


@pytest.mark.parametrize("path", KNOWN, ids=lambda path: path.stem)
def test_known_histories(path: Path) -> None:
    assert verdict(read(path)).decision == RIGHT[path.stem.partition("-")[0]]


def test_processing_twice_is_impossible_with_distinct_producers() -> None:
    path = next(path for path in KNOWN if "processed-twice" in path.stem)
    events = [event | {"producer_id": 2} if event.get("value") == "tid2" else event for event in read(path)]
    assert verdict(events).reason == "t-0: no commit explains where a member of a group began"


TIMED_OUT = operation(0, "send", "info", value=1)
BEGIN = {"process": 0, "type": "info", "f": "begin_txn", "txn": "x", "value": "tid", "producer_id": 1}
PRODUCER = {"producer_id": 2, "producer_epoch": 0}
POSSIBLE = {
    "a record that timed out is read": history(*TIMED_OUT, *fetch((0, 1))),
    "a record that timed out is not read": history(*TIMED_OUT, *send(2, 0), *fetch((0, 2))),
    "a retry without idempotence": history(*send(1, 0), *fetch((0, 1), (1, 1)), idempotence=False),
    "an end of a new leader": history(*send(1, 0, leader_epoch=0), *fetch(leader_epoch=1, high_watermark=0)),
    "an aborted record is skipped": history(
        BEGIN, *send(1, 0, txn="x"), *operation(0, "end_txn", txn="x", value="abort"), *send(2, 2, 1),
        *fetch((2, 2), isolation="read_committed"),
    ),
    "a transaction timed out": history(
        BEGIN, *send(1, 0, txn="x"), *send(2, 2, 1), *fetch((2, 2), isolation="read_committed")
    ),
    "two concurrent sends": history(send(1, 1)[0], *send(2, 0, 1), send(1, 1)[1], *fetch((0, 2), (1, 1))),
}  # fmt: skip
IMPOSSIBLE = {
    "an acknowledged record is skipped": history(*send(1, 0), *send(2, 1), *fetch((1, 2))),
    "an end decreases": history(*send(1, 0, leader_epoch=0), *fetch(leader_epoch=0, high_watermark=0)),
    "an offset without a record": history(*send(1, 0, **PRODUCER, sequence=0), *send(2, 2, **PRODUCER, sequence=1)),
    "the order of two sends": history(*send(1, 1), *send(2, 0)),
    "a marker has no place before the read that passes the transaction": history(
        BEGIN, *send(1, 0, txn="x"), *send(2, 1, 1), *fetch((1, 2), isolation="read_committed"), *send(3, 2, 1)
    ),
    "a commit that was not requested": history(BEGIN, *send(1, 0, txn="x"), *fetch((0, 1), isolation="read_committed")),
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_possible(name: str) -> None:
    assert verdict(POSSIBLE[name]).decision == Decision.POSSIBLE


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible(name: str) -> None:
    assert verdict(IMPOSSIBLE[name]).decision == Decision.IMPOSSIBLE


def test_another_setting_is_open() -> None:
    assert verdict(history(*send(1, 0), acks="1")).decision == Decision.OPEN


def test_right_clusters_are_possible() -> None:
    assert [seed for seed in range(800) if verdict(drawn_history(seed)).decision != Decision.POSSIBLE] == []


def test_changes_are_found_and_a_seed_replays() -> None:
    answers = [[verdict(one).decision for one in histories_of(seed)] for seed in range(100)]
    assert answers == [[verdict(one).decision for one in histories_of(seed)] for seed in range(100)]
    assert sum(answer[1:].count(Decision.IMPOSSIBLE) for answer in answers) > 30


def test_shrinking_leaves_what_differs() -> None:
    path = next(path for path in KNOWN if "rejected-send" in path.stem)
    events = [event for event in read(path) if event["f"] != "trailer"]
    assert len(ndjson(shrunk(events)).splitlines()) <= len(events) + 1


def test_a_commit_of_an_old_generation_has_no_effect() -> None:
    member = {"topic": None, "type": "ok", "f": "assign", "value": ["t-0"], "group": "g"}
    events = history(
        member | {"process": 1, "generation_id": 1, "member_id": "m1"},
        member | {"process": 2, "generation_id": 2, "member_id": "m2"},
        *operation(1, "commit", "info", value={"t-0": 3}, generation_id=1, member_id="m1", group="g"),
        *operation(3, "committed", value={"t-0": 3}, group="g"),
    )
    assert verdict(events).decision == Decision.IMPOSSIBLE

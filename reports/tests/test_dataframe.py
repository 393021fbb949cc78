"""A table with one row for each operation has the findings of the same history as NDJSON."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from highwater.errors import UsageError
from highwater.reports import audit_dataframe, dataframe
from highwater.reports.audit import audit
from highwater.reports.dataframe import CALLS, OPTIONAL, REQUIRED, TEXTS
from highwater.reports.synth.write import synth
from highwater.reports.tests.histories import PROMISED, History
from highwater.reports.verdicts import AuditResult
from highwater.soak.spark_cluster import PLANTED
from highwater.spec.formats.history import NEMESIS, Event, HistoryWriter, read_history

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
NAMES = (*REQUIRED, *OPTIONAL)
STRINGS = {"topic", "f", "status", "process", "value", *TEXTS}
TYPES = (
    dict.fromkeys(NAMES, "long")
    | dict.fromkeys(STRINGS, "string")
    | {"records": "array<struct<offset: long, value: string>>"}
)
SCHEMA = ", ".join(f"{name} {TYPES[name]}" for name in NAMES)
REQUESTED = ("txn", "key", "producer_id", "producer_epoch", "sequence", "timestamp_ms", "position", "leader_epoch")
IN_ONE_EVENT = {"assign", "seek", "reset", "revoke", "lost", "crash", "begin_txn"}


@pytest.fixture(scope="module")
def session(local_spark: Any) -> Any:
    return local_spark


def rows_of(events: Iterator[Event]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table with the operations that a table can hold."""
    opened: dict[int | str, Event] = {}
    for event in events:
        if event.process == NEMESIS or event.f in IN_ONE_EVENT:
            if event.type != "invoke":
                yield from _rows(event, event)
        elif event.f not in CALLS:
            continue
        elif event.type == "invoke":
            opened[event.process] = event
        else:
            yield from _rows(opened.pop(event.process), event)
    for event in opened.values():
        yield from _rows(event, None)


def _rows(invoke: Event, done: Event | None) -> Iterator[dict[str, Any]]:
    last = done or invoke
    row = {name: getattr(last, name, None) for name in OPTIONAL}
    row |= {name: getattr(invoke, name) for name in REQUESTED if row[name] is None}
    row |= {
        "topic": last.topic, "partition": last.partition, "f": invoke.f, "status": last.type, "value": None,
        "process": str(invoke.process), "invoked": invoke.index, "returned": done.index if done else None,
        "time_ms": last.time_ns // 1_000_000, "records": None,
    }  # fmt: skip
    value = last.value
    if invoke.f in {"send", "end_txn"} or invoke.process == NEMESIS:
        text = invoke.value
        yield row | {"value": text if text is None or isinstance(text, str) else str(text)}
    elif isinstance(value, dict) and value:
        for key, records in value.items():
            topic, _, number = key.rpartition("-")
            yield row | {"topic": topic, "partition": int(number), "records": _pairs(records)}
    elif isinstance(value, list) and value and isinstance(value[0], str):
        for key in value:
            topic, _, number = key.rpartition("-")
            yield row | {"topic": topic, "partition": int(number)}
    else:
        yield row | {"records": _pairs(value or []) if isinstance(value, list) else None}


def _pairs(records: list[Any]) -> list[tuple[int, str | None]]:
    return [(offset, None if value is None else str(value)) for offset, value in records]


def table(session: Any, events: Iterator[Event], *dropped: str) -> Any:
    rows = [tuple(row[name] for name in NAMES) for row in rows_of(events)]
    return session.createDataFrame(rows, SCHEMA).repartition(3).drop(*dropped)


def findings(result: AuditResult) -> list[Any]:
    return [msgspec.to_builtins(finding) for finding in result.findings]


@pytest.mark.soak
def test_a_small_history_has_the_same_findings(session: Any, tmp_path: Path) -> None:
    history = History(PROMISED)
    history.assign()
    for value in range(5):
        history.send(value, value)
    history.poll((0, 0), (1, 1))
    history.poll((1, 1), (2, 2))  # backwards, without an assignment
    history.fetch(0, (0, 0), (1, 1), (2, 9), (4, 4), end=5)  # another value, and 3 is lost
    history.begin(7, "send", value=50)
    path = history.write(tmp_path / "history.ndjson")
    expected = audit(path)
    result = audit_dataframe(table(session, iter(history.events[1:]), "txn", "sequence", "time_ms"), PROMISED)
    assert len(expected.findings) > 2
    assert findings(result) == findings(expected)
    assert (result.verdict, result.operations) == (expected.verdict, expected.operations)
    assert result.coverage is not None
    assert msgspec.structs.replace(result.coverage, trailer=True) == expected.coverage


def test_planted_anomalies_are_found_as_in_ndjson(session: Any, tmp_path: Path) -> None:
    """Keep the events of a synthetic history that a table can hold; several rules still find their anomaly."""
    whole, path = tmp_path / "whole.ndjson", tmp_path / "history.ndjson"
    config = synth(whole, operations=600, seed=5, planted=PLANTED)
    kept = [event for event in read_history(whole)[1] if event.f in CALLS | IN_ONE_EVENT or event.process == NEMESIS]
    with path.open("wb") as sink:
        writer = HistoryWriter(sink, config)
        events = [writer.append(event) for event in kept]
        writer.finish()
    expected = audit(path)
    assert len({finding.rule for finding in expected.findings}) > 20
    assert findings(audit_dataframe(table(session, iter(events)), config)) == findings(expected)


@pytest.mark.parametrize("name", ["f", "invoked", "value"])
def test_a_missing_column_is_named(session: Any, name: str) -> None:
    with pytest.raises(UsageError, match=f"no column {name}"):
        audit_dataframe(table(session, iter(()), name))


def test_a_wrong_operation_or_setting_is_rejected(session: Any) -> None:
    wrong = session.createDataFrame([("t", 0, "sned", "ok", "1", 1, 2, "5")], SCHEMA.partition(", offset")[0])
    with pytest.raises(UsageError, match="sned"):
        audit_dataframe(wrong)
    with pytest.raises(UsageError, match="acks"):
        audit_dataframe(wrong, {"acks": "most"})


def test_importing_the_package_loads_neither_numpy_nor_pyspark() -> None:
    code = "import sys, highwater.reports; print({'numpy', 'pyarrow', 'pyspark'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


@pytest.mark.parametrize(("text", "process"), [("7", 7), ("07", "07"), ("", ""), ("a", "a"), ("nemesis", "nemesis")])
def test_a_process_keeps_its_number_and_no_two_become_one(text: str, process: int | str) -> None:
    assert dataframe._process(text) == process

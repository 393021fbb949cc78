"""Audit a history that is a Spark table with one row for each operation.

Theory of operation. Spark turns each row into its invocation and its completion and sorts both by time; this process
reads them one after the other as events of `highwater.spec.formats.history`, and ingests them like those of a file. So
an event means the same as in NDJSON, and findings are identical. The rows pass through the driver once, in small parts.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from highwater.errors import UsageError
from highwater.reports.audit import audit_history
from highwater.reports.execution.reading import ingest
from highwater.reports.importers.formats import History
from highwater.reports.importers.jepsen_shape import ALONE, sound
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.verdicts import AuditResult
from highwater.spec.formats.history import NEMESIS, OPERATIONS, Config, Event
from highwater.temporary import temporary_folder

if TYPE_CHECKING:
    from highwater.reports.execution.partitions import Engine

NAME: Final = "DataFrame"
REQUIRED: Final = ("topic", "partition", "f", "status", "process", "invoked", "returned", "value")
NUMBERS: Final = ("offset", "position", "high_watermark", "last_stable_offset", "log_start_offset", "leader_epoch",
                  "producer_id", "producer_epoch", "sequence", "generation_id")  # fmt: skip
TEXTS: Final = ("txn", "key", "group", "member_id", "instance_id", "client", "node", "isolation", "error", "topic_id")
TIMES: Final = ("time_ms", "timestamp_ms")
"""Optional; `timestamp_ms` of records counts only beside `time_ms`, with which rules compare it."""
RECORDS: Final = "records"
OPTIONAL: Final = (*NUMBERS, *TEXTS, *TIMES, RECORDS)
KEYED: Final = {"poll", "assign", "seek", "reset", "revoke", "lost"}
"""Operations on several partitions: their rows have one process and one `invoked`."""
CALLS: Final = {"send", "poll", "fetch", "list_offsets", "log_dump", "delete_records", "end_txn"}
ORDER: Final = ("at", "phase", "process", "f")
INVOKED, RETURNED = 0, 1


def audit_dataframe(
    frame: Any,
    config: Config | Mapping[str, Any] | None = None,
    *,
    engine: "Engine | None" = None,
    out: Path | None = None,
) -> AuditResult:
    """Audit a table with one row for each operation; docs/audit/spark.md lists its columns.

    `config` are the settings that a verdict depends on, as in the header of a history. With `out`, keep the history
    there as a dataset. UsageError names a required column that is missing, or a setting that is not valid.
    """
    quarantine = Quarantine()
    columns = _columns(frame)
    opened = History("dataframe", _config(config), sound(_events(frame, columns), quarantine), quarantine)
    with temporary_folder("audit-") as folder:
        return audit_history(ingest(NAME, out=out or folder / "dataset", opened=opened), NAME, engine)


def _config(config: Config | Mapping[str, Any] | None) -> Config:
    if isinstance(config, Config):
        return config
    try:
        return msgspec.convert(dict(config or {}), Config)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), where="config", hint="docs/audit/events.md lists the settings") from error


def _columns(frame: Any) -> list[str]:
    """Return the columns to read; UsageError if a required one is missing. `type` is accepted for `status`."""
    present = set(frame.columns)
    missing = [name for name in REQUIRED if name not in present and not (name == "status" and "type" in present)]
    if missing:
        what = f"the table has no column {' and no column '.join(missing)}"
        raise UsageError(what, where=NAME, hint=f"required: {', '.join(REQUIRED)}")
    return [name for name in (*REQUIRED, *OPTIONAL) if name in present or name == "status"]


def _events(frame: Any, columns: list[str]) -> Iterator[Event]:
    """Yield the events in order of time; those of one call on several partitions are one event.

    The index of an event is its `invoked` or `returned`, or the next free number if several have the same; then
    invocations come first, so that calls that may overlap count as overlapping. An invocation has the time of the last
    completion before it, since a row has only the time of its own.
    """
    last = time_ms = 0
    for (at, phase, _, _), rows in groupby(_sorted(frame, columns), itemgetter(*ORDER)):
        call = list(rows)
        if phase == RETURNED:
            time_ms = call[0].get("time_ms") or 0
        event = _event(call, phase, max(at, last + 1), time_ms)
        if event is not None:
            last = event.index
            yield event


def _sorted(frame: Any, columns: list[str]) -> Iterator[dict[str, Any]]:
    from pyspark.sql import functions as sql

    status = "status" if "status" in frame.columns else "type"
    texts = {"topic", "f", "status", "process", *TEXTS}
    longs = {"partition", "invoked", "returned", *NUMBERS, *TIMES}
    cells = [
        sql.col(status if name == "status" else name)
        .cast("string" if name in texts else "long" if name in longs else frame.schema[name].dataType)
        .alias(name)
        for name in columns
    ]
    phases = [sql.struct(sql.col(name).alias("at"), sql.lit(phase).alias("phase"))
              for phase, name in enumerate(("invoked", "returned"))]  # fmt: skip
    rows = frame.select(*cells).select("*", sql.explode(sql.array(*phases)).alias("event")).select("*", "event.*")
    ordered = rows.drop("event").filter("at IS NOT NULL").sort(*ORDER, "topic", "partition")
    for row in ordered.toLocalIterator(prefetchPartitions=True):
        yield row.asDict()


def _process(text: str) -> int | str:
    """Return the process as the number that it is written as; `7` and `07` are two processes."""
    return int(text) if text and text.isdecimal() and str(int(text)) == text else text


def _event(rows: list[dict[str, Any]], phase: int, index: int, time_ms: int) -> Event | None:
    """Return the event of these rows, of one call; None for the invocation of a call that is only one event."""
    row = rows[0]
    f, status, by_fault = row["f"], row["status"], row["process"] == NEMESIS
    if f not in CALLS | ALONE and not by_fault:
        hint = f"use one of {', '.join(sorted(CALLS | ALONE & OPERATIONS))}"
        raise UsageError(f"no operation {f!r} in a table", where=f"{NAME}, column f", hint=hint)
    alone = by_fault or f in ALONE
    if alone and phase == INVOKED and row["returned"] is not None:
        return None
    known = {name: row[name] for name in (*NUMBERS, *TEXTS, "timestamp_ms") if row.get(name) is not None}
    if row.get("time_ms") is None:
        known.pop("timestamp_ms", None)
    if f not in KEYED and not by_fault and row["topic"] is not None:
        known |= {"topic": row["topic"], "partition": row["partition"]}
    return Event(
        index=index,
        time_ns=time_ms * 1_000_000,
        process=_process(row["process"]),
        type="info" if alone else "invoke" if phase == INVOKED else status,
        f=f,
        value=_value(rows, phase, alone),
        **known,
    )


def _value(rows: list[dict[str, Any]], phase: int, alone: bool) -> Any:
    f = rows[0]["f"]
    if f in KEYED and alone:
        return [f"{row['topic']}-{row['partition']}" for row in rows if row["topic"] is not None]
    if f == "poll":
        return {f"{row['topic']}-{row['partition']}": _records(row) for row in rows if row.get(RECORDS)}
    if f in {"fetch", "log_dump"}:
        return _records(rows[0]) if phase == RETURNED else None
    return _number(rows[0]["value"]) if f == "send" else rows[0]["value"]


def _records(row: dict[str, Any]) -> list[tuple[int, Any]]:
    return [(record["offset"], _number(record["value"])) for record in row.get(RECORDS) or ()]


def _number(value: Any) -> Any:
    """Return the integer that a text shows, else the text: an integer needs no memory for its text."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and str(int(value)) == value \
        else value  # fmt: skip

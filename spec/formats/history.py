"""`history.ndjson`: one line per event of a fault test, as in Jepsen; docs/audit/events.md lists events and fields."""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final, Literal, cast

import msgspec

from highwater.errors import UsageError

NEMESIS = "nemesis"
OPERATIONS: Final = frozenset({
    "send", "poll", "fetch", "list_offsets", "log_dump", "delete_records", "assign", "seek", "reset", "revoke", "lost",
    "crash", "subscribe", "init_producer", "begin_txn", "send_offsets", "end_txn", "commit", "committed", "sync",
    "group", "delete_offsets", "metadata", "in_sync", "create_topic", "delete_topic",
    "read", "write", "cas", "append", "add", "header",
})  # fmt: skip
"""The values of `f` in docs/audit/events.md; an event of a client with another one is unusable."""
Records = list[tuple[int, Any]]


class Config(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings that verdicts depend on. None is unknown; verdicts that need that setting are undecided."""

    acks: Literal["0", "1", "all"] | None = None
    idempotence: bool | None = None
    isolation: Literal["read_uncommitted", "read_committed"] | None = None
    min_insync_replicas: int | None = None
    unclean_election: bool | None = None
    retention: bool | None = None
    compaction: bool | None = None
    replicas: int | None = None
    transaction_timeout_ms: int | None = None  # timeout of the transactions plus the check interval of the coordinator
    retention_ms: int | None = None
    patience_ms: int | None = None  # after the faults, everything must progress within this time
    offset_expiry: bool | None = None
    complete: bool | None = None  # all clients of the topics and groups are recorded, which were empty before
    started_ms: int = 0  # wall clock at `time_ns` 0, the clock of `timestamp_ms`
    workload: Literal["log", "register", "set", "counter"] = "log"
    clients: tuple[str, ...] = ()
    source: str = ""
    trailer: bool = False  # the last line of the file is an event `trailer`


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. `index` counts by one and defines the order of events; `time_ns` counts from the start."""

    index: int
    time_ns: int
    process: int | str
    type: Literal["invoke", "ok", "fail", "info"]
    f: str
    value: Any = None
    error: str | None = None
    node: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    position: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    leader_epoch: int | None = None
    generation_id: int | None = None
    member_id: str | None = None
    client: str | None = None
    key: Any = None
    timestamp_ms: int | None = None
    txn: int | str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    sequence: int | None = None
    isolation: Literal["read_uncommitted", "read_committed"] | None = None
    group: str | None = None
    instance_id: str | None = None
    topic_id: str | None = None
    positions: dict[str, int] | None = None


TRAILER: Final = "trailer"
_NO_FAULT: Final = {"phase", "header", TRAILER, "restart", "resume"}


def kinds_of_faults(events: Iterable[Event]) -> list[str]:
    """Return the kinds of faults among the events of the nemesis, without the events that end a fault."""
    return sorted({event.f for event in events if begins_fault(event)})


def begins_fault(event: Event) -> bool:
    """Return whether an event of the nemesis begins a fault."""
    return event.f not in _NO_FAULT and not event.f.endswith(" over")


def header(config: Config) -> Event:
    """Return the first event of a history, which holds its configuration and promises a trailer."""
    value = msgspec.to_builtins(msgspec.structs.replace(config, trailer=True))
    return Event(index=0, time_ns=0, process=NEMESIS, type="info", f="header", value=value)


def trailer(index: int) -> Event:
    """Return the last event of a history; `index` is the number of events before it."""
    return Event(index=index, time_ns=0, process=NEMESIS, type="info", f=TRAILER)


class HistoryWriter:
    """Append numbered events to an open binary file, one write per line, so that a truncated file stays readable."""

    def __init__(self, sink: IO[bytes], config: Config) -> None:
        self._sink = sink
        self._encoder = msgspec.json.Encoder()
        self._next_index = 0
        self.append(header(config))

    def append(self, event: Event) -> Event:
        """Write `event` under the next index and return it as written."""
        numbered = msgspec.structs.replace(event, index=self._next_index)
        self._next_index += 1
        self._sink.write(self._encoder.encode(numbered) + b"\n")
        return numbered

    def flush(self) -> None:
        self._sink.flush()

    def finish(self) -> None:
        """Write the trailer, without which an auditor reports the history as cut."""
        self.append(trailer(self._next_index))


def read_history(path: Path) -> tuple[Config, Iterator[Event]]:
    """Return the configuration of the header and the events between it and the trailer; a `.gz` file is decompressed.

    Raises UsageError with the line number and what was expected there, also while iterating.
    """
    try:
        source = cast("IO[bytes]", gzip.GzipFile(path)) if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        raise UsageError(
            f"cannot read this history ({error.strerror})", where=str(path), hint="give the path of a history.ndjson"
        ) from error
    events = _decode(path, source)
    first = next(events, None)
    if first is None or first.f != "header":
        raise UsageError(
            "line 1: expected the header event (f = header)",
            where=str(path),
            hint='a history begins with {"index":0,...,"f":"header","value":{...}}',
        )
    try:
        return msgspec.convert(first.value, Config), events
    except msgspec.ValidationError as error:
        raise UsageError(f"line 1: {error}", where=str(path), hint="docs/audit/events.md lists the settings") from error


def _lines(path: Path, source: IO[bytes]) -> Iterator[bytes]:
    try:
        yield from source
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        hint = "use the compressed file as it was written"
        raise UsageError(f"cannot be decompressed: {error}", where=str(path), hint=hint) from error


def _decode(path: Path, source: IO[bytes]) -> Iterator[Event]:
    decoder = msgspec.json.Decoder(Event)
    with source:
        for number, line in enumerate(_lines(path, source), 1):
            try:
                event = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                cut = "" if line.endswith(b"\n") else " (the line is cut: the file was truncated while being written)"
                raise UsageError(
                    f"line {number}: expected one event as a JSON object, {error}{cut}",
                    where=str(path),
                    hint="remove the line, or cut the file before it",
                ) from error
            if event.index != number - 1:
                raise UsageError(
                    f"line {number}: expected index {number - 1}, found {event.index}",
                    where=str(path),
                    hint="an event is missing or duplicated; use the file as the run wrote it",
                )
            if event.f != TRAILER:
                yield event

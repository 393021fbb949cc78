"""`history.ndjson`: one line per event of a fault test, as in Jepsen.

An operation is an `invoke` followed by an `ok`, `fail` or `info` of the same process; `info` means that it is unknown
whether the operation took effect.  A process has at most one open operation; a client that pipelines uses several
processes.  Faults are `info` events of process `nemesis`.  The first event is the header.

The tables list the values of `f` and the fields of their events beside `topic` and `partition` (a key such as "topic-0"
contains both).  Unknown fields may be left out; a rule that needs them then finds nothing or is undecided.
If the client library retries internally, `fail` means a definite rejection, and every other error is `info`.  A `fail`
with an indefinite `error` (a time-out, a lost connection, not the leader ...) counts as `info`.

Records
==============  =============================================================================
send            invoke `value` (unique in its partition; null: a tombstone), `key`, `timestamp_ms` of the record if
                known, `txn`, `producer_id`, `producer_epoch`, `sequence` (place among the send() calls of that
                producer in that partition, or of that transaction where the producer is not known); ok: `offset`
                (-1 when unknown), `leader_epoch` if known.  With `txn`, ok means that it is in the log; `end_txn` has
                the outcome of the transaction
poll            ok: `value` = {"topic-0": [[offset, value], ...]}, as a client library returned it; `txn` if the records
                are processed in that transaction, `group`, `isolation` if it differs from the header's
fetch           raw: invoke `position`; ok: `value` = [[offset, value], ...], `high_watermark`,
                `last_stable_offset`, `log_start_offset`, `leader_epoch` (current epoch sent; left out if a
                follower may have answered, since it may lag), `isolation`, `node`
list_offsets    raw, latest: ok `high_watermark`, `leader_epoch`; with read_committed `last_stable_offset`
log_dump        the log of replica `node`: `position` (its log start), ok `value` = [[offset, value], ...] of all its
                data records, `high_watermark` (its own)
delete_records  invoke `offset`: records below it may be deleted; -1: all below the high watermark; ok:
                `log_start_offset` of the reply, if known
assign          ok: `value` = ["topic-0", ...]; replaces; polls restart here (`position`, or `positions` by key);
                in a group `group`, `generation_id`, `member_id`, `instance_id`, and polls resume as committed
seek            ok: `value` = ["topic-0", ...], `position`: polls restart there
reset           info: `value` = ["topic-0", ...]: the consumer had no valid offset and applied `auto.offset.reset`
revoke          info: `value` = ["topic-0", ...]; `lost` is the same for partitions that were lost
crash           info: a consumer that was killed; a new one continues under the same process number

Transactions; `txn` identifies a transaction; its events may belong to several processes
==============  =============================================================================
init_producer   InitProducerId: invoke `value` = transactional id or null; ok `producer_id`, `producer_epoch`
begin_txn       info: `txn`, `producer_id`, `producer_epoch`, `value` = transactional id; promises an `end_txn` event
send_offsets    TxnOffsetCommit: invoke `txn`, `group`, `value` = {"topic-0": offset}, `generation_id`, `member_id`
end_txn         invoke `txn`, `value` = "commit" | "abort"; ok: the outcome is decided (markers follow later);
                fail: rejected, so a commit did not happen; info: unknown

Groups; `group` where there is more than one
==============  =============================================================================
commit          invoke and ok: `value` = {"topic-0": offset}, `generation_id` (-1: no member), `member_id`,
                `instance_id`
committed       raw: ok `value` = {"topic-0": offset}, the committed offsets of the coordinator, -1 none
sync            raw: ok `value` = ["topic-0", ...], the assignment by coordinator `node`: `generation_id`, `member_id`,
                `instance_id`
group           raw: ok `value` = {"state", "members"}, the coordinator's description of the group
delete_offsets  invoke `value` = ["topic-0", ...], or null for the whole group, whose generations restart

Cluster
==============  =============================================================================
metadata        ok: `node` that answered, `value` = {"topic-0": [leader, leader_epoch], ...}, `topic_id` if there is
                only one topic
in_sync         ok: `node` that answered, `value` = {"topic-0": [broker, ...], ...}: the in-sync replicas (only for the
                report page)
create_topic    `topic`, ok: `topic_id` if known
delete_topic    `topic`; its partitions end here; those of a later topic of the same name are distinct
phase           nemesis: `value` = "load" | "heal" | "final"; reads after "final" run without faults
trailer         nemesis: the last line; `trailer` in the header promises it, so that a history that was cut is detected
FAULT           nemesis: `node`, `value` = the fault as in the schedule (fuzz/schedule.py: kill,
                bounce, pause, cut ...); its end is `restart`, `resume`, or `FAULT over`

Histories of other objects (`workload` in the header); `key` where there are several objects
==============  =============================================================================
register        read: ok `value`; write: invoke `value`; cas: invoke `value` = [expected, new]; append: invoke `value`,
                a string that is added to the end of a register of strings (null counts as "")
set             add: invoke `value`; read: ok `value` = [element, ...]
counter         add: invoke `value` (how much); read: ok `value`
==============  =============================================================================
"""

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
"""The values of `f` in the tables above; an event of a client with another one is unusable."""
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
        raise UsageError(
            f"line 1: {error}", where=str(path), hint="see spec/formats/history.py, class Config"
        ) from error


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

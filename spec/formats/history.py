"""`history.ndjson`: one line per event of a fault test, in Jepsen's shape.

An operation is an `invoke` followed by an `ok`, `fail` or `info` of the same process; `info` means that
nobody knows whether it happened.  A process has at most one operation open; a client that pipelines
owns several processes.  Faults are `info` events of process `nemesis`.  The first event is the header.

What `f` may be, and what its events carry beside `topic` and `partition` (a key such as "topic-0" is both in one).
Everything may be left out that nobody was told; a rule that needs it then finds nothing, or cannot decide.
Where a client retries inside, `fail` is for what was refused for certain; all else that went wrong is `info`.  A `fail`
whose `error` leaves that open (a time-out, a lost connection, not the leader ...) counts as `info`.

Records
==============  =============================================================================
send            invoke `value` (unique in its partition; null: a tombstone), `key`, `timestamp_ms` of the record if
                known, `txn`, `producer_id`, `producer_epoch`, `sequence` (place among the send() calls of that
                producer in that partition, or of that transaction where the producer is not known); ok: `offset`
                (-1 when unknown), `leader_epoch` if told.  With `txn`, ok says that it is in the log; what becomes of
                it says `end_txn`
poll            ok: `value` = {"topic-0": [[offset, value], ...]}, what a client library returned; `txn` when read to
                be processed in that transaction, `group`, `isolation` where it differs from the header's
fetch           raw: invoke `position`; ok: `value` = [[offset, value], ...], `high_watermark`,
                `last_stable_offset`, `log_start_offset`, `leader_epoch` (current epoch sent; left out where a
                follower may have answered, since it may lag), `isolation`, `node`
list_offsets    raw, latest: ok `high_watermark`, `leader_epoch`; with read_committed `last_stable_offset`
log_dump        what replica `node` holds: `position` (its log start), ok `value` = [[offset, value], ...] of all its
                data records, `high_watermark` (its own)
delete_records  invoke `offset`: everything below may go
assign          ok: `value` = ["topic-0", ...]; replaces; polls restart here (`position`, or `positions` by key);
                in a group `group`, `generation_id`, `member_id`, `instance_id`, and polls resume as committed
seek            ok: `value` = ["topic-0", ...], `position`: polls restart there
reset           info: `value` = ["topic-0", ...]: the consumer lost its place and took `auto.offset.reset`
revoke          info: `value` = ["topic-0", ...]; `lost` is the same for partitions that were lost
crash           info: a consumer that went without a word; another follows under the same number

Transactions; `txn` names one of them, whatever processes its events belong to
==============  =============================================================================
init_producer   InitProducerId: invoke `value` = transactional id or null; ok `producer_id`, `producer_epoch`
begin_txn       info: `txn`, `producer_id`, `producer_epoch`, `value` = transactional id; says that its end is told too
send_offsets    TxnOffsetCommit: invoke `txn`, `group`, `value` = {"topic-0": offset}, `generation_id`, `member_id`
end_txn         invoke `txn`, `value` = "commit" | "abort"; ok: so it will be (markers follow later); fail: it was
                refused, and a commit that was is none; info: nobody knows

Groups; `group` where there is more than one
==============  =============================================================================
commit          invoke and ok: `value` = {"topic-0": offset}, `generation_id` (-1: no member), `member_id`,
                `instance_id`
committed       raw: ok `value` = {"topic-0": offset}, what the coordinator has as committed, -1 none
sync            raw: ok `value` = ["topic-0", ...], what coordinator `node` granted: `generation_id`, `member_id`,
                `instance_id`
group           raw: ok `value` = {"state", "members"}, what the coordinator tells of the group
delete_offsets  invoke `value` = ["topic-0", ...], or null for the whole group, whose generations begin anew

Cluster
==============  =============================================================================
metadata        ok: `node` that told, `value` = {"topic-0": [leader, leader_epoch], ...}, `topic_id` if all are of one
in_sync         ok: `node` that told, `value` = {"topic-0": [broker, ...], ...}: the in-sync replicas; for the page
create_topic    `topic`, ok: `topic_id` if told
delete_topic    `topic`; its partitions end here, and those of a topic of the same name are others
phase           nemesis: `value` = "load" | "heal" | "final"; reads after "final" are the quiet ones
FAULT           nemesis: `node`, `value` = the fault as the schedule has it (fuzz/schedule.py: kill,
                bounce, pause, cut ...); its end is `restart`, `resume`, or `FAULT over`

Histories of other things (`workload` in the header); `key` where there are several objects
==============  =============================================================================
register        read: ok `value`; write: invoke `value`; cas: invoke `value` = [expected, new]
set             add: invoke `value`; read: ok `value` = [element, ...]
counter         add: invoke `value` (how much); read: ok `value`
==============  =============================================================================
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Literal, cast

import msgspec

from spec.formats.verdict import UsageError

NEMESIS = "nemesis"
Records = list[tuple[int, Any]]


class Config(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What verdicts depend on. None is unknown, and so are the verdicts that need it."""

    acks: Literal["0", "1", "all"] | None = None
    idempotence: bool | None = None
    isolation: Literal["read_uncommitted", "read_committed"] | None = None
    min_insync_replicas: int | None = None
    unclean_election: bool | None = None
    retention: bool | None = None
    compaction: bool | None = None
    replicas: int | None = None
    transaction_timeout_ms: int | None = None  # that of the transactions, and how often the coordinator looks
    retention_ms: int | None = None
    patience_ms: int | None = None  # how soon everything must go on once faults are over
    offset_expiry: bool | None = None
    started_ms: int = 0  # wall clock at `time_ns` 0, in which `timestamp_ms` counts
    workload: Literal["log", "register", "set", "counter"] = "log"
    clients: tuple[str, ...] = ()
    source: str = ""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. `index` ascends by one and is the clock; `time_ns` counts from the start."""

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


_NO_FAULT = {"phase", "header", "restart", "resume"}


def kinds_of_faults(events: Iterable[Event]) -> list[str]:
    """What the nemesis did, of its events; not what ended it."""
    return sorted(
        {event.f for event in events} - _NO_FAULT - {event.f for event in events if event.f.endswith(" over")}
    )


def header(config: Config) -> Event:
    return Event(index=0, time_ns=0, process=NEMESIS, type="info", f="header", value=msgspec.to_builtins(config))


class HistoryWriter:
    """Appends events to an open binary file, numbering them; whole lines only, so a cut file stays readable."""

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


def read_history(path: Path) -> tuple[Config, Iterator[Event]]:
    """The header's configuration and the events after it; a name that ends with `.gz` is of a compressed history.

    Raises UsageError with the line number and what was expected there, also while iterating.
    """
    try:
        source = cast("IO[bytes]", gzip.GzipFile(path)) if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        raise UsageError(
            f"cannot read this history ({error.strerror})", where=str(path), mend="give the path of a history.ndjson"
        ) from error
    events = _decode(path, source)
    first = next(events, None)
    if first is None or first.f != "header":
        raise UsageError(
            "line 1: expected the header event (f = header)",
            where=str(path),
            mend='a history begins with {"index":0,...,"f":"header","value":{...}}',
        )
    try:
        return msgspec.convert(first.value, Config), events
    except msgspec.ValidationError as error:
        raise UsageError(
            f"line 1: {error}", where=str(path), mend="see spec/formats/history.py, class Config"
        ) from error


def _lines(path: Path, source: IO[bytes]) -> Iterator[bytes]:
    try:
        yield from source
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        mend = "take the compressed file as it was written"
        raise UsageError(f"cannot be decompressed: {error}", where=str(path), mend=mend) from error


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
                    mend="remove the line, or cut the file before it",
                ) from error
            if event.index != number - 1:
                raise UsageError(
                    f"line {number}: expected index {number - 1}, found {event.index}",
                    where=str(path),
                    mend="an event is missing or doubled; take the file as the run wrote it",
                )
            yield event

"""Random histories of a partition for comparing two implementations of the rules.

A third are those of a correct partition (`simulation.py`), a third the same with some cells changed, and a third any
operations. Half of the histories use only two or three features, so that each occurs without the others.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import pairwise
from typing import Any, Final

from highwater.reports.columns import (
    NEVER,
    NOTHING,
    OPTIONAL,
    TOMBSTONE,
    UNKNOWN,
    Fate,
    Isolation,
    Kind,
    Operations,
    Status,
    producer_of,
)
from highwater.reports.rules.findings import Promise
from highwater.reports.tests.oracle.simulation import FEATURES, simulate
from highwater.reports.tests.random_ops import operations, random_operations

Row = dict[str, Any]
OFFSETS: Final = 8
SEQUENCES: Final = 1 << 31
LIMITS_MS: Final = (UNKNOWN, 3, 10)


class Origin(Enum):
    CORRECT = auto()
    CHANGED = auto()
    ARBITRARY = auto()


@dataclass(frozen=True, slots=True)
class Sample:
    """A history, what is promised of it, and where it is from."""

    ops: Operations
    promise: Promise
    origin: Origin
    features: tuple[str, ...]


def random_history(seed: int) -> Sample:
    chance = random.Random(seed)
    origin = Origin(1 + seed % 3)
    if origin is Origin.ARBITRARY:
        ops, promise = random_operations(chance)
        return Sample(*as_recorded(chance, rows_of(ops), promise), origin, ())
    situation = chance.choice([*SITUATIONS, *[None] * 6])
    features = _features(chance, situation)
    script = [chance.choice(kinds.split()) for kinds in SITUATIONS[situation][1]] if situation is not None else []
    rows, promise = simulate(chance, features, script)
    if origin is Origin.CORRECT:
        return Sample(operations(rows), promise, origin, features)
    if situation is not None:
        CHANGES_OF_SITUATIONS[situation](chance, rows)
    for _ in range(chance.randint(1, 4) if situation is None else chance.choice([0, 0, 1])):
        chance.choice(CHANGES)(chance, rows)
    for feature, change in CHANGES_OF_FEATURES.items():
        if feature in features and chance.random() < 0.3:
            change(chance, rows)
    return Sample(*as_recorded(chance, rows, changed_promise(chance, promise, LIMITS_MS)), origin, features)


def _features(chance: random.Random, situation: str | None) -> tuple[str, ...]:
    """Return any features, few or many, or those of a situation and perhaps another one."""
    if situation is None:
        few = chance.random() < 0.5
        return tuple(sorted(chance.sample(FEATURES, chance.randint(2, 3) if few else chance.randint(4, 16))))
    others = chance.sample(FEATURES, chance.choice([0, 0, 1]))
    return tuple(sorted({*SITUATIONS[situation][0], *others, chance.choice(["raw fetches", "polls"])}))


def rows_of(ops: Operations) -> list[Row]:
    """Return the rows that `operations` turns into these columns."""
    names = [name for name in ops.__dataclass_fields__ if not name.startswith("record_")]
    ends = [int(end) for end in ops.record_count.cumsum()]
    pairs = list(zip(ops.record_offset.tolist(), ops.record_value.tolist(), strict=True))
    return [
        {name: int(getattr(ops, name)[row]) for name in names}
        | {"records": pairs[ends[row] - int(ops.record_count[row]) : ends[row]]}
        for row in range(len(ops))
    ]


def as_recorded(chance: random.Random, rows: list[Row], promise: Promise) -> tuple[Operations, Promise]:
    """Return what a client could have recorded of these operations; whether elections were unclean may be unknown."""
    known = chance.random() < 0.8 or not promise.unclean_election
    for row in rows:
        if chance.random() < 0.1 and row["kind"] == Kind.READ:
            chance.choice((_late_returns, _set_isolation))(chance, [row])
    rows.sort(key=lambda row: (row["returned"], row["invoked"]))
    _make_consistent(rows)
    ops = operations(rows)
    return (_without_unknown_columns(ops) if chance.random() < 0.5 else ops), replace(promise, unclean_known=known)


def _without_unknown_columns(ops: Operations) -> Operations:
    """Leave out the columns without a known cell, as ingest does."""
    return replace(ops, **{name: NOTHING for name in OPTIONAL if (getattr(ops, name) == UNKNOWN).all()})


def _make_consistent(rows: list[Row]) -> None:
    """Change what no client can record, such as times that decrease, or two sends at one place of a producer."""
    _make_consistent_sequences(rows)
    _make_consistent_reads(rows)
    _make_consistent_times(rows)
    _make_consistent_transactions(rows)
    for row in rows:
        if row["kind"] in {Kind.SEND, Kind.FORMER, Kind.DELETE}:
            row["high_watermark"] = UNKNOWN
        if row["kind"] in {Kind.SEND, Kind.FORMER, Kind.DUMP}:
            row["log_start_offset"] = UNKNOWN
        if row["kind"] == Kind.DUMP:  # a dump has no offset of open transactions
            row.update(dict.fromkeys(("last_stable_offset", "leader_epoch"), UNKNOWN))


def _make_consistent_sequences(rows: list[Row]) -> None:
    places: set[tuple[str, int, int]] = set()
    for row in rows:
        mine = {(name, row.get(name, UNKNOWN), row.get("sequence", UNKNOWN)) for name in ("producer", "txn")}
        if mine & places:
            row["sequence"] = UNKNOWN
        places |= {place for place in mine if UNKNOWN not in place}


def _make_consistent_reads(rows: list[Row]) -> None:
    """Let only the first read of a run state how it began, and no read have a tombstone and a value at one offset."""
    readers: set[tuple[int, int]] = set()
    for row in rows:
        tombstones = {offset for offset, value in row.get("records", ()) if value == TOMBSTONE}
        kept = [(at, value) for at, value in row.get("records", ()) if value == TOMBSTONE or at not in tombstones]
        row["records"] = kept
        if row["kind"] == Kind.READ and kept:
            if (row["process"], row.get("run", 0)) in readers:
                row["began"] = UNKNOWN
            readers.add((row["process"], row.get("run", 0)))


def _make_consistent_times(rows: list[Row]) -> None:
    """Let times not decrease, and a send with a leader epoch have one, as ingest does."""
    if not any(row.get("at_ms", UNKNOWN) != UNKNOWN for row in rows):
        return
    for row in rows:
        if row["kind"] == Kind.SEND and row.get("leader_epoch", UNKNOWN) != UNKNOWN:
            row.setdefault("at_ms", 0)
            row["at_ms"] = max(0, row["at_ms"])
    known = [row for row in rows if row.get("at_ms", UNKNOWN) != UNKNOWN]
    for row, at_ms in zip(known, sorted(row["at_ms"] for row in known), strict=True):
        row["at_ms"] = at_ms


def _make_consistent_transactions(rows: list[Row]) -> None:
    for txn in {row.get("txn", UNKNOWN) for row in rows} - {UNKNOWN}:
        of_txn = [row for row in rows if row.get("txn", UNKNOWN) == txn]
        last = max((row["invoked"] for row in of_txn), default=0)
        for row in of_txn:
            row["ended"] = max(0, row["ended"])
            if 0 < row["ended"] <= last:  # no operation of a transaction begins after its end was requested
                row["ended"] = last + 1


def changed_promise(chance: random.Random, promise: Promise, limits_ms: Sequence[int]) -> Promise:
    """Return a promise that differs in some settings; its new times are among `limits_ms` (-1: none)."""
    return replace(
        promise,
        acks_all=chance.random() < 0.8,
        acks_known=chance.random() < 0.8,
        idempotence=chance.random() < 0.8,
        unclean_election=chance.random() < 0.2,
        compaction=promise.compaction if chance.random() < 0.9 else not promise.compaction,
        retention=promise.retention if chance.random() < 0.9 else not promise.retention,
        retention_ms=chance.choice([promise.retention_ms, *limits_ms]),
        transaction_timeout_ms=chance.choice(limits_ms),
        patience_ms=chance.choice(limits_ms),
        complete=chance.random() < 0.5,
    )


# --------------------------------------------------------------------------------------------------
# Changes: each takes the rows, and changes one of them in place


def _pick(chance: random.Random, rows: list[Row], wanted: Callable[[Row], Any]) -> Row:
    """Return one of the rows that are wanted, or a row that is in no history."""
    return chance.choice([row for row in rows if wanted(row)] or [{"records": [(0, 0)], "kind": Kind.DUMP}])


def _has_records(row: Row) -> bool:
    return bool(row.get("records"))


def _is_send(row: Row) -> bool:
    return bool(row["kind"] == Kind.SEND)


def _drop_records(chance: random.Random, rows: list[Row]) -> None:
    row = _pick(chance, rows, _has_records)
    begin = chance.randrange(len(row["records"]))
    del row["records"][begin : begin + chance.randint(1, 2)]


def _change_value(chance: random.Random, rows: list[Row]) -> None:
    """Return another value that was sent, or none that was sent."""
    row = _pick(chance, rows, _has_records)
    slot = chance.randrange(len(row["records"]))
    sent = [other["value"] for other in rows if other["kind"] in {Kind.SEND, Kind.FORMER}]
    rejected = [other["value"] for other in rows if _is_send(other) and other["status"] is Status.FAIL]
    value = chance.choice([*sent, *rejected, *rejected, TOMBSTONE, 90])
    row["records"][slot] = row["records"][slot][0], value


def _move_record(chance: random.Random, rows: list[Row]) -> None:
    row = _pick(chance, rows, _has_records)
    slot = chance.randrange(len(row["records"]))
    row["records"][slot] = chance.randrange(OFFSETS), row["records"][slot][1]


def _append_record(chance: random.Random, rows: list[Row]) -> None:
    """Return a record more at the end: of some send, one read before, or beyond the end of the read."""
    row = _pick(chance, rows, lambda row: row["kind"] == Kind.READ)
    known = [record for other in rows for record in other.get("records", ())]
    known += [(other["offset"], other["value"]) for other in rows if _is_send(other) and other.get("offset", -1) >= 0]
    last = row.get("records", [])[-1][0] if row.get("records") else row.get("position", 0)
    higher = [record for record in known if record[0] > last]
    sent = [other["value"] for other in rows if _is_send(other)] or [91]
    row.setdefault("records", []).append(chance.choice([*higher, (max(last, 0) + 1, chance.choice(sent))]))


def _shuffle(chance: random.Random, rows: list[Row]) -> None:
    chance.shuffle(_pick(chance, rows, _has_records)["records"])


def _move_ack(chance: random.Random, rows: list[Row]) -> None:
    row = _pick(chance, rows, lambda row: _is_send(row) and row["status"] is Status.OK)
    row["offset"] = chance.choice([UNKNOWN, chance.randrange(OFFSETS), chance.randrange(OFFSETS)])


def _set_end(chance: random.Random, rows: list[Row]) -> None:
    row = _pick(chance, rows, lambda row: row["kind"] in {Kind.READ, Kind.LIST_OFFSETS})
    row[chance.choice(["high_watermark", "last_stable_offset"])] = chance.randrange(-1, OFFSETS)


def _set_log_start(chance: random.Random, rows: list[Row]) -> None:
    row = _pick(chance, rows, lambda row: not _is_send(row) and row["status"] is Status.OK)
    row["log_start_offset"] = chance.randrange(-1, OFFSETS)


def _set_position(chance: random.Random, rows: list[Row]) -> None:
    row = _pick(chance, rows, lambda row: row["kind"] == Kind.READ)
    first = row["records"][0][0] if row.get("records") else OFFSETS
    row["position"] = chance.randint(-1, first)


def _set_epoch(chance: random.Random, rows: list[Row]) -> None:
    row = chance.choice(rows)
    row["leader_epoch"] = chance.randrange(-1, 3)
    row["node"] = chance.choice([row.get("node", UNKNOWN), 0, 1])


def _set_status(chance: random.Random, rows: list[Row]) -> None:
    row = chance.choice(rows)
    row["status"] = chance.choice(list(Status))
    if _is_send(row) and row["status"] is not Status.OK:
        row["offset"] = UNKNOWN


def _make_former(chance: random.Random, rows: list[Row]) -> None:
    row = _pick(chance, rows, _is_send)
    row["kind"] = Kind.FORMER


def _set_transaction(chance: random.Random, rows: list[Row]) -> None:
    row = _pick(chance, rows, lambda row: row["kind"] in {Kind.SEND, Kind.READ})
    row["txn"] = chance.randrange(-1, 3)
    of_txn = [other for other in rows if other.get("txn") == row["txn"] and other is not row]
    for name in ("fate", "ended"):
        row[name] = of_txn[0].get(name, UNKNOWN) if of_txn and row["txn"] >= 0 else UNKNOWN


def _set_fate(chance: random.Random, rows: list[Row]) -> None:
    txn = _pick(chance, rows, lambda row: row.get("txn", UNKNOWN) >= 0).get("txn", UNKNOWN)
    fate, ended = chance.choice([UNKNOWN, *Fate]), chance.choice([0, chance.randrange(40), int(NEVER)])
    for row in rows:
        if row.get("txn", UNKNOWN) == txn and txn >= 0:
            row |= {"fate": int(fate), "ended": ended}


def _remove_row(chance: random.Random, rows: list[Row]) -> None:
    if len(rows) > 1:
        rows.remove(chance.choice(rows))


def _late_returns(chance: random.Random, rows: list[Row]) -> None:
    """Let an operation return later, so that it overlaps with others."""
    row = chance.choice(rows)
    if row["returned"] < int(NEVER):
        row["returned"] += 1000 + row["invoked"]
        row["process"] = 1000 + row["invoked"]  # a process has at most one open operation


def _set_isolation(chance: random.Random, rows: list[Row]) -> None:
    _pick(chance, rows, lambda row: row["kind"] == Kind.READ)["isolation"] = int(chance.choice([UNKNOWN, *Isolation]))


def _set_quiet(chance: random.Random, rows: list[Row]) -> None:
    row = _pick(chance, rows, lambda row: not _is_send(row))
    row["quiet"] = 1 - row.get("quiet", 0)


def _set_deletion(chance: random.Random, rows: list[Row]) -> None:
    row = _pick(chance, rows, lambda row: row["kind"] == Kind.DELETE)
    row["offset"] = chance.randrange(-1, 4)
    row["log_start_offset"] = chance.choice([UNKNOWN, chance.randrange(4)])


def _add_deletion(chance: random.Random, rows: list[Row]) -> None:
    """Delete in another operation's place."""
    row = chance.choice(rows)
    for name in [name for name in row if name not in {"invoked", "returned", "process"}]:
        del row[name]
    status = chance.choice([Status.OK, Status.OK, Status.INFO, Status.FAIL])
    start = chance.choice([UNKNOWN, chance.randrange(4)]) if status is Status.OK else UNKNOWN
    row |= {"kind": Kind.DELETE, "status": status, "offset": chance.randrange(-1, 4), "log_start_offset": start}


def _set_producer(chance: random.Random, rows: list[Row]) -> None:
    row = _pick(chance, rows, _is_send)
    row |= {
        "producer": chance.choice(
            [UNKNOWN, producer_of(0, 0), producer_of(0, 1), producer_of(1, 0), producer_of(1, None)]
        ),
        "sequence": chance.randrange(-1, 4),
    }


def _wrap_sequences(chance: random.Random, rows: list[Row]) -> None:
    """Let the sequences of all sends wrap from the largest one to 0."""
    shift = SEQUENCES - chance.randint(0, 4)
    for row in rows:
        if _is_send(row) and row.get("sequence", UNKNOWN) >= 0:
            row["sequence"] = (row["sequence"] + shift) % SEQUENCES


def _set_gave_up(chance: random.Random, rows: list[Row]) -> None:
    _pick(chance, rows, _is_send)["gave_up"] = chance.choice([UNKNOWN, 1])


def _send_again(chance: random.Random, rows: list[Row]) -> None:
    """Let a send write the value of another one."""
    values = [row["value"] for row in rows if _is_send(row)]
    if values:
        _pick(chance, rows, _is_send)["value"] = chance.choice(values)


def _send_aborted_again(chance: random.Random, rows: list[Row]) -> None:
    """Let a later send write the value of one whose transaction was aborted."""
    aborted = [row for row in rows if _is_send(row) and row.get("txn", UNKNOWN) >= 0]
    if not aborted:
        return
    first = chance.choice(aborted)
    for row in rows:
        if row.get("txn", UNKNOWN) == first["txn"]:
            row["fate"] = int(Fate.ABORTED)
    later = [
        row for row in rows if _is_send(row) and row["invoked"] > first["invoked"] and row.get("txn") != first["txn"]
    ]
    if later:
        chance.choice(later)["value"] = first["value"]


def _set_group(chance: random.Random, rows: list[Row]) -> None:
    row = _pick(chance, rows, lambda row: row["kind"] == Kind.READ)
    row |= {"group": chance.randrange(-1, 2), "began": chance.choice([UNKNOWN, 1, 1, 2])}


def _set_run(chance: random.Random, rows: list[Row]) -> None:
    reads = [row for row in rows if row["kind"] == Kind.READ]
    process = {"process": reads[0]["process"]} if reads and _are_sequential(reads) else {}
    for row in reads:
        row.update({"run": 0, **process})


def _are_sequential(rows: list[Row]) -> bool:
    return all(before["returned"] < after["invoked"] for before, after in pairwise(rows))


def _set_time(chance: random.Random, rows: list[Row]) -> None:
    """State the times of all rows; records are of a random age."""
    for row in rows:
        if row["returned"] < int(NEVER):
            row |= {"at_ms": row["returned"], "calm_ms": chance.choice([0, row["returned"]])}
        if _is_send(row):
            row["timestamp_ms"] = max(0, row["invoked"] - chance.choice([0, 0, 20]))


def _skip_on_resuming(chance: random.Random, rows: list[Row]) -> None:
    """Let a member of a group that resumes skip records, which no member receives."""
    row = _pick(chance, rows, lambda row: row.get("began") == 1 and len(row.get("records", ())) > 1)
    skipped = {at for at, _ in row["records"][: chance.randint(1, max(1, len(row["records"]) - 1))]}
    for other in rows:
        if other is row or other.get("group", UNKNOWN) == row.get("group"):
            other["records"] = [record for record in other.get("records", ()) if record[0] not in skipped]


def _process_twice(chance: random.Random, rows: list[Row]) -> None:
    """Let two reads of a group be of transactions, which receive the same records."""
    reads = [row for row in rows if row["kind"] == Kind.READ and row.get("records")]
    if len(reads) < 2:
        return
    chosen = chance.sample(reads, 2)
    for txn, row in enumerate(chosen, 5):
        fate = chance.choice([Fate.COMMITTED, Fate.COMMITTED, Fate.ABORTED])
        row |= {"group": 0, "txn": txn, "fate": int(fate), "ended": int(NEVER)}
    if chance.random() < 0.5:
        chosen[0]["records"] = list(chosen[1]["records"])


def _read_as_before(chance: random.Random, rows: list[Row]) -> None:
    """Let a read return what an earlier one of its leader returned, such as records that were compacted away."""
    reads = [row for row in rows if row["kind"] == Kind.READ and row.get("records")]
    if len(reads) < 2:
        return
    before, between, again = reads[0], reads[len(reads) // 2], reads[-1]
    again["records"] = sorted(dict([*again["records"], *before["records"]]).items())
    if between is not before and between is not again and len(between["records"]) > 1:
        del between["records"][0]
    epoch = chance.choice([UNKNOWN, 0])
    for row in (before, between, again):
        row |= {"position": chance.choice([0, row.get("position", UNKNOWN)]), "leader_epoch": epoch, "node": UNKNOWN}


def _lower_end(chance: random.Random, rows: list[Row]) -> None:
    """Let a reply have a high watermark that is smaller than what it proves otherwise."""
    row = _pick(chance, rows, lambda row: row.get("high_watermark", UNKNOWN) > 0)
    row["high_watermark"] = max(0, row.get("high_watermark", 1) - 1)


def _lose_after_deletion(chance: random.Random, rows: list[Row]) -> None:
    """Let no read return a record that was sent after a deletion."""
    deletion = _pick(chance, rows, lambda row: row["kind"] == Kind.DELETE)
    deleted = deletion.get("returned", 0)
    later = [row for row in rows if _is_send(row) and row["invoked"] > deleted]
    _lose(rows, min((row["offset"] for row in later if row.get("offset", UNKNOWN) >= 0), default=UNKNOWN), deleted)


def _lose_latest(chance: random.Random, rows: list[Row]) -> None:
    """Let later reads not return a record, if possible the last of its key, that one read returned."""
    read = _pick(chance, rows, lambda row: row["kind"] == Kind.READ and row.get("records"))
    keys = {row["value"]: row.get("key", UNKNOWN) for row in rows if _is_send(row)}
    last = {keys.get(value, UNKNOWN): offset for offset, value in sorted(read["records"])}
    _lose(rows, chance.choice(sorted(last.values())), read.get("returned", 0))


def _lose(rows: list[Row], offset: int, since: int) -> None:
    """Remove an offset from the reads that began after a moment."""
    for row in rows:
        if row["kind"] == Kind.READ and row["invoked"] > since:
            row["records"] = [record for record in row.get("records", ()) if record[0] != offset]


def _return_deleted(chance: random.Random, rows: list[Row]) -> None:
    """Let a read return records below a log start that was reported before it, or to which a client deleted."""
    proof = _pick(chance, rows, lambda row: max(row.get("log_start_offset", 0), row.get("offset", 0)) > 0)
    start = max(proof.get("log_start_offset", 0), proof.get("offset", 0))
    known = {record for row in rows for record in row.get("records", ()) if record[0] < start}
    known |= {(row["offset"], row["value"]) for row in rows if _is_send(row) and 0 <= row.get("offset", -1) < start}
    later = [row for row in rows if row["kind"] == Kind.READ and row["invoked"] > proof.get("returned", 0)]
    if not known or not later:
        return
    read, record = chance.choice(later), chance.choice(sorted(known))
    read["records"] = [record, *(kept for kept in read.get("records", ()) if kept[0] > record[0])]
    read["status"] = Status.OK
    if "position" in read:
        read["position"] = min(read["position"], record[0] + chance.choice([0, 0, 1]))
    if chance.random() < 0.5:
        read["leader_epoch"] = proof["leader_epoch"] = chance.choice([0, proof.get("leader_epoch", UNKNOWN)])


def _change_dump(chance: random.Random, rows: list[Row]) -> None:
    """Let a replica have another value than a client knows, or lack it."""
    dump = _pick(chance, rows, lambda row: row["kind"] == Kind.DUMP)
    known = {record for row in rows if row["kind"] == Kind.READ for record in row.get("records", ())}
    known |= {(row["offset"], row["value"]) for row in rows if _is_send(row) and row.get("offset", -1) >= 0}
    if known:
        offset, _ = chance.choice(sorted(known))
        others = [record for record in dump["records"] if record[0] != offset]
        other_value = (offset, chance.choice(sorted(value for _, value in known)))
        dump["records"] = sorted([*others, other_value] if chance.random() < 0.5 else others)
        dump["high_watermark"] = max(dump.get("high_watermark", 0), offset + chance.choice([0, 1, 1]))


def _exchange_sends(chance: random.Random, rows: list[Row]) -> None:
    """Exchange the places of two sends of one producer."""
    one = _pick(chance, rows, lambda row: _is_send(row) and row.get("producer", UNKNOWN) != UNKNOWN)
    other = _pick(
        chance, rows, lambda row: _is_send(row) and row is not one and row.get("producer") == one.get("producer")
    )
    if "value" not in one or "value" not in other:
        return
    exchanged = {one["value"]: other["value"], other["value"]: one["value"]}
    for row in rows:
        row["records"] = [(at, exchanged.get(value, value)) for at, value in row.get("records", ())]
    if UNKNOWN not in {one.get("offset", UNKNOWN), other.get("offset", UNKNOWN)}:
        one["offset"], other["offset"] = other["offset"], one["offset"]


SITUATIONS: Final = {
    "everything deleted": (("delete all", "final phase"), ("send", "delete", "send", "send", "fetch poll", "fetch")),
    "latest record": (
        ("compaction", "final phase"),
        ("send", "send", "fetch poll", "send clean", "send clean", "fetch poll", "fetch"),
    ),
    "below the log start": (
        ("deletions", "log starts", "leader epochs", "elections", "forgotten log starts"),
        ("send", "send", "fetch poll", "delete", "fetch", "elect elect send", "fetch", "fetch poll"),
    ),
    "dump": (("dumps",), ("send", "send", "fetch poll", "dump")),
    "order": (
        ("producers", "pipelining", "unknown outcomes", "final phase"),
        ("send", "send", "send", "fetch poll"),
    ),
}
"""The features that a history needs for each of the situations of `situations.py`, and what happens in this order."""
CHANGES_OF_SITUATIONS: Final = {
    "everything deleted": _lose_after_deletion,
    "latest record": _lose_latest,
    "below the log start": _return_deleted,
    "dump": _change_dump,
    "order": _exchange_sends,
}
CHANGES: Final[tuple[Callable[[random.Random, list[Row]], None], ...]] = (
    _drop_records, _drop_records, _change_value, _change_value, _move_record, _append_record, _append_record, _shuffle,
    _move_ack, _set_end, _set_end, _set_log_start, _set_position, _set_epoch, _set_status, _make_former,
    _set_transaction, _set_fate, _remove_row, _late_returns, _set_isolation, _set_quiet, _set_deletion, _add_deletion,
    _skip_on_resuming, _skip_on_resuming, _process_twice, _read_as_before, _lower_end, _set_producer, _set_gave_up,
    _wrap_sequences, _send_again, _send_aborted_again, _set_group, _set_run, _set_time,
)  # fmt: skip
CHANGES_OF_FEATURES: Final = {
    "compaction": _read_as_before,
    "groups": _skip_on_resuming,
    "transactions": _process_twice,
    "gave up": _send_again,
    "deletions": _drop_records,
}
"""Changes that are rarely drawn together with the feature that makes them an anomaly."""

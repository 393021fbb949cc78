"""All histories of at most three operations over a small domain: two offsets, two values, few variants.

Each theme has an alphabet of operations. A history is a sequence of them, in one of several orders in time: one after
the other in one process or in several, or two or all of them at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
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
)
from highwater.reports.rules.findings import Promise
from highwater.reports.tests.random_ops import operations

Row = dict[str, Any]
A, B = 10, 11  # two values
NO_END: Final = int(NEVER)
END: Final = 4  # between the first and the second operation, if the transaction has ended by then
STEP_MS: Final = 40
ORDERS: Final[tuple[tuple[tuple[tuple[int, int], ...], bool], ...]] = (
    (((0, 1), (2, 3), (4, 5)), True),
    (((0, 1), (2, 3), (4, 5)), False),
    (((0, 3), (1, 4), (2, 5)), False),
    (((0, 1), (2, 4), (3, 5)), False),
)
"""(invoked, returned) of the operations, and whether they are of one process."""


@dataclass(frozen=True, slots=True)
class Theme:
    """Operations that belong together, and the settings of the history."""

    alphabet: tuple[Row, ...]
    promise: Promise = field(default_factory=Promise)


def send(value: int, offset: int = UNKNOWN, **cells: Any) -> Row:
    return {"kind": Kind.SEND, "status": Status.OK, "value": value, "offset": offset, **cells}


def read(*records: tuple[int, int], **cells: Any) -> Row:
    return {"kind": Kind.READ, "status": Status.OK, "records": list(records), **cells}


def ends(high_watermark: int = UNKNOWN, **cells: Any) -> Row:
    return {"kind": Kind.LIST_OFFSETS, "status": Status.OK, "high_watermark": high_watermark, **cells}


def delete(offset: int, **cells: Any) -> Row:
    return {"kind": Kind.DELETE, "status": Status.OK, "offset": offset, **cells}


BOTH: Final = ((0, A), (1, B))
INFO: Final = {"status": Status.INFO}
FAIL: Final = {"status": Status.FAIL}
QUIET: Final = {"quiet": 1}
RC: Final = {"isolation": int(Isolation.READ_COMMITTED)}
RU: Final = {"isolation": int(Isolation.READ_UNCOMMITTED)}


def _log_start() -> Theme:
    starts = [read((1, B), position=0, log_start_offset=1), ends(log_start_offset=1), ends(2, **QUIET)]
    reads = [read((0, A)), read((1, B), position=0), read((1, B)), read(*BOTH), read(position=1, **QUIET)]
    deletions = [delete(1), delete(UNKNOWN), delete(UNKNOWN, log_start_offset=1), delete(2, **INFO), delete(1, **FAIL)]
    return Theme((send(A, 0), send(B, 1), *starts, *reads, *deletions, ends(0, **QUIET)))


def _values() -> Theme:
    sends = [send(A, 0), send(A, 1), send(A), send(A, **INFO), send(A, **FAIL), send(B, 1), send(B, 0)]
    again = [send(A, 0, gave_up=1), send(A, 1, gave_up=1, producer=0), send(B, 1, producer=0), send(A, 1, producer=1)]
    reads = [read((0, A)), read((1, A)), read((0, B), **INFO), read((1, A), (0, A)), read((0, A), (1, A))]
    return Theme((*sends, *again, *reads))


def _tombstones(*, idempotence: bool) -> Theme:
    sends = [send(TOMBSTONE, 0), send(TOMBSTONE), send(TOMBSTONE, **INFO), send(TOMBSTONE, **FAIL)]
    sends += [send(TOMBSTONE, 1, gave_up=1), send(A, 0), send(A, 1)]
    reads = [
        read((0, TOMBSTONE)),
        read((0, TOMBSTONE), (1, TOMBSTONE)),
        read((1, TOMBSTONE), **INFO),
        read((1, A), position=0),
    ]
    return Theme((*sends, *reads, ends(0, **QUIET)), Promise(idempotence=idempotence))


def _transactions(fate: int, ended: int) -> Theme:
    """Return operations of a transaction that ends in this way, and of others."""
    txn = {"txn": 0, "fate": fate, "ended": ended}
    sends = [send(A, 0, **txn), send(A, **INFO, **txn), send(A, **FAIL, **txn), send(B, 1), send(B, 1, **txn)]
    reads = [read((0, A), **level) for level in ({}, RC, RU)] + [
        read((1, B), position=0, **level) for level in (RC, RU)
    ]
    reads += [read((0, A), **RC, **txn), read(*BOTH, **RC), read((1, B), **RC)]
    return Theme((*sends, *reads, ends(last_stable_offset=0), ends(last_stable_offset=1), ends(2, **QUIET)))


def _ends() -> Theme:
    epochs = [ends(high, leader_epoch=epoch) for high in (0, 1) for epoch in (UNKNOWN, 0, 1)]
    acks = [send(A, 0, leader_epoch=0), send(A, 0), send(B, 1, leader_epoch=1)]
    reads = [read((0, A), high_watermark=0), read((0, A), high_watermark=1, last_stable_offset=0, **RC)]
    reads += [read(high_watermark=0, last_stable_offset=1, position=0), read(high_watermark=0, node=1, position=0)]
    return Theme((*epochs, *acks, *reads, ends(last_stable_offset=0, leader_epoch=0)))


def _order() -> Theme:
    sends = [send(value, offset, sequence=place) for value, place in ((A, 0), (B, 1)) for offset in (0, 1, UNKNOWN)]
    sends += [row | {"producer": 0} for row in sends] + [send(A, **INFO), send(B, **INFO)]
    return Theme((*sends, read(*BOTH), read((0, B), (1, A)), ends(2), ends(1)))


def _polls() -> Theme:
    reads = [read(*records) for records in (BOTH, BOTH[:1], BOTH[1:], BOTH[::-1])]
    named = [row | {"position": row["records"][0][0] and 0} for row in reads[:3]]
    other = [row | {"run": 1} for row in reads[:2]] + [row | INFO for row in reads[:2]]
    aborted = [row | {"txn": 0, "fate": int(Fate.ABORTED), "ended": 0} for row in reads[:3]]
    return Theme(
        (*reads, *named, *other, *aborted, read(position=0, high_watermark=0, **QUIET), send(A, 0), send(B, 1))
    )


def _groups(*, compaction: bool) -> Theme:
    group = {"group": 0}
    reads = [read((0, A), **group), read((1, B), **group), read((0, A)), read(*BOTH)]
    resumed = [read((2, 12), began=1, **group), read((1, B), began=1, **group), read((2, 12), began=1, **INFO, **group)]
    committed = [read((0, A), txn=txn, fate=int(Fate.COMMITTED), ended=0, **group) for txn in (0, 1)]
    rows = (*reads, *resumed, *committed, send(B, 1), send(A, 0), delete(1), delete(UNKNOWN), ends(log_start_offset=2))
    return Theme(rows, Promise(compaction=compaction))


def _compaction() -> Theme:
    key, epoch = {"key": 0}, {"leader_epoch": 0}
    sends = [send(A, 0, **key), send(B, 1, **key), send(TOMBSTONE, 1, **key), send(B, **key, **INFO), send(B, 1, key=1)]
    reads = [read((0, A), **epoch), read((1, B), position=0, **epoch), read(*BOTH, position=0, **epoch)]
    reads += [read((1, TOMBSTONE), position=0, **epoch), read((0, A)), read((2, 12), position=0, **epoch)]
    reads += [read((0, A), (2, 12), position=0, **epoch), read((1, B), position=0, leader_epoch=1)]
    return Theme((*sends, *reads, ends(0, **QUIET)), Promise(compaction=True))


def _times() -> Theme:
    sends = [
        send(A, 0, timestamp_ms=0, at_ms=0, leader_epoch=0),
        send(A, 0, timestamp_ms=40),
        send(B, 1, leader_epoch=0),
    ]
    starts = [ends(log_start_offset=start, at_ms=0) for start in (1, 2)]
    late = {"at_ms": 0, "calm_ms": 20, "leader_epoch": 0}
    open_at = [ends(high, last_stable_offset=0, at_ms=0, calm_ms=0) for high in (0, 1)]
    open_at += [ends(high, last_stable_offset=0, **late) for high in (1, 2)]
    open_at += [ends(2, last_stable_offset=0, open_ms=20, **late)]
    rows = (*sends, *starts, *open_at, ends(0, **QUIET, **late), ends(1, **QUIET, **late), delete(1), delete(UNKNOWN))
    return Theme(rows, Promise(retention=True, retention_ms=30, transaction_timeout_ms=10, patience_ms=10))


def _dumps() -> Theme:
    held = [
        {"kind": Kind.DUMP, "status": Status.OK, "records": list(records), "position": position, "high_watermark": high}
        for records in (BOTH, BOTH[:1], ((0, B), (1, A)), BOTH[1:])
        for position, high in ((0, 2), (1, 2))
    ]
    nodes = [row | {"node": node} for row in held for node in (0, 1)]
    return Theme(tuple(nodes))


def _deletions_of_everything() -> Theme:
    sends = [send(A, 0), delete(UNKNOWN), delete(UNKNOWN, **INFO), send(B, 1), send(12, 2)]
    reads = [read((2, 12), position=0), read((1, B), position=0), read(*BOTH, position=0), ends(1, **QUIET)]
    return Theme((*sends, *reads, delete(UNKNOWN, log_start_offset=1), read(*BOTH, (2, 12)), ends(0, **QUIET)))


def _below_log_start() -> Theme:
    """Return log starts of several leader epochs, and replies with records below them, above or below a position."""
    old, new = {"leader_epoch": 0}, {"leader_epoch": 1}
    starts = [send(A, 0, **old), ends(log_start_offset=1), ends(log_start_offset=1, **old), delete(1)]
    starts += [
        read((1, B), position=1, log_start_offset=1, **old),
        delete(UNKNOWN),
        delete(UNKNOWN, log_start_offset=1),
    ]
    reads = [read((0, A), position=0, **epoch) for epoch in ({}, old, new)] + [read((0, A)), read((0, A), **INFO)]
    reads += [read(*BOTH, position=1, **old), read((0, A), position=0, node=1), read(*BOTH, high_watermark=2)]
    return Theme((*starts, *reads, ends(log_start_offset=1, **new)))


def _keys() -> Theme:
    key, other, txn = {"key": 0}, {"key": 1}, {"txn": 0, "fate": int(Fate.ABORTED), "ended": 0}
    sends = [send(A, 0, **key), send(A, **key, **INFO), read((0, A), position=0), send(B, 1, **other)]
    sends += [send(B, 1, **key), send(B, **key), send(B, **key, **INFO), send(TOMBSTONE, 1, **key)]
    reads = [read(*BOTH, position=0), read((1, B), position=0), read((2, 12), position=0), ends(0, **QUIET)]
    return Theme((*sends, send(B, 1, **key, **txn), *reads, read((0, A), (1, A))), Promise(compaction=True))


def _dumps_and_clients() -> Theme:
    cells = {"kind": Kind.DUMP, "status": Status.OK, "node": 0}
    held = [(BOTH, 0, 2), (BOTH[:1], 0, 2), (BOTH[:1], 0, 1), (BOTH[1:], UNKNOWN, 2), ((), 0, 2), ((), UNKNOWN, 2)]
    dumps = [cells | {"records": list(records), "position": at, "high_watermark": high} for records, at, high in held]
    dumps += [dumps[0] | {"node": 1}, dumps[1] | {"position": 1}]
    known = [send(A, 0), send(B, 1), send(A, 1), send(B, **INFO), read((0, A)), read((1, A), position=0)]
    return Theme((*dumps, *known, read((1, B), **INFO), read((0, TOMBSTONE), (1, B))))


def _order_of_unknown() -> Theme:
    """Return sends of one producer, acknowledged or not, and reads that show their places."""
    rows = [send(A, 0, sequence=0), send(B, 0, sequence=1), send(B, 1, sequence=1), send(12, 0, sequence=2)]
    rows += [send(value, sequence=place, **INFO) for value, place in ((A, 0), (B, 1), (12, 2))] + [send(13, 3)]
    rows = [row | {"producer": 0} for row in rows]
    reads = [read((0, B), (1, A)), read((0, 12), (1, B), (2, A)), read(*BOTH), read((2, A), **INFO)]
    return Theme((*rows, *reads, send(13, 3, producer=1), read((0, A), (2, A))))


THEMES: Final = {
    "log start": _log_start(),
    "values": _values(),
    "tombstones": _tombstones(idempotence=True),
    "tombstones without idempotence": _tombstones(idempotence=False),
    "committed": _transactions(int(Fate.COMMITTED), END),
    "aborted": _transactions(int(Fate.ABORTED), END),
    "open": _transactions(UNKNOWN, NO_END),
    "unknown": _transactions(UNKNOWN, 0),
    "ends": _ends(),
    "order": _order(),
    "polls": _polls(),
    "groups": _groups(compaction=False),
    "compacted groups": _groups(compaction=True),
    "compaction": _compaction(),
    "times": _times(),
    "dumps": _dumps(),
    "deletions of everything": _deletions_of_everything(),
    "below log start": _below_log_start(),
    "keys": _keys(),
    "dumps and clients": _dumps_and_clients(),
    "order of unknown": _order_of_unknown(),
    "former": Theme((
        *({**send(value, offset), "kind": Kind.FORMER} for value in (A, B) for offset in (0, 1)),
        send(A, 0), send(B, 1), send(A, **INFO), read((0, A)), read((1, B)), read((0, A), **INFO), read((0, B)),
    )),
}  # fmt: skip


@cache
def number_of_histories(theme: str) -> int:
    count = len(THEMES[theme].alphabet)
    return count + 3 * count**2 + len(ORDERS) * count**3


def histories(theme: str, part: int = 0, parts: int = 1) -> Iterator[tuple[Operations, Promise]]:
    """Return the histories of a theme whose number, modulo `parts`, is `part`."""
    chosen = THEMES[theme]
    for number, rows in enumerate(_rows(chosen.alphabet)):
        if number % parts == part:
            ops = operations(rows)
            known = {name: NOTHING for name in OPTIONAL if (getattr(ops, name) == UNKNOWN).all()}
            yield replace(ops, **known), chosen.promise


def _rows(alphabet: tuple[Row, ...]) -> Iterator[list[Row]]:
    for count in (1, 2, 3):
        orders = {1: ORDERS[:1], 2: ORDERS[:3], 3: ORDERS}[count]
        for chosen in product(alphabet, repeat=count):
            for times, one_process in orders:
                yield _history(chosen, times, one_process=one_process)


def _history(chosen: tuple[Row, ...], times: tuple[tuple[int, int], ...], *, one_process: bool) -> list[Row]:
    """Return operations at these times; the times in ms and the end of the transaction follow from them."""
    rows: list[Row] = []
    for place, row in enumerate(chosen):
        times_of_row = {"invoked": 2 * times[place][0], "returned": 2 * times[place][1] + 1}
        rows.append(row | times_of_row | {"process": 0 if one_process else place})
        if "began" in row:  # the first read of a run
            rows[-1]["run"] = 1 + place
        if "at_ms" in row:
            rows[-1]["at_ms"] = STEP_MS * place
        if any(_place_in_order(row) == _place_in_order(other) for other in rows[:-1]):
            rows[-1]["sequence"] = UNKNOWN
    last = max((row["invoked"] for row in rows if "txn" in row), default=0)
    for row in rows:
        if row.get("ended") == END:  # the end is requested when all operations of the transaction have begun
            row["ended"] = max(END, last + 1)
    return rows


def _place_in_order(row: Row) -> tuple[int, int]:
    return row.get("producer", UNKNOWN), row.get("sequence", UNKNOWN)

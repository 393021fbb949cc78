"""Generates small random histories of a partition: the correct operations on a log, then some changed cells."""

import random
from typing import Any

import numpy as np

from highwater.reports.columns import NEVER, OPTIONAL, ROW_COLUMNS, TOMBSTONE, UNKNOWN, Fate, Kind, Operations, Status
from highwater.reports.rules.findings import Promise

TXNS = 3


def random_operations(chance: random.Random) -> tuple[Operations, Promise]:
    """Return at most nine operations on at most six offsets; about a third of the histories are unchanged."""
    count = chance.randint(2, 9)
    log = _log(chance)
    fates = [chance.choice([Fate.COMMITTED, Fate.ABORTED, UNKNOWN]) for _ in range(TXNS)]
    ended = [chance.choice([0, chance.randrange(3 * count), int(NEVER)]) for _ in range(TXNS)]
    moments = sorted(chance.sample(range(3 * count), count))
    busy: dict[int, int] = {}
    writing, slowest, without_offsets = chance.choice([0.2, 0.5]), chance.choice([1, 6]), chance.random() < 0.5
    rows = []
    for moment in moments:
        process = next(p for p in range(20) if busy.get(p, -1) < moment)
        row = _send(chance, log) if chance.random() < writing else _other(chance, log)
        returned = moment + chance.randint(1, slowest)
        busy[process] = returned
        never = row["status"] == Status.INFO and chance.random() < 0.5
        if without_offsets:  # without fields of the broker, as the poll of a client
            row |= dict.fromkeys(("high_watermark", "last_stable_offset", "log_start_offset"), UNKNOWN)
        row |= {"invoked": 2 * moment, "returned": int(NEVER) if never else 2 * returned + 1, "process": process}
        rows.append(row)
    for _ in range(chance.choice([0, 1, 1, 2, 3])):
        _change(chance, chance.choice(rows))
    for row in rows:
        txn = row.get("txn", UNKNOWN)
        row |= {"fate": fates[txn] if txn >= 0 else UNKNOWN, "ended": ended[txn] if txn >= 0 else UNKNOWN}
    promise = Promise(
        acks_all=chance.random() < 0.8,
        acks_known=chance.random() < 0.8,
        unclean_election=chance.random() < 0.2,
        retention=chance.random() < 0.2,
        compaction=chance.random() < 0.3,
        retention_ms=chance.choice([-1, 10]),
        transaction_timeout_ms=chance.choice([-1, 1]),
        patience_ms=chance.choice([-1, 2]),
        complete=chance.random() < 0.5,
    )
    return operations(rows), promise


def _log(chance: random.Random) -> list[dict[str, int]]:
    """Return the record at each offset."""
    return [
        {
            "value": TOMBSTONE if chance.random() < 0.1 else 10 + offset,
            "txn": chance.choice([UNKNOWN, UNKNOWN, *range(TXNS)]),
            "key": chance.choice([UNKNOWN, 0, 1]),
        }
        for offset in range(chance.randint(1, 6))
    ]


def _send(chance: random.Random, log: list[dict[str, int]]) -> dict[str, Any]:
    offset = chance.randrange(len(log))
    status = chance.choice([Status.OK] * 6 + [Status.INFO, Status.FAIL])
    return {
        **log[offset],
        "kind": Kind.SEND,
        "status": status,
        "offset": offset if status == Status.OK else UNKNOWN,
        "leader_epoch": chance.choice([UNKNOWN, 0, 0, 1]),
        "producer": chance.choice([UNKNOWN, 0, 1]),
        "sequence": offset,
        "timestamp_ms": chance.choice([UNKNOWN, 0, 5, 15]),
        "at_ms": chance.randrange(30),
    }


def _other(chance: random.Random, log: list[dict[str, int]]) -> dict[str, Any]:
    kind = chance.choice([Kind.READ] * 8 + [Kind.LIST_OFFSETS, Kind.LIST_OFFSETS, Kind.DUMP, Kind.DUMP, Kind.DELETE])
    end = chance.randint(0, len(log))
    row: dict[str, Any] = {
        "kind": kind,
        "status": chance.choice([Status.OK] * 8 + [Status.INFO, Status.FAIL]),
        "leader_epoch": chance.choice([UNKNOWN, 0, 0, 1]),
        "at_ms": chance.randrange(30),
        "calm_ms": chance.randrange(30),
        "open_ms": chance.choice([UNKNOWN, 0, 2]),
        "quiet": int(chance.random() < 0.2),
        "log_start_offset": chance.choice([UNKNOWN, UNKNOWN, 0, 1]),
        "node": chance.choice([UNKNOWN, UNKNOWN, 0, 1]),
    }
    if kind is Kind.DELETE:
        return row | {"offset": chance.randrange(3), "log_start_offset": UNKNOWN}
    if kind is Kind.LIST_OFFSETS or chance.random() < 0.6:
        row["high_watermark"] = end
    if chance.random() < 0.4:
        row["last_stable_offset"] = chance.choice([0, chance.randint(0, end)])
    if kind is Kind.LIST_OFFSETS:
        return row
    begin = chance.randint(0, end)
    if kind is Kind.READ and chance.random() < 0.3:  # a member resumes at some offset
        begin = min(end, chance.choice([0, 3]))
        row |= {"group": 0, "began": 1, "run": chance.randrange(3)}
        row["records"] = [(offset, log[offset]["value"]) for offset in range(begin, min(end, begin + 2))]
        return row
    row["position"] = begin if chance.random() < (0.8 if kind is Kind.DUMP else 0.5) else UNKNOWN
    row["isolation"] = chance.choice([UNKNOWN, 1, 1, 2, 2])
    row["records"] = [(offset, log[offset]["value"]) for offset in range(begin, end) if chance.random() < 0.9]
    if kind is Kind.READ:
        if row["position"] != UNKNOWN and chance.random() < 0.1:
            row["position"] += 1  # a raw fetch that returns a whole batch
        row |= {
            "run": chance.choice([0, 0, 0, 1]),
            "group": chance.choice([UNKNOWN, 0, 0, 1]),
            "began": chance.choice([UNKNOWN, 1, 1, 1, 2]),
            "txn": chance.choice([UNKNOWN, UNKNOWN, *range(TXNS)]),
        }
    return row


def _change(chance: random.Random, row: dict[str, Any]) -> None:
    records = row.get("records")
    if records:
        slot = chance.randrange(len(records))
        offset, value = records[slot]
        change = chance.randrange(4)
        if change == 0:
            del records[slot]
        elif change == 1:
            records[slot] = (offset, 10 + chance.randrange(8))
        elif change == 2:
            records[slot] = (chance.randrange(8), value)
        else:
            chance.shuffle(records)
    elif row["kind"] is Kind.SEND and row["status"] is Status.OK:
        row["offset"] = chance.randrange(8)
    elif "high_watermark" in row:
        row["high_watermark"] = chance.randrange(8)
    if chance.random() < 0.1:
        if row["kind"] is Kind.SEND:
            row["kind"] = Kind.FORMER
        else:
            row["quiet"] = 1


def operations(rows: list[dict[str, Any]]) -> Operations:
    """Return the columns of the rows; a missing cell is unknown."""
    columns = {
        name: np.array([row.get(name, 0 if name in {"run", "quiet"} else UNKNOWN) for row in rows], np.int64)
        for name in ROW_COLUMNS
    }
    records = [row.get("records", []) for row in rows]
    columns["record_count"] = np.array([len(row_records) for row_records in records], np.int64)
    flat = [record for row_records in records for record in row_records]
    columns["record_offset"] = np.array([offset for offset, _ in flat], np.int64)
    columns["record_value"] = np.array([value for _, value in flat], np.int64)
    assert set(OPTIONAL) <= set(columns)
    return Operations(**columns)

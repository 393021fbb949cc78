"""Convert micro-operations of Jepsen's Kafka workload (`jepsen.tests.kafka`, Maelstrom) to events.

Each send gets its own process, because one operation may send many records; all polls of an operation become one.
An operation `:txn`, or one of several sends (which that workload makes in transactions only), is also a
transaction; its commit counts as requested from the invocation on.

The offset of a send counts as an acknowledgement even when the operation failed or its outcome is unknown.
A key that is a non-negative integer is a partition of topic `key`; any other key is a topic of its own.
"""

from typing import Any, Final

from highwater.reports.importers.edn import MAP
from highwater.reports.importers.emitter import Emitter
from highwater.reports.importers.jepsen_shape import MAX_OFFSET
from highwater.reports.importers.quarantine import Quarantine

Op = dict[str, Any]
PartitionName = tuple[str, int, str]  # topic, partition, "topic-partition"
MICRO: Final = {":send", ":poll", ":txn"}
PLACES: Final = {":assign", ":subscribe"}


class Opened:
    """The sends, polls and transaction of an open operation."""

    __slots__ = ("f", "polls", "sends", "txn")

    def __init__(
        self, f: str, sends: list[tuple[int | str, PartitionName, Any]], txn: str | None, *, polls: int
    ) -> None:
        self.f, self.sends, self.txn, self.polls = f, sends, txn, polls


class Log:
    """Converts operations of the workload to events."""

    def __init__(self, emit: Emitter, quarantine: Quarantine) -> None:
        self._emit, self._quarantine = emit, quarantine
        self._opened: dict[int, Opened] = {}
        self._subscribed: set[int] = set()
        self._places: dict[int, PartitionName] = {}
        self._transactions = 0

    def take(self, op: Op) -> None:
        f = op[":f"]
        if f in MICRO:
            self._invoke(op) if op[":type"] == ":invoke" else self._complete(op)
        elif op[":type"] == ":invoke":
            return
        elif f in PLACES:
            self._assignment(op)
        elif f == ":crash":
            self._emit(op[":process"], "info", "crash")

    def _where(self, key: Any) -> PartitionName:
        if type(key) is int and 0 <= key < 1 << 29:
            place = self._places.get(key)
            if place is None:
                place = self._places[key] = ("key", key, f"key-{key}")
            return place
        name = f"key:{key}"
        return name, 0, f"{name}-0"

    # -- invocations -------------------------------------------------------------------------------

    def _invoke(self, op: Op) -> None:
        process, emit = op[":process"], self._emit
        mops: Any = op.get(":value")
        if not _are_micro_operations(mops):
            self._quarantine.add(f"micro-operations expected, not {str(mops)[:60]}")
            return
        txn = None
        alone = len(mops) == 1
        if op[":f"] == ":txn" or (not alone and sum(mop[0] == ":send" for mop in mops) > 1):
            self._transactions += 1
            txn = f"txn {self._transactions}"
            emit(f"{process} txn", "info", "begin_txn", txn=txn)
        sends = [
            (process if alone else f"{process} send {number}", self._where(mop[1]), mop[2])
            for number, mop in enumerate(mops)
            if mop[0] == ":send"
        ]
        for number, (lane, (topic, partition, _), value) in enumerate(sends):
            place = number if txn else None
            emit(lane, "invoke", "send", topic=topic, partition=partition, value=value, txn=txn, sequence=place)
        polls = len(mops) - len(sends)
        if polls:
            emit(process, "invoke", "poll", txn=txn)
        if txn:
            emit(f"{process} end", "invoke", "end_txn", txn=txn, value="commit")
        self._opened[process] = Opened(op[":f"], sends, txn, polls=polls)

    # -- completions -------------------------------------------------------------------------------

    def _complete(self, op: Op) -> None:
        process, kind = op[":process"], op[":type"][1:]
        opened = self._opened.pop(process, None)
        if opened is None or opened.f != op[":f"]:
            self._quarantine.add(f"process {process} completes {op[':f']} that it has not invoked, or completed before")
            return
        mops: Any = op.get(":value")
        if not _are_micro_operations(mops) or len(mops) != len(opened.sends) + opened.polls:
            if kind == "ok":
                self._quarantine.add(f"the micro-operations that were invoked expected, not {str(mops)[:60]}")
                return
            mops = []
        error = None if op.get(":error") is None else str(op[":error"])
        self._sent(opened, [mop for mop in mops if mop[0] == ":send"], kind, error)
        if opened.polls:
            self._polled(op, [mop for mop in mops if mop[0] == ":poll"], opened, kind)
        if opened.txn:
            self._emit(f"{process} end", kind, "end_txn", txn=opened.txn, error=error)

    def _sent(self, opened: Opened, mops: list[Any], kind: str, error: str | None) -> None:
        """Complete the sends; a send with a known offset is in the log, whatever the transaction's outcome."""
        for number, (lane, (topic, partition, _), value) in enumerate(opened.sends):
            offset = self._offset(mops[number][2], value) if number < len(mops) else None
            outcome = kind
            if offset is not None and kind != "ok":
                outcome = "info" if kind == "fail" and not opened.txn else "ok"
            elif opened.txn and kind == "fail":
                outcome = "info"
            known_offset = -1 if offset is None and outcome == "ok" else offset
            self._emit(
                lane,
                outcome,
                "send",
                topic=topic,
                partition=partition,
                offset=known_offset,
                txn=opened.txn,
                error=error,
            )

    def _offset(self, reported: Any, value: Any) -> int | None:
        if not isinstance(reported, list) or len(reported) != 2 or reported == value or reported[0] is None:
            return None
        if type(reported[0]) is int and 0 <= reported[0] <= MAX_OFFSET:
            return reported[0]
        self._quarantine.add(f"{reported[0]!r} is no offset")
        return None

    # -- polls -------------------------------------------------------------------------------------

    def _polled(self, op: Op, mops: list[Any], opened: Opened, kind: str) -> None:
        """Complete the polls; while partitions are reassigned, the order of returned records is ignored."""
        process = op[":process"]
        found: dict[str, list[Any]] = {}
        for mop in mops:
            if len(mop) > 1 and not self._collect(mop[1], found):
                self._quarantine.add(f"a poll of {{key [[offset value] ...]}} expected, not {str(mop[1])[:60]}")
                kind, found = "info", {}
                break
        log = op.get(":rebalance-log")
        moved = {self._where(key)[2] for key in _rebalanced(log)} if log else set()
        free = process in self._subscribed and log is None
        if free and opened.polls > 1:
            moved = set(found)
        if moved or free:
            self._emit(process, "info", "revoke", value=sorted(moved or found))
        steady = {key: pairs for key, pairs in found.items() if key not in moved} if moved else found
        self._emit(process, kind, "poll", value=steady, txn=opened.txn)
        for key in sorted(moved.intersection(found)) if moved else ():
            for pair in found[key]:
                self._emit(process, "invoke", "poll", txn=opened.txn)
                self._emit(process, kind, "poll", value={key: [pair]}, txn=opened.txn)
                self._emit(process, "info", "revoke", value=[key])

    def _collect(self, reported: Any, found: dict[str, list[Any]]) -> bool:
        """Collect records with an offset by partition into `found`. Returns False for malformed values."""
        if not isinstance(reported, list) or reported[:1] != [MAP] or not len(reported) % 2:
            return reported is None
        for key, pairs in zip(reported[1::2], reported[2::2], strict=True):
            if not isinstance(pairs, list):
                return False
            records = found.setdefault(self._where(key)[2], [])
            for pair in pairs:
                if not isinstance(pair, list) or len(pair) != 2:
                    return False
                if pair[0] is not None:
                    records.append(pair)
        return True

    def _assignment(self, op: Op) -> None:
        """Convert an assignment; after one that may have failed, the position is unknown."""
        process, keys = op[":process"], op.get(":value")
        if not isinstance(keys, list):
            self._quarantine.add(f"a list of keys expected, not {str(keys)[:60]}")
            return
        value = [self._where(key)[2] for key in keys]
        if op[":f"] == ":subscribe":
            self._subscribed.add(process)
            self._emit(process, "info", "revoke", value=value)
        elif op[":type"] == ":ok":
            self._subscribed.discard(process)
            start = 0 if op.get(":seek-to-beginning?") is True else None
            self._emit(process, "ok", "assign", value=value, position=start)
        else:
            self._emit(process, "info", "revoke", value=value)


def _are_micro_operations(mops: object) -> bool:
    if not isinstance(mops, list):
        return False
    for mop in mops:
        if not isinstance(mop, list) or not mop or not ((mop[0] == ":send" and len(mop) == 3) or mop[0] == ":poll"):
            return False
    return True


def _rebalanced(log: Any) -> list[Any]:
    """Return the keys of a `:rebalance-log`."""
    keys: list[Any] = []
    for entry in log if isinstance(log, list) else ():
        if isinstance(entry, list) and entry[:1] == [MAP] and ":keys" in entry:
            entry_keys = entry[entry.index(":keys") + 1]
            keys += entry_keys if isinstance(entry_keys, list) else []
    return keys

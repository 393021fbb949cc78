"""Check consumer groups: the committed offset of a partition is a register, and each partition has one owner."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from highwater.reports.tests.worlds.logs import Log, World
from highwater.reports.tests.worlds.operations import Key, Operation, Read, Transaction

NONE = -1
"""The committed offset of a group that has committed none."""


@dataclass(frozen=True)
class Action:
    """A step of the coordinator. `write` and `shows` name a commit; `accepts` says which offsets a fetch may return."""

    earliest: int
    latest: float
    """Infinite if the step need not happen."""
    before: float = inf
    """The time from which a commit is rejected."""
    write: int | None = None
    shows: int | None = None
    accepts: Callable[[int], bool] | None = None
    stable: bool = False
    """The fetch waits for pending transactions (KIP-447)."""


class Register:
    """Search an order of the coordinator's steps that explains each fetched offset of one group and partition.

    A commit is written, then shown to fetches: at once, or with the marker of its transaction. The offset that was
    written last is the committed one, also if a transaction that wrote before it is committed later.
    """

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.actions: list[Action] = []

    def commit(self, operation: Operation, offset: int, txn: Transaction | None, *, before: float) -> None:
        """Add a commit, which need not happen if its outcome is unknown."""
        number, latest = len(self.offsets), operation.returned if operation.status == "ok" else inf
        self.offsets.append(offset)
        if txn is None:
            self.actions.append(Action(operation.invoked, latest, before, write=number, shows=number))
            return
        self.actions.append(Action(operation.invoked, latest, before, write=number))
        self.actions.append(Action(min(txn.requested("commit", "ok", "info")), inf, shows=number))

    def explained(self) -> bool:
        return self._explained(tuple(self.actions), (), frozenset(), 0)

    def _explained(self, left: tuple[Action, ...], written: tuple[int, ...], shown: frozenset[int], now: int) -> bool:
        """Return whether the steps `left` can follow; `written` is in the order of the coordinator's log."""
        due = min((action.latest for action in left), default=inf)
        if due == inf:
            return True
        for place, action in enumerate(left):
            time = max(now, action.earliest)
            if time > min(due, action.before) or not self._possible(action, written, shown):
                continue
            after = written if action.write is None else (*written, action.write)
            showing = shown if action.shows is None else shown | {action.shows}
            if self._explained(left[:place] + left[place + 1 :], after, showing, time):
                return True
        return False

    def _possible(self, action: Action, written: tuple[int, ...], shown: frozenset[int]) -> bool:
        if action.accepts is None:
            return action.write is not None or action.shows in written
        if action.stable and not shown.issuperset(written):
            return False
        visible = [number for number in written if number in shown]
        return action.accepts(self.offsets[visible[-1]] if visible else NONE)


def unexplained_offset(operations: Sequence[Operation], reads: Sequence[Read], world: World, log: Log) -> str:
    """Return why the commits do not explain what was fetched, or where members began; empty if they do."""
    registers: dict[str, Register] = defaultdict(Register)
    for operation in operations:
        kinds = {"commit", "send_offsets", "committed"}
        if operation.f not in kinds or operation.status == "fail" or world.key not in operation.offsets():
            continue
        register, offset = registers[_group(operation)], operation.offsets()[world.key]
        txn = world.transactions[operation.fields["txn"]] if operation.f == "send_offsets" else None
        if operation.f != "committed" and (txn is None or world.outcomes[txn.name] == "commit"):
            rejected = [time for time, always in _newer(operation, operations) if always or not world.lenient]
            register.commit(operation, offset, txn, before=min(rejected, default=inf))
        elif operation.f == "committed" and operation.status == "ok":
            register.actions.append(Action(operation.invoked, operation.returned, accepts=offset.__eq__))
    if not all(register.explained() for register in registers.values()):
        return "no commit explains a committed offset that was fetched"
    for read in reads:
        if read.resumed is not None:
            accepts = _start(read, world, log)
            action = Action(read.resumed.assigned, read.returned, accepts=accepts, stable=read.committed)
            registers[read.resumed.group].actions.append(action)
    explained = all(register.explained() for register in registers.values())
    return "" if explained else "no commit explains where a member of a group began"


def _start(read: Read, world: World, log: Log) -> Callable[[int], bool]:
    """Return which committed offsets explain the first record of this read."""
    first, committed = read.records[0][0], read.committed

    def accepts(offset: int) -> bool:
        skips = offset < 0 or any(world.visible(entry, committed=committed) for entry in log[offset:first])
        return offset == NONE or (offset <= first and not skips)

    return accepts


def _group(operation: Operation) -> str:
    return operation.fields.get("group") or ""


def group_contradictions(operations: Sequence[Operation]) -> Iterator[tuple[str, bool]]:
    """Yield what no coordinator or application does, with whether every group protocol excludes it."""
    assignments = [op for op in operations if op.f == "assign" and op.fields.get("generation_id", -1) >= 0]
    for number, one in enumerate(assignments):
        for two in assignments[number + 1 :]:
            if _group(one) == _group(two) and (why := _assigned_twice(one.fields, two.fields)):
                yield why, not _may_begin_again(one, two, operations)
    for commit in operations:
        generation = commit.fields.get("generation_id", -1)
        if commit.f in {"commit", "send_offsets"} and commit.status == "ok" and generation >= 0:
            for time, always in _newer(commit, operations):
                if time < commit.invoked:
                    yield "a commit of an old generation was accepted", always
            own = [op for op in assignments if op.fields.get("member_id") == commit.fields.get("member_id")]
            if generation not in [op.fields["generation_id"] for op in own if op.invoked < commit.invoked][-1:]:
                yield "a member committed with another generation than it was assigned", False
    yield from _offsets_of_the_application(operations)


def _may_begin_again(one: Operation, two: Operation, operations: Sequence[Operation]) -> bool:
    """Return whether generations of a group may have begun again between two operations.

    A coordinator removes a group without members and offsets. That it had another generation meanwhile shows that its
    members changed.
    """
    ours = [op for op in operations if _group(op) == _group(one) and op.status == "ok"]
    generations = {op.fields.get("generation_id") for op in ours if one.returned < op.invoked < two.invoked}
    has_offset = any(op.f in {"commit", "send_offsets"} and op.invoked < two.invoked for op in ours)
    return bool(generations - {None, one.fields["generation_id"]}) and not has_offset


def _assigned_twice(one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    """`one` was recorded before `two`."""
    members = one.get("member_id"), two.get("member_id")
    if None in members or one.get("instance_id") is not None:
        return ""
    if members[0] == members[1]:
        return "a member's generation decreased" if two["generation_id"] < one["generation_id"] else ""
    shared = set(one["value"]) & set(two["value"])
    same = one["generation_id"] == two["generation_id"]
    return f"two members own {min(shared)} in one generation" if shared and same else ""


def _newer(commit: Operation, operations: Sequence[Operation]) -> Iterator[tuple[float, bool]]:
    """Yield when a newer generation was proved, with whether every group protocol rejects the commit from then on.

    The consumer protocol accepts a former epoch of a member that still owns the partition (KIP-848).
    """
    generation = commit.fields.get("generation_id", -1)
    if generation < 0:
        return
    for newer in operations:
        known = newer.status == "ok" and _group(newer) == _group(commit)
        if known and newer.fields.get("generation_id", -1) > generation:
            members = {newer.fields.get("member_id"), commit.fields.get("member_id")} - {None}
            lost = newer.f == "assign" and not set(commit.offsets()).isdisjoint(newer.fields["value"])
            yield newer.returned, lost and len(members) == 2


def _offsets_of_the_application(operations: Sequence[Operation]) -> Iterator[tuple[str, bool]]:
    """Applications may commit any offset; ours commit what they received, in the transaction that processed it."""
    received: dict[tuple[Any, Key], int] = defaultdict(int)
    processed: dict[tuple[Any, Key], int] = {}
    for op in sorted(operations, key=lambda operation: operation.returned):
        txn = op.fields.get("txn")
        if op.f == "poll" and op.status == "ok":
            for key, records in (op.fields.get("value") or {}).items():
                end = max((offset + 1 for offset, _ in records), default=0)
                received[op.process, key] = max(received[op.process, key], end)
                if txn is not None and records:
                    processed[txn, key] = end
        elif op.f in {"commit", "send_offsets"}:
            for key, offset in op.offsets().items():
                if offset > received[op.process, key]:
                    yield "an offset was committed beyond the records that its process received", False
                if op.status == "ok" and processed.get((txn, key)) == offset:
                    del processed[txn, key]
    commits = {op.fields["txn"] for op in operations if op.f == "end_txn" and op.fields["value"] == "commit"}
    if not commits.isdisjoint(txn for txn, _ in processed):
        yield "a transaction was committed without the offsets of the records that it processed", False

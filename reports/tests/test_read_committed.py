"""Compares the rules about the last stable offset with an exhaustive search of the behaviours that Kafka allows.

A send is appended at one moment between its invocation and its response, and is below the high watermark when it is
acknowledged (acks=all). EndTxn takes effect between its invocation and its response; its markers are written at any
later moment, each at an offset of its own, and abort markers at any moment unless a commit was requested. A read
returns the last stable offset of one moment: the first offset of the oldest open transaction, or the high watermark,
which is anywhere between the acknowledged records and the log end. Clients outside the history may write too, and may
have open transactions.
"""

import random
from functools import cache
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.reports.columns import NEVER, UNKNOWN, Fate, Kind, Operations, Status
from highwater.reports.rules.checks import committed, log, register
from highwater.reports.rules.findings import Promise, RuleFindings
from highwater.reports.rules.view import View
from highwater.reports.tests.random_ops import operations

FAMILIES = (
    log.nonmonotonic_sends, log.nonmonotonic_transactions, log.append_inversions, register.stale_reads,
    register.stale_stable_ends, register.future_reads, register.future_ends, register.regressions,
    committed.early_reads,
)  # fmt: skip
"""Rules 10, 13 to 16 and 19."""


class Op(NamedTuple):
    """A send to offset `z` (of `txn`, if any), the commit of `txn`, a read that returns `z`, or a marker of `txn`."""

    what: str
    invoked: int
    returned: int
    z: int = 0
    txn: int = UNKNOWN


def possible(ops: list[Op]) -> bool:
    """Return whether some order of effects yields all these responses."""
    written = [op for op in ops if op.what == "send" and op.txn != UNKNOWN]
    first = {op.txn: min(o.z for o in written if o.txn == op.txn) for op in written}
    markers = [Op("marker", -1, int(NEVER), txn=txn) for txn in first]
    steps = [*ops, *markers]
    commits = {op.txn for op in ops if op.what == "commit"}
    needed = [n for n, op in enumerate(steps) if op.what != "marker"]
    plain = {op.z for op in ops if op.what == "send" and op.txn == UNKNOWN}

    def allowed(done: frozenset[int], op: Op, returned_end: int, end: int) -> bool:
        happened = [steps[n] for n in done]
        if op.what == "marker":
            is_commit = any(o.what == "commit" and o.txn == op.txn for o in happened)
            return is_commit or op.txn not in commits  # the coordinator aborts a transaction after its time-out
        if op.what == "commit":  # its sends were acknowledged before
            return True
        marked = {o.txn for o in happened if o.what == "marker"}
        if op.what == "send":
            return max(returned_end, end) <= op.z and op.txn not in marked
        if returned_end > op.z or any(begin < op.z and txn not in marked for txn, begin in first.items()):
            return False
        # Records below the returned offset were in the log; later ones get larger offsets.
        proved = max((o.z + 1 for o in happened if o.what == "send" and o.returned < op.invoked), default=0)
        may_be_open = op.z not in plain and not any(o.z == op.z and o.txn in marked for o in written)
        return proved <= op.z or may_be_open

    @cache
    def explained(done: frozenset[int], returned_end: int, end: int) -> bool:
        """Return whether the steps that are left can follow; the log ends at `end` at least."""
        left = [n for n in needed if n not in done]
        if not left:
            return True
        earliest = min(steps[n].returned for n in left)
        for n, op in enumerate(steps):
            if n in done or op.invoked >= earliest or not allowed(done, op, returned_end, end):
                continue
            returned = max(returned_end, op.z) if op.what == "read" else returned_end
            grown = {"send": op.z + 1, "marker": max(end, returned_end) + 1}.get(op.what, end)
            if explained(done | {n}, returned, grown):
                return True
        return False

    return explained(frozenset(), 0, 0)


def random_history(chance: random.Random) -> list[Op]:
    """Return two to four sends, some of them in two transactions, commits and one or two reads.

    A commit is invoked after the responses to the sends of its transaction.
    """
    sends, reads = chance.randint(2, 4), chance.randint(1, 2)
    offsets = chance.sample(range(6), sends)
    if chance.random() < 0.6:
        offsets.sort()
    moments = iter(sorted(chance.sample(range(40), 2 * sends)))
    ops = []
    for offset in offsets:
        begin = next(moments)
        end = next(moments)
        ops.append(Op("send", begin, end + chance.choice([0, 0, 40, 80]), offset, chance.choice([UNKNOWN, 0, 1])))
    for txn in (0, 1):
        written = [op.returned for op in ops if op.txn == txn]
        if written and chance.random() < 0.7:
            begin = max(written) + chance.randint(1, 12)
            ops.append(Op("commit", begin, begin + chance.randint(1, 12), txn=txn))
    for _ in range(reads):
        begin = chance.randrange(70)
        ops.append(Op("read", begin, begin + chance.randint(1, 15), chance.randint(0, 6)))
    return _apart(ops)


def _apart(ops: list[Op]) -> list[Op]:
    """Return the operations with a distinct moment for every event."""
    events = sorted((moment, n, side) for n, op in enumerate(ops) for side, moment in enumerate(op[1:3]))
    place = {(n, side): rank for rank, (_, n, side) in enumerate(events)}
    return [op._replace(invoked=place[n, 0], returned=place[n, 1]) for n, op in enumerate(ops)]


def columns(ops: list[Op]) -> Operations:
    """Return the columns; reads are read_committed ListOffsets of one leader epoch."""
    ended = {op.txn: op.invoked for op in ops if op.what == "commit"}
    rows = []
    for process, op in enumerate(sorted((o for o in ops if o.what != "commit"), key=lambda o: o.invoked)):
        row = {"invoked": op.invoked, "returned": op.returned, "process": process, "status": Status.OK}
        row |= {"leader_epoch": 0, "fate": UNKNOWN, "ended": 0}
        if op.what == "read":
            rows.append(row | {"kind": Kind.LIST_OFFSETS, "last_stable_offset": op.z, "isolation": 2})
            continue
        fate = {"fate": Fate.COMMITTED, "ended": ended[op.txn]} if op.txn in ended else {}
        rows.append(row | {"kind": Kind.SEND, "offset": op.z, "value": 10 + process, "txn": op.txn} | fate)
    return operations(rows)


def found(ops: list[Op]) -> bool:
    return bool(violated(ops, Promise()))


def violated(ops: list[Op], promise: Promise) -> set[int]:
    """Return the rules that have findings other than information."""
    view = View(columns(ops), promise, has_transactions=True)
    findings = (found for family in FAMILIES for found in _findings(family(view)))
    return {found.rule for found in findings if len(found.first) and not found.information}


def _findings(result: RuleFindings | tuple[RuleFindings, ...]) -> tuple[RuleFindings, ...]:
    return (result,) if isinstance(result, RuleFindings) else result


@given(st.randoms(use_true_random=False))
@settings(max_examples=500, deadline=None, database=None)
def test_the_last_stable_offset_agrees_with_an_exhaustive_search(chance: random.Random) -> None:
    ops = random_history(chance)
    assert found(ops) == (not possible(ops)), ops


def test_random_histories_are_possible_and_impossible() -> None:
    chance = random.Random(19)
    bad = sum(not possible(random_history(chance)) for _ in range(400))
    assert 60 < bad < 340


def test_a_transaction_is_open_while_its_sends_are_appended_after_later_sends() -> None:
    ops = [
        Op("send", 0, 6, 1, txn=1),
        Op("send", 2, 7, 5, txn=1),  # appended after the next send, and therefore after the response to the read
        Op("send", 4, 5, 3),
        Op("read", 1, 3, 3),
    ]
    assert not possible(ops)
    assert found(ops)
    assert not violated(ops, Promise(unclean_election=True))

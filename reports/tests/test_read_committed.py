"""The last stable offset against an exhaustive search of what Kafka may do.

A send is appended at one moment between its invocation and its answer, and is below the high watermark when it is
answered (acks=all). EndTxn takes its decision between its invocation and its answer; the markers come at any moment
after that, and those of an abort at any moment where no commit was asked for. A reader is told the last stable offset
of one moment: the first offset of the oldest open transaction, or the high watermark, which lies anywhere between what
was proved and the log's end. Others whom nobody recorded may write, and have transactions open at offsets of their own.
"""

import random
from functools import cache
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.reports.columns import NEVER, UNKNOWN, Fate, Kind, Operations, Status
from highwater.reports.rules import committed, log, register
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
    """`what` is a send to offset `z` (of `txn`, if one), the commit of `txn`, a reader who is told `z`, or a marker."""

    what: str
    invoked: int
    returned: int
    z: int = 0
    txn: int = UNKNOWN


def possible(ops: list[Op]) -> bool:
    """Is there an order of effects in which Kafka gives all these answers?"""
    written = [op for op in ops if op.what == "send" and op.txn != UNKNOWN]
    first = {op.txn: min(o.z for o in written if o.txn == op.txn) for op in written}
    markers = [Op("marker", -1, int(NEVER), txn=txn) for txn in first]
    steps = [*ops, *markers]
    commits = {op.txn for op in ops if op.what == "commit"}
    needed = [n for n, op in enumerate(steps) if op.what != "marker"]
    plain = {op.z for op in ops if op.what == "send" and op.txn == UNKNOWN}

    def allowed(done: frozenset[int], op: Op, told: int) -> bool:
        happened = [steps[n] for n in done]
        if op.what == "marker":
            asked = any(o.what == "commit" and o.txn == op.txn for o in happened)
            return asked or op.txn not in commits  # the coordinator takes back what is open for too long
        if op.what == "commit":  # what it wrote was answered before
            return True
        marked = {o.txn for o in happened if o.what == "marker"}
        if op.what == "send":
            last = all(o.z < op.z for o in happened if o.what == "send")
            return told <= op.z and last and op.txn not in marked
        if told > op.z or any(begin < op.z and txn not in marked for txn, begin in first.items()):
            return False
        # What stands below the end that is told was there; what comes later gets a larger offset.
        proved = max((o.z + 1 for o in happened if o.what == "send" and o.returned < op.invoked), default=0)
        held = op.z not in plain and not any(o.z == op.z and o.txn in marked for o in written)
        return proved <= op.z or held

    @cache
    def go(done: frozenset[int], told: int) -> bool:
        left = [n for n in needed if n not in done]
        if not left:
            return True
        earliest = min(steps[n].returned for n in left)
        for n, op in enumerate(steps):
            if n in done or op.invoked >= earliest or not allowed(done, op, told):
                continue
            if go(done | {n}, max(told, op.z) if op.what == "read" else told):
                return True
        return False

    return go(frozenset(), 0)


def random_history(chance: random.Random) -> list[Op]:
    """Two to four sends, some in two transactions of which some commit, one or two readers. A commit is invoked after
    the answers of what it commits."""
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
    """No two events at one moment."""
    events = sorted((moment, n, side) for n, op in enumerate(ops) for side, moment in enumerate(op[1:3]))
    place = {(n, side): rank for rank, (_, n, side) in enumerate(events)}
    return [op._replace(invoked=place[n, 0], returned=place[n, 1]) for n, op in enumerate(ops)]


def columns(ops: list[Op]) -> Operations:
    """Readers as read_committed ListOffsets of one leader epoch."""
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
    """The rules that find something."""
    view = View(columns(ops), promise)
    told = (each for family in FAMILIES for each in _findings(family(view)))
    return {each.rule for each in told if len(each.first) and not each.information}


def _findings(result: RuleFindings | tuple[RuleFindings, ...]) -> tuple[RuleFindings, ...]:
    return (result,) if isinstance(result, RuleFindings) else result


@given(st.randoms(use_true_random=False))
@settings(max_examples=500, deadline=None, database=None)
def test_the_last_stable_offset_agrees_with_an_exhaustive_search(chance: random.Random) -> None:
    ops = random_history(chance)
    assert found(ops) == (not possible(ops)), ops


def test_random_histories_are_of_both_kinds() -> None:
    chance = random.Random(19)
    bad = sum(not possible(random_history(chance)) for _ in range(400))
    assert 60 < bad < 340


def test_a_transaction_is_open_as_long_as_what_it_sends_comes_behind_what_was_sent_later() -> None:
    ops = [
        Op("send", 0, 6, 1, txn=1),
        Op("send", 2, 7, 5, txn=1),  # appended after the next one, and so after the reader's answer
        Op("send", 4, 5, 3),
        Op("read", 1, 3, 3),
    ]
    assert not possible(ops)
    assert found(ops)
    assert not violated(ops, Promise(unclean_election=True))

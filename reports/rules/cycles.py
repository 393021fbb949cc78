"""Rule 21: transactions that depend on one another in a circle (G0, G1c).

A transaction depends on those whose records it read (wr), and, in the order of offsets, on those that wrote before it
(ww). Kafka promises no order of writes between partitions, so circles that need ww are information.
"""

from dataclasses import dataclass, replace

import numpy as np

from highwater.reports.columns import NOTHING, UNKNOWN, Fate, Ints, Kind, Status
from highwater.reports.rules.findings import NOBODY, Found, Mask, first_of_each, none_of
from highwater.reports.rules.view import View


@dataclass(frozen=True, slots=True)
class Edges:
    """`source` comes before `target`; the rows (of partition `part`, once all were joined) that say so."""

    source: Ints
    target: Ints
    first: Ints
    second: Ints
    offset: Ints
    part: Ints

    def where(self, mask: Mask | Ints) -> "Edges":
        return Edges(*(getattr(self, name)[mask] for name in Edges.__dataclass_fields__))


def join(parts: list[Edges]) -> Edges:
    names = Edges.__dataclass_fields__
    return Edges(*(np.concatenate([getattr(part, name) for part in parts] or [NOTHING]) for name in names))


def of_partitions(parts: list[Edges]) -> Edges:
    """Joined, and each knows its partition."""
    return join([replace(edges, part=np.full(len(edges.part), number)) for number, edges in enumerate(parts)])


def reads(view: View) -> Edges:
    """wr: an edge for each record."""
    ops, row, writer = view.ops, view.record_row, view.writer
    chosen = np.flatnonzero(view.committed_read & (writer != NOBODY) & (ops.txn[row] != UNKNOWN))
    source, target = ops.txn[writer[chosen]], ops.txn[row[chosen]]
    chosen = chosen[(source != UNKNOWN) & (source != target)]
    return _edges(view, ops.txn[writer[chosen]], ops.txn[row[chosen]], row[chosen], writer[chosen])


def writes(view: View) -> Edges:
    """ww: neighbours in the order of offsets."""
    ops = view.ops
    rows = view.acked[(ops.txn[view.acked] != UNKNOWN) & view.spanned(ops.offset[view.acked])]
    rows = np.concatenate([view.neighbour, rows[np.argsort(ops.offset[rows], kind="stable")]])
    before, after = rows[:-1], rows[1:]
    differ = ops.txn[before] != ops.txn[after]
    before, after = before[differ], after[differ]
    return _edges(view, ops.txn[before], ops.txn[after], after, before)


def _edges(view: View, source: Ints, target: Ints, first: Ints, second: Ints) -> Edges:
    offset = view.ops.offset[second]
    return Edges(source, target, view.numbered(first), view.numbered(second), offset, np.zeros_like(offset))


def once(edges: Edges) -> Edges:
    """Of each pair of transactions that edge whose operations came first."""
    order = np.lexsort((edges.offset, edges.second, edges.first, edges.target, edges.source))
    source, target = edges.source[order], edges.target[order]
    new = np.append(True, (source[1:] != source[:-1]) | (target[1:] != target[:-1]))[: len(order)]
    return edges.where(order[new])


def backward_spans(view: View) -> Found:
    """Candidates of rule 21: where transactions depend on later numbers, from which number to which.

    A circle comes back to where it began, so it lies within such spans. Transactions are numbered as they come, so a
    healthy history has few of them, and short ones.
    """
    if not view.told_txn:
        return none_of(21)
    edges = join([reads(view), writes(view)])
    back = edges.source > edges.target
    low, high = spans(edges.target[back], edges.source[back])
    return Found(21, low, high, np.full(len(low), UNKNOWN))


def spans(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Joined where they overlap, in ascending order."""
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order]) if len(high) else high
    first = np.flatnonzero(np.concatenate([[True], low[1:] > reach[:-1]])) if len(low) else NOTHING
    return low[first], reach[np.append(first[1:], len(low)) - 1] if len(low) else high


def within(view: View, low: Ints, high: Ints) -> tuple[Edges, Edges]:
    """wr and ww, one of each pair of transactions, of those that lie in one of these spans."""

    def span_of(numbers: Ints) -> Ints:
        slot = np.searchsorted(low, numbers, "right") - 1
        return np.where((slot >= 0) & (high[slot] >= numbers), slot, UNKNOWN)

    def inside(edges: Edges) -> Edges:
        span = span_of(edges.source)
        return edges.where((span != UNKNOWN) & (span == span_of(edges.target)))

    return once(inside(reads(view))), once(inside(writes(view)))


def circles(edges: Edges) -> list[Ints]:
    """Strongly connected components of more than one transaction, as positions of the edges inside each."""
    alive = np.arange(len(edges.source))
    while True:  # who has nobody before or nobody behind is in no circle
        source, target = edges.source[alive], edges.target[alive]
        kept = np.isin(source, target) & np.isin(target, source)
        if kept.all():
            break
        alive = alive[kept]
        if kept.mean() > 0.99:  # long chains would be eaten link by link; Tarjan takes them whole
            break
    component = tarjan(edges.source[alive].tolist(), edges.target[alive].tolist())
    found: dict[int, list[int]] = {}
    for place, source, target in zip(alive.tolist(), edges.source[alive], edges.target[alive], strict=True):
        if component[int(source)] == component[int(target)]:
            found.setdefault(component[int(source)], []).append(place)
    return [np.array(places, np.int64) for _, places in sorted(found.items())]


def tarjan(source: list[int], target: list[int]) -> dict[int, int]:
    """The component of each node, without recursion. https://doi.org/10.1137/0201010"""
    behind: dict[int, list[int]] = {}
    for a, b in zip(source, target, strict=True):
        behind.setdefault(a, []).append(b)
        behind.setdefault(b, [])
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    stack: list[int] = []
    for root, nearest in behind.items():
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        work = [(root, iter(nearest))]
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    while node not in component:
                        component[stack.pop()] = node
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                work.append((following, iter(behind[following])))
            elif following not in component:
                low[node] = min(low[node], index[following])
    return component


# --------------------------------------------------------------------------------------------------
# Rule 22: one input offset processed by two committed transactions of one group.


def double_processing(view: View) -> Found:
    """What a transaction polls it processes; two of one group that commit must not have polled the same record."""
    ops = view.ops
    if not view.told_txn:
        return none_of(22)
    done = (ops.kind == Kind.READ) & (ops.status == Status.OK) & (ops.fate == Fate.COMMITTED) & (ops.group != UNKNOWN)
    if not np.any(done):
        return none_of(22)
    told = np.flatnonzero(done[view.record_row])
    row = view.record_row[told]
    told = told[np.lexsort((ops.txn[row], ops.record_offset[told], ops.group[row]))]
    row, offset = view.record_row[told], ops.record_offset[told]
    twice = (offset[1:] == offset[:-1]) & (ops.group[row[1:]] == ops.group[row[:-1]])
    twice = np.flatnonzero(twice & (ops.txn[row[1:]] != ops.txn[row[:-1]]))
    twice = twice[first_of_each(row[twice + 1])]  # one finding for each poll
    return Found(22, row[twice + 1], row[twice], offset[twice])

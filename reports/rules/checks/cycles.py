"""Check G1c, cycles of dependencies between transactions, and double-processing of one input record.

A transaction depends on the transactions whose records it read (wr), and on those that wrote before it in the order of
offsets (ww). Kafka promises no order of writes between partitions, so a cycle that needs ww edges is only information.
"""

from dataclasses import dataclass, replace

import numpy as np

from highwater.reports.columns import NOTHING, UNKNOWN, Fate, Ints, Isolation, Kind
from highwater.reports.rules.findings import NO_ROW, Mask, RuleFindings, first_of_each, no_findings
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.view import View


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges source -> target, with the rows `first` and `second` that show them, in the partition number `part`."""

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
    """Concatenate edges of several partitions and set `part` to the position in `parts`."""
    return join([replace(edges, part=np.full(len(edges.part), number)) for number, edges in enumerate(parts)])


def reads(view: View, *, certain: bool = False) -> Edges:
    """Return wr edges, one for each record that a transaction read: with `certain` only of read_committed reads."""
    ops, row, writer = view.ops, view.record_row, view.writer
    committed = view.committed_read & ((ops.isolation[row] == Isolation.READ_COMMITTED) | (not certain))
    chosen = np.flatnonzero(committed & (writer != NO_ROW) & (ops.txn[row] != UNKNOWN))
    source, target = ops.txn[writer[chosen]], ops.txn[row[chosen]]
    chosen = chosen[(source != UNKNOWN) & (source != target)]
    return _edges(view, ops.txn[writer[chosen]], ops.txn[row[chosen]], row[chosen], writer[chosen])


def writes(view: View) -> Edges:
    """Return ww edges between transactions whose records are neighbours in offset order."""
    ops = view.ops
    rows = view.acked[(ops.txn[view.acked] != UNKNOWN) & view.in_span(ops.offset[view.acked])]
    rows = np.concatenate([view.neighbour, rows[np.argsort(ops.offset[rows], kind="stable")]])
    before, after = rows[:-1], rows[1:]
    differ = ops.txn[before] != ops.txn[after]
    before, after = before[differ], after[differ]
    return _edges(view, ops.txn[before], ops.txn[after], after, before)


def _edges(view: View, source: Ints, target: Ints, first: Ints, second: Ints) -> Edges:
    offset = view.ops.offset[second]
    return Edges(
        source, target, view.to_partition_rows(first), view.to_partition_rows(second), offset, np.zeros_like(offset)
    )


def once(edges: Edges) -> Edges:
    """Keep one edge for each pair of transactions: the one with the smallest rows."""
    order = np.lexsort((edges.offset, edges.second, edges.first, edges.target, edges.source))
    source, target = edges.source[order], edges.target[order]
    new = np.append(True, (source[1:] != source[:-1]) | (target[1:] != target[:-1]))[: len(order)]
    return edges.where(order[new])


def backward_spans(view: View) -> RuleFindings:
    """Find candidates of G1c: spans of transaction numbers that hold an edge from a larger to a smaller number.

    Every cycle has such an edge, so it lies within the joined spans. Transactions are numbered at first use, so a
    healthy history has few and short spans. `first` and `second` are transaction numbers here, not rows.
    """
    if not view.has_transactions:
        return no_findings(Rule.G1C)
    edges = join([reads(view), writes(view)])
    back = edges.source > edges.target
    low, high = spans(edges.target[back], edges.source[back])
    return RuleFindings(Rule.G1C, low, high, np.full(len(low), UNKNOWN))


def spans(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return the intervals [low, high] joined where they overlap, in ascending order."""
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order]) if len(high) else high
    first = np.flatnonzero(np.concatenate([[True], low[1:] > reach[:-1]])) if len(low) else NOTHING
    return low[first], reach[np.append(first[1:], len(low)) - 1] if len(low) else high


def within(view: View, low: Ints, high: Ints) -> tuple[Edges, Edges, Edges]:
    """Return certain wr, wr and ww edges, one per pair of transactions, whose two ends lie in the same span."""

    def span_of(numbers: Ints) -> Ints:
        slot = np.searchsorted(low, numbers, "right") - 1
        return np.where((slot >= 0) & (high[slot] >= numbers), slot, UNKNOWN)

    def inside(edges: Edges) -> Edges:
        span = span_of(edges.source)
        return edges.where((span != UNKNOWN) & (span == span_of(edges.target)))

    return once(inside(reads(view, certain=True))), once(inside(reads(view))), once(inside(writes(view)))


def circles(edges: Edges) -> list[Ints]:
    """Return the cycles: strongly connected components of several transactions, as positions of their edges."""
    alive = np.arange(len(edges.source))
    while True:  # a transaction without an incoming or an outgoing edge is in no cycle
        source, target = edges.source[alive], edges.target[alive]
        has_both = np.isin(source, target) & np.isin(target, source)
        if has_both.all():
            break
        alive = alive[has_both]
        if has_both.mean() > 0.99:  # a long chain would lose one edge per round; Tarjan's algorithm needs one pass
            break
    component = tarjan(edges.source[alive].tolist(), edges.target[alive].tolist())
    edges_of: dict[int, list[int]] = {}
    for place, source, target in zip(alive.tolist(), edges.source[alive], edges.target[alive], strict=True):
        if component[int(source)] == component[int(target)]:
            edges_of.setdefault(component[int(source)], []).append(place)
    return [np.array(places, np.int64) for _, places in sorted(edges_of.items())]


def tarjan(source: list[int], target: list[int]) -> dict[int, int]:
    """Return the strongly connected component of each node, iteratively. https://doi.org/10.1137/0201010"""
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
# Double-processing: two committed transactions of one group processed one input offset.


def double_processing(view: View) -> RuleFindings:
    """Find double-processing: two committed transactions of one group polled the same record."""
    ops = view.ops
    if not view.has_transactions:
        return no_findings(Rule.DOUBLE_PROCESSING)
    done = (ops.kind == Kind.READ) & (ops.fate == Fate.COMMITTED) & (ops.group != UNKNOWN)
    if not np.any(done):
        return no_findings(Rule.DOUBLE_PROCESSING)
    records = np.flatnonzero(done[view.record_row])
    row = view.record_row[records]
    records = records[np.lexsort((row, ops.record_offset[records], ops.group[row]))]
    row, offset = view.record_row[records], ops.record_offset[records]
    twice = (offset[1:] == offset[:-1]) & (ops.group[row[1:]] == ops.group[row[:-1]])
    twice = np.flatnonzero(twice & (ops.txn[row[1:]] != ops.txn[row[:-1]]))
    twice = twice[first_of_each(row[twice + 1])]  # one finding per poll
    return RuleFindings(Rule.DOUBLE_PROCESSING, row[twice + 1], row[twice], offset[twice])

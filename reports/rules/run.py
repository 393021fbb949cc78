"""Rules over a whole run: what partitions say together, and the tables of transactions, groups and the cluster."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Protocol, TypeVar

import numpy as np

from highwater.reports.columns import NOTHING, Fate, Ints, Status
from highwater.reports.rules import committed, cycles, groups, run
from highwater.reports.rules.division import FirstLook, Look, OfColumns, OfSpans
from highwater.reports.rules.findings import Found, Promise
from highwater.reports.rules.partition import CANDIDATES
from highwater.reports.rules.step_findings import Told, falls
from highwater.reports.rules.view import View
from highwater.reports.tables import Step, Tables

ByPartition = list[tuple[str, Found]]
T = TypeVar("T")


class Over(Protocol):
    """What an engine does: some work on each partition, or on those of these keys, in the order of the keys."""

    def __call__(self, work: Look[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]: ...


def check_run(over: Over, tables: Tables, promise: Promise) -> tuple[ByPartition, list[Told]]:
    """What is found by partition, settled over all of them, and what only the tables of the run show."""
    found = [(key, each) for key, mine in over(FirstLook()) for each in mine]
    plain = [(key, each) for key, each in found if each.rule not in CANDIDATES | {4}]
    return [*plain, *_torn(over, found), *_circles(over, tables, found)], [
        *groups.committed_offsets(tables),
        *_ahead(over, tables),
        *groups.zombie_commits(tables),
        *groups.double_ownership(tables),
        *groups.stuck_rebalances(tables, promise.patience_ms),
        *run.epoch_safety(tables),
        *run.duplicate_producer_ids(tables),
    ]


# -- rule 20 -----------------------------------------------------------------------------------------


def _torn(over: Over, found: ByPartition) -> Iterator[tuple[str, Found]]:
    """Candidates of which another record was seen, in any partition. They count as lost no more."""
    candidates = {key: each for key, each in found if each.rule == 20}
    torn_rows = {}
    if candidates:
        rows = {key: each.first for key, each in candidates.items()}
        passed = dict(over(OfColumns(partial(_transactions, rows), ("txn",)), candidates))
        seen = over(OfSpans(partial(_visible, np.unique(np.concatenate([*passed.values()]))), _all_of))
        visible = np.unique(np.concatenate([txns for _, txns in seen]))
        for key, each in candidates.items():
            torn = np.isin(passed[key], visible)
            torn_rows[key] = each.first[torn]
            if np.any(torn):
                yield key, Found(20, each.first[torn], each.second[torn], each.offset[torn])
    for key, each in found:
        if each.rule == 4:
            lost = ~np.isin(each.first, torn_rows.get(key, ()))
            if np.any(lost):
                yield key, Found(4, each.first[lost], each.second[lost], each.offset[lost])


def _transactions(rows: Mapping[str, Ints], key: str, view: View) -> Ints:
    txns: Ints = view.ops.txn[rows[key]]
    return txns


def _all_of(parts: list[Ints]) -> Ints:
    return np.concatenate([NOTHING, *parts])


def _visible(txns: Ints, _: str, view: View) -> Ints:
    return committed.visible(view, txns)[0] if view.told_txn else txns[:0]


# -- rule 21 -----------------------------------------------------------------------------------------


def _circles(over: Over, tables: Tables, found: ByPartition) -> Iterator[tuple[str, Found]]:
    """One finding for each circle, searched for only where the candidates say that one may be."""
    candidates = [each for _, each in found if each.rule == 21]
    if not candidates:
        return
    low, high = cycles.spans(*(np.concatenate([getattr(c, name) for c in candidates]) for name in ("first", "second")))
    edges = dict(over(OfSpans(partial(_edges_within, low, high), _merged)))
    keys = list(edges)
    wr, ww = (cycles.of_partitions([pair[which] for pair in edges.values()]) for which in (0, 1))
    known = set[int]()
    for chosen, information in ((wr, False), (cycles.join([wr, _committed(ww, tables)]), True)):
        for circle in cycles.circles(chosen):
            nodes = set(chosen.source[circle].tolist())
            if not nodes & known:
                known |= nodes
                place = circle[:1]
                yield (
                    keys[int(chosen.part[place[0]])],
                    Found(21, chosen.first[place], chosen.second[place], chosen.offset[place], information),
                )


def _edges_within(low: Ints, high: Ints, _: str, view: View) -> tuple[cycles.Edges, cycles.Edges]:
    return cycles.within(view, low, high) if view.told_txn else (cycles.join([]), cycles.join([]))


def _merged(parts: list[tuple[cycles.Edges, cycles.Edges]]) -> tuple[cycles.Edges, cycles.Edges]:
    reads, writes = zip(*parts, strict=True) if parts else ((), ())
    return cycles.once(cycles.join(list(reads))), cycles.once(cycles.join(list(writes)))


def _committed(edges: cycles.Edges, tables: Tables) -> cycles.Edges:
    """Only those count of which neither end was taken back."""
    fate, _ = tables.transactions.columns()
    return edges.where((fate[edges.source] != Fate.ABORTED) & (fate[edges.target] != Fate.ABORTED))


# -- rule 24 -----------------------------------------------------------------------------------------


def _ahead(over: Over, tables: Tables) -> Iterator[Told]:
    """Commits that left out records; what the process was given last is the poll before."""
    by_key: dict[str, list[Step]] = {}
    for step in groups.ahead_of_position(tables):
        by_key.setdefault(step.subject, []).append(step)
    for key, left_out in over(OfSpans(partial(_left_out, by_key), _any_of), by_key) if by_key else ():
        for step in left_out:
            given = step._replace(f="was_given", number=step.position - 1, group="", member="")
            yield Told(24, key, step.number, step, given)


def _any_of(parts: list[list[Step]]) -> list[Step]:
    return sorted({step for part in parts for step in part}, key=attrgetter("returned"))


def _left_out(steps: Mapping[str, list[Step]], key: str, view: View) -> list[Step]:
    """Commits with records that are known between where the process had read to and what it committed."""
    known, mine = view.solid_offsets, steps[key]
    bounds = (np.array([getattr(step, name) for step in mine], np.int64) for name in ("position", "number"))
    first, end = (np.searchsorted(known, each) for each in bounds)
    return [step for step, some in zip(mine, end > first, strict=True) if some]


# --------------------------------------------------------------------------------------------------
# What brokers tell of the cluster: rules 28 (leader epochs) and 31 (producer ids).


def epoch_safety(tables: Tables) -> Iterator[Told]:
    """Rule 28. Metadata is a cache, so epochs may fall from one broker to another, but not as told by one."""
    told = [step for step in tables.of("metadata") if step.status is Status.OK and step.epoch >= 0]
    leaders: dict[tuple[str, int], Step] = {}
    blamed = set()
    for step in told:
        if step.number < 0:
            continue
        first = leaders.setdefault((step.subject, step.epoch), step)
        if first.number != step.number and (step.subject, step.epoch) not in blamed:
            blamed.add((step.subject, step.epoch))
            yield Told(28, step.subject, step.epoch, step, first)
    by_teller: dict[tuple[str, str], list[Step]] = {}
    for step in told:
        if step.node:
            by_teller.setdefault((step.node, step.subject), []).append(step)
    for mine in by_teller.values():
        for late, early in falls(mine, mine):
            yield Told(28, late.subject, late.epoch, late, early)


def duplicate_producer_ids(tables: Tables) -> Iterator[Told]:
    """Rule 31. One process may be given the same twice, when it asks again for what it was not told."""
    owners: dict[tuple[int, int], Step] = {}
    for step in sorted(tables.of("init_producer"), key=lambda step: step.returned):
        if step.status is Status.OK and step.number >= 0:
            owner = owners.setdefault((step.number, step.epoch), step)
            if owner.process != step.process:
                yield Told(31, step.subject, step.number, step, owner)

"""Rules over a whole run: what partitions say together, and the tables of transactions, groups and the cluster."""

from collections.abc import Iterator, Mapping

import numpy as np

from reports.columns import Fate, Operations
from reports.rules import cluster, committed, cycles, groups
from reports.rules.found import Found, Promise
from reports.rules.told import Told
from reports.rules.view import View
from reports.tables import Step, Tables

ByPartition = list[tuple[str, Found]]


def check_run(
    partitions: Mapping[str, Operations], tables: Tables, promise: Promise, found: ByPartition
) -> tuple[ByPartition, list[Told]]:
    """What was found by partition, settled over all of them, with what only all of them show."""
    views = {key: View(ops, promise) for key, ops in partitions.items() if ops.tells("txn")}
    settled = [*_torn(views, found), *_circles(views)]
    return settled, [
        *groups.committed_offsets(tables),
        *_ahead(partitions, tables, promise),
        *groups.zombie_commits(tables),
        *groups.double_ownership(tables),
        *groups.stuck_rebalances(tables, promise.patience_ms),
        *cluster.epoch_safety(tables),
        *cluster.duplicate_producer_ids(tables),
    ]


def _torn(views: Mapping[str, View], found: ByPartition) -> Iterator[tuple[str, Found]]:
    """Rule 20: candidates of which another record was seen, in any partition. They count as lost no more."""
    candidates = [(key, each) for key, each in found if each.rule == 20]
    yield from ((key, each) for key, each in found if each.rule not in {4, 20})
    passed = {key: views[key].ops.txn[each.first] for key, each in candidates}
    txns = np.unique(np.concatenate([*passed.values()])) if passed else np.zeros(0, np.int64)
    seen = [committed.visible(view, txns)[0] for view in views.values()] if passed else []
    visible = np.unique(np.concatenate(seen)) if seen else txns
    torn_rows = {}
    for key, each in candidates:
        torn = np.isin(passed[key], visible)
        torn_rows[key] = each.first[torn]
        if np.any(torn):
            yield key, Found(20, each.first[torn], each.second[torn], each.offset[torn])
    for key, each in found:
        if each.rule == 4:
            lost = ~np.isin(each.first, torn_rows.get(key, ()))
            if np.any(lost):
                yield key, Found(4, each.first[lost], each.second[lost], each.offset[lost])


def _circles(views: Mapping[str, View]) -> Iterator[tuple[str, Found]]:
    """Rule 21: one finding for each circle."""
    keys = list(views)
    wr = cycles.join([cycles.reads(view, part) for part, view in enumerate(views.values())])
    ww = cycles.join([cycles.writes(view, part) for part, view in enumerate(views.values())])
    known = set[int]()
    for edges, information in ((wr, False), (cycles.join([wr, _committed(ww, views)]), True)):
        for circle in cycles.circles(edges):
            nodes = set(edges.source[circle].tolist())
            if not nodes & known:
                known |= nodes
                place = circle[:1]
                yield (
                    keys[int(edges.part[place[0]])],
                    Found(21, edges.first[place], edges.second[place], edges.offset[place], information),
                )


def _committed(edges: cycles.Edges, views: Mapping[str, View]) -> cycles.Edges:
    """Only those count of which both ends were committed."""
    gone = [view.ops.txn[view.ops.fate == Fate.ABORTED] for view in views.values()]
    aborted = np.unique(np.concatenate(gone)) if gone else np.zeros(0, np.int64)
    return edges.where(~np.isin(edges.source, aborted) & ~np.isin(edges.target, aborted))


def _ahead(partitions: Mapping[str, Operations], tables: Tables, promise: Promise) -> Iterator[Told]:
    """Rule 24: commits that left out records; what the process was given last is the poll before."""
    by_key: dict[str, list[Step]] = {}
    for step in groups.ahead_of_position(tables):
        by_key.setdefault(step.subject, []).append(step)
    for key, steps in by_key.items():
        known = View(partitions[key], promise).solid_offsets if key in partitions else np.zeros(0, np.int64)
        for step in steps:
            if np.searchsorted(known, step.number) > np.searchsorted(known, step.position):
                given = step._replace(f="was_given", number=step.position - 1, group="", member="")
                yield Told(24, key, step.number, step, given)

"""Check a whole run: rules over several partitions, and over the tables of transactions, groups and the cluster."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Final, Protocol, TypeVar

import numpy as np

from highwater.reports.columns import NEVER, NOTHING, TOMBSTONE, UNKNOWN, Fate, Ints, Kind, Status
from highwater.reports.rules import run
from highwater.reports.rules.checks import committed, cycles, group_reads, groups
from highwater.reports.rules.division import ColumnTask, FirstPass, PartitionTask, SpanTask
from highwater.reports.rules.findings import NO_ROW, Promise, RuleFindings, Weight, distinct, no_second_witness
from highwater.reports.rules.partition import CANDIDATES
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.step_findings import StepFinding, epoch_decreases
from highwater.reports.rules.view import View
from highwater.reports.tables import Step, Tables

ByPartition = list[tuple[str, RuleFindings]]
T = TypeVar("T")


class PartitionMap(Protocol):
    """Runs a task on each partition, or on those in `keys`, and returns the results in the order of the keys."""

    def __call__(self, work: PartitionTask[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]: ...


def check_run(
    map_partitions: PartitionMap, tables: Tables, promise: Promise, *, without_offset: bool = True
) -> tuple[ByPartition, list[StepFinding]]:
    """Return the findings by partition, with candidates decided, and the findings in the tables of the run.

    `without_offset` is False if every acknowledged send has an offset, which saves a pass over all partitions.
    """
    tables = groups.with_names(tables)
    findings = [(key, finding) for key, mine in map_partitions(FirstPass()) for finding in mine]
    decided = CANDIDATES | {Rule.LOST_WRITE, *group_reads.DECIDED}
    plain = [(key, finding) for key, finding in findings if finding.rule not in decided]
    findings_of_several = (
        *_by_committed_offsets(map_partitions, tables, findings),
        *_torn(map_partitions, findings),
        *_circles(map_partitions, tables, findings),
        *(_unseen_without_offset(map_partitions) if without_offset and not promise.compaction else ()),
    )
    return [*plain, *findings_of_several], [
        *groups.committed_offsets(tables, promise.patience_ms),
        *_ahead(map_partitions, tables),
        *groups.zombie_commits(tables, offset_expiry=promise.offset_expiry),
        *run.fenced_commits(tables),
        *groups.double_ownership(tables),
        *groups.stuck_rebalances(tables, promise.patience_ms),
        *run.epoch_safety(tables),
        *run.duplicate_producer_ids(tables),
    ]


def _by_committed_offsets(
    map_partitions: PartitionMap, tables: Tables, findings: ByPartition
) -> Iterator[tuple[str, RuleFindings]]:
    """Yield what committed offsets do not explain of silent-reset and double-processing."""
    candidates: dict[str, list[RuleFindings]] = {}
    for key, finding in findings:
        if finding.rule in group_reads.DECIDED and len(finding.first):
            candidates.setdefault(key, []).append(finding)
    if not candidates:
        return
    offsets = group_reads.GroupOffsets(tables)
    task = ColumnTask(partial(group_reads.reads_of, candidates), group_reads.COLUMNS)
    for key, reads in map_partitions(task, candidates):
        for finding, mine in zip(candidates[key], reads, strict=True):
            for kept in group_reads.decide(key, finding, mine, offsets):
                yield key, kept


# -- torn-transaction -----------------------------------------------------------------------------------------


def _torn(map_partitions: PartitionMap, findings: ByPartition) -> Iterator[tuple[str, RuleFindings]]:
    """Find torn-transaction among its candidates: another record of the transaction is visible in some partition.

    A torn record is not reported as lost-write too.
    """
    candidates = {key: finding for key, finding in findings if finding.rule == Rule.TORN_TRANSACTION}
    torn_rows = {}
    if candidates:
        rows = {key: finding.first for key, finding in candidates.items()}
        passed = dict(map_partitions(ColumnTask(partial(_transactions, rows), ("txn",)), candidates))
        visible_parts = map_partitions(
            SpanTask(partial(_visible, np.unique(np.concatenate([*passed.values()]))), _all_of)
        )
        visible = np.unique(np.concatenate([txns for _, txns in visible_parts]))
        for key, finding in candidates.items():
            torn = np.isin(passed[key], visible)
            torn_rows[key] = finding.first[torn]
            if np.any(torn):
                yield (
                    key,
                    RuleFindings(
                        Rule.TORN_TRANSACTION, finding.first[torn], finding.second[torn], finding.offset[torn]
                    ),
                )
    for key, finding in findings:
        if finding.rule == Rule.LOST_WRITE:
            lost = ~np.isin(finding.first, torn_rows.get(key, ()))
            if np.any(lost):
                yield (
                    key,
                    RuleFindings(Rule.LOST_WRITE, finding.first[lost], finding.second[lost], finding.offset[lost]),
                )


def _transactions(rows: Mapping[str, Ints], key: str, view: View) -> Ints:
    txns: Ints = view.ops.txn[rows[key]]
    return txns


def _all_of(parts: list[Ints]) -> Ints:
    return np.concatenate([NOTHING, *parts])


def _visible(txns: Ints, _: str, view: View) -> Ints:
    return committed.visible(view, txns)[0] if view.has_transactions else txns[:0]


# -- unseen ----------------------------------------------------------------------------------------------------


def _unseen_without_offset(map_partitions: PartitionMap) -> Iterator[tuple[str, RuleFindings]]:
    """Find unseen among acknowledged sends without an offset, which belong to no span of a divided partition."""
    sent = {
        key: found for key, found in map_partitions(ColumnTask(_acknowledged_without_offset, COLUMNS)) if found[0].size
    }
    if not sent:
        return
    for key, (read, tombstones) in map_partitions(SpanTask(_values_read, _both_of), sent):
        rows, values = sent[key]
        dead = values == TOMBSTONE
        unseen = rows[np.where(dead, np.count_nonzero(dead) > tombstones, ~np.isin(values, read))]
        if len(unseen):
            none = no_second_witness(unseen)
            yield key, RuleFindings(Rule.UNSEEN, unseen, none, none)


COLUMNS: Final = ("offset", "value", "txn")


def _acknowledged_without_offset(_: str, view: View) -> tuple[Ints, Ints]:
    """Return rows and values of acknowledged sends without an offset, outside transactions that did not commit."""
    ops = view.ops
    mine = (ops.kind == Kind.SEND) & (ops.status == Status.OK) & (ops.offset == UNKNOWN)
    if view.has_transactions:
        mine &= (ops.txn == UNKNOWN) | (ops.fate == Fate.COMMITTED)
    rows = np.flatnonzero(mine)
    return view.to_partition_rows(rows), ops.value[rows]


def _both_of(parts: list[tuple[Ints, int]]) -> tuple[Ints, int]:
    return _all_of([values for values, _ in parts]), sum(tombstones for _, tombstones in parts)


def _values_read(_: str, view: View) -> tuple[Ints, int]:
    """Return values of sends without an offset that a read received, and how many such tombstones were read at most.

    Reads of any outcome count: with an offset from a failed read, the other rules judge the send.
    """
    ops, sends = view.ops, view.sends
    values = ops.value[sends[ops.offset[sends] == UNKNOWN]]
    tombstone = view.read_value & (ops.record_value == TOMBSTONE) & (view.writer == NO_ROW)
    offsets = distinct(ops.record_offset[tombstone & view.in_span(ops.record_offset)])
    return values[np.isin(values, ops.record_value[view.read_value])], len(offsets)


# -- G1c -----------------------------------------------------------------------------------------


def _circles(map_partitions: PartitionMap, tables: Tables, findings: ByPartition) -> Iterator[tuple[str, RuleFindings]]:
    """Find G1c: one finding per cycle, searched only in the spans of the candidates."""
    candidates = [finding for _, finding in findings if finding.rule == Rule.G1C]
    if not candidates:
        return
    low, high = cycles.spans(*(np.concatenate([getattr(c, name) for c in candidates]) for name in ("first", "second")))
    edges = dict(map_partitions(SpanTask(partial(_edges_within, low, high), _merged)))
    keys = list(edges)
    wr, ww = (_committed(cycles.of_partitions([pair[which] for pair in edges.values()]), tables) for which in (0, 1))
    known = set[int]()
    for chosen, weight in ((wr, Weight.VIOLATION), (cycles.join([wr, ww]), Weight.INFORMATION)):
        for circle in cycles.circles(chosen):
            nodes = set(chosen.source[circle].tolist())
            if not nodes & known:
                known |= nodes
                place = circle[:1]
                yield (
                    keys[int(chosen.part[place[0]])],
                    RuleFindings(Rule.G1C, chosen.first[place], chosen.second[place], chosen.offset[place], weight),
                )


def _edges_within(low: Ints, high: Ints, _: str, view: View) -> tuple[cycles.Edges, cycles.Edges]:
    return cycles.within(view, low, high) if view.has_transactions else (cycles.join([]), cycles.join([]))


def _merged(parts: list[tuple[cycles.Edges, cycles.Edges]]) -> tuple[cycles.Edges, cycles.Edges]:
    reads, writes = zip(*parts, strict=True) if parts else ((), ())
    return cycles.once(cycles.join(list(reads))), cycles.once(cycles.join(list(writes)))


def _committed(edges: cycles.Edges, tables: Tables) -> cycles.Edges:
    """Drop edges of aborted transactions."""
    fate, _ = tables.transactions.columns()
    return edges.where((fate[edges.source] != Fate.ABORTED) & (fate[edges.target] != Fate.ABORTED))


# -- commit-ahead -----------------------------------------------------------------------------------------


def _ahead(map_partitions: PartitionMap, tables: Tables) -> Iterator[StepFinding]:
    """Find commit-ahead: a commit skipped records; the second witness is the poll before it."""
    by_key: dict[str, list[Step]] = {}
    for step in groups.ahead_of_position(tables):
        by_key.setdefault(step.subject, []).append(step)
    for key, left_out in map_partitions(SpanTask(partial(_left_out, by_key), _any_of), by_key) if by_key else ():
        for step in left_out:
            last_poll = step._replace(f="was_given", number=step.position - 1, group="", member="")
            yield StepFinding(Rule.COMMIT_AHEAD, key, step.number, step, last_poll)


def _any_of(parts: list[list[Step]]) -> list[Step]:
    return sorted({step for part in parts for step in part}, key=attrgetter("returned"))


def _left_out(steps: Mapping[str, list[Step]], key: str, view: View) -> list[Step]:
    """Return the commits with known records between the position of the process and the committed offset."""
    known, mine = view.durable_offsets, steps[key]
    bounds = (np.array([getattr(step, name) for step in mine], np.int64) for name in ("position", "number"))
    first, end = (np.searchsorted(known, bound) for bound in bounds)
    return [step for step, skipped in zip(mine, end > first, strict=True) if skipped]


# --------------------------------------------------------------------------------------------------
# Cluster metadata: epoch-safety and duplicate-producer-id.


def epoch_safety(tables: Tables) -> Iterator[StepFinding]:
    """Find epoch-safety. Metadata is cached, so an epoch may be smaller at another broker, but not at the same one."""
    reports = [step for step in tables.of("metadata") if step.status is Status.OK and step.epoch >= 0]
    leaders: dict[tuple[str, int], Step] = {}
    blamed = set()
    for step in reports:
        if step.number < 0:
            continue
        first = leaders.setdefault((step.subject, step.epoch), step)
        if first.number != step.number and (step.subject, step.epoch) not in blamed:
            blamed.add((step.subject, step.epoch))
            yield StepFinding(Rule.EPOCH_SAFETY, step.subject, step.epoch, step, first)
    by_teller: dict[tuple[str, str], list[Step]] = {}
    for step in reports:
        if step.node:
            by_teller.setdefault((step.node, step.subject), []).append(step)
    for mine in by_teller.values():
        for late, early in epoch_decreases(mine, mine):
            yield StepFinding(Rule.EPOCH_SAFETY, late.subject, late.epoch, late, early)


def duplicate_producer_ids(tables: Tables) -> Iterator[StepFinding]:
    """Find duplicate-producer-id: a producer id and epoch, or an older epoch of a transactional id, is given again.

    One process may get the same id twice if it retries a request without a reply.
    """
    owners: dict[tuple[int, int], Step] = {}
    given = [step for step in tables.of("init_producer") if step.status is Status.OK and step.number >= 0]
    for step in sorted(given, key=attrgetter("returned")):
        owner = owners.setdefault((step.number, step.epoch), step)
        if owner.process != step.process:
            yield StepFinding(Rule.DUPLICATE_PRODUCER_ID, step.subject, step.number, step, owner)
    for mine in _by_transactional_id(given).values():
        for number in {step.number for step in mine}:
            same_id = [step for step in mine if step.number == number]
            for late, early in epoch_decreases(same_id, same_id):
                yield StepFinding(Rule.DUPLICATE_PRODUCER_ID, late.subject, late.number, late, early)


def fenced_commits(tables: Tables) -> Iterator[StepFinding]:
    """Find zombie-commit (of a producer): a commit was accepted after InitProducerId had fenced its producer (KIP-98).

    The epoch of a producer may also grow with each EndTxn (KIP-890), so that its own InitProducerId is the last one
    that returned an epoch of its producer id that is not larger.
    """
    given = [step for step in tables.of("init_producer") if step.status is Status.OK and step.number >= 0]
    by_name = _by_transactional_id(given)
    for end in tables.of("end_txn"):
        if end.status is not Status.OK or end.text != "commit" or end.epoch < 0:
            continue
        before = [step for step in by_name.get(end.subject, ()) if step.returned < end.invoked]
        own = [step for step in before if step.number == end.number and step.epoch <= end.epoch]
        since = max((step.returned for step in own), default=int(NEVER))
        fencing = next((step for step in before if step.invoked > since and step not in own), None)
        if fencing is not None:
            yield StepFinding(Rule.ZOMBIE_COMMIT, end.subject, end.number, end, fencing)


def _by_transactional_id(given: list[Step]) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = {}
    for step in given:
        if step.subject:
            found.setdefault(step.subject, []).append(step)
    return found

"""Check a whole run: rules over several partitions, and over the tables of transactions, groups and the cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from highwater.reports.columns import NEVER, NOTHING, TOMBSTONE, UNKNOWN, Fate, Ints, Kind, Status
from highwater.reports.rules import run
from highwater.reports.rules.checks import committed, cycles, group_reads, groups
from highwater.reports.rules.division import ColumnTask, FirstPass, PartitionMap, SpanTask
from highwater.reports.rules.findings import NO_ROW, Mask, Promise, RuleFindings, Weight, no_second_witness
from highwater.reports.rules.partition import CANDIDATES, READS
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.step_findings import StepFinding, epoch_decreases
from highwater.reports.rules.view import View
from highwater.reports.tables import Step, Tables

ByPartition = list[tuple[str, RuleFindings]]


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
    by_committed_offsets = list(_by_committed_offsets(map_partitions, tables, findings))
    findings_of_several = (
        *by_committed_offsets,
        *_torn(map_partitions, findings),
        *_circles(map_partitions, tables, findings),
        *(without_place(map_partitions) if without_offset and not promise.compaction else ()),
    )
    return [*plain, *((key, finding) for key, finding in findings_of_several if len(finding.first))], [
        *groups.committed_offsets(tables, promise),
        *_ahead(map_partitions, tables),
        *_skipping(map_partitions, tables, promise, by_committed_offsets),
        *groups.zombie_commits(tables, offset_expiry=promise.offset_expiry),
        *run.fenced_commits(tables),
        *groups.double_ownership(tables, offset_expiry=promise.offset_expiry),
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
        txns = np.unique(np.concatenate([*passed.values()]))
        parts = [part for _, part in map_partitions(SpanTask(partial(_visible, txns), _both_of))]
        certain, perhaps = _both_of(parts)
        for key, finding in candidates.items():
            torn = np.isin(passed[key], certain)
            torn_rows[key] = finding.first[torn]
            yield key, finding.where(torn)
            yield key, replace(finding.where(np.isin(passed[key], perhaps) & ~torn), weight=Weight.UNDECIDED)
    for key, finding in findings:
        if finding.rule == Rule.LOST_WRITE:
            yield key, finding.where(~np.isin(finding.first, torn_rows.get(key, ())))


def _transactions(rows: Mapping[str, Ints], key: str, view: View) -> Ints:
    txns: Ints = view.ops.txn[rows[key]]
    return txns


def _both_of(parts: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Concatenate the columns of all parts."""
    first, second = zip((NOTHING, NOTHING), *parts, strict=True)
    return np.concatenate(first), np.concatenate(second)


def _visible(txns: Ints, _: str, view: View) -> tuple[Ints, Ints]:
    return committed.visible(view, txns) if view.has_transactions else (NOTHING, NOTHING)


# -- records whose place is unknown ------------------------------------------------------------------------------


def without_place(map_partitions: PartitionMap) -> Iterator[tuple[str, RuleFindings]]:
    """Find lost-write and unseen among acknowledged sends without an offset.

    They belong to no span of a divided partition. A record is missing if fewer records of its value were received, at
    offsets that no acknowledgement names, than such sends were acknowledged; it is lost if reads passed all offsets.
    """
    sent = {
        key: found
        for key, found in map_partitions(ColumnTask(_acknowledged_without_offset, WITHOUT_PLACE))
        if found.row.size
    }
    if not sent:
        return
    for key, (read, _) in map_partitions(SpanTask(_records_without_place, _both_of), sent):
        found = sent[key]
        values, of, count = np.unique(found.value, return_inverse=True, return_counts=True)
        received = np.searchsorted(np.sort(read), values, "right") - np.searchsorted(np.sort(read), values, "left")
        missing = (count > received)[of]
        lost = missing & (found.value != TOMBSTONE) & (found.passed_by != NO_ROW)
        for rule, mask, second in (
            (Rule.LOST_WRITE, lost, found.passed_by),
            (Rule.UNSEEN, missing & ~lost & found.visible, no_second_witness(found.row)),
        ):
            if np.any(mask):
                yield key, RuleFindings(rule, found.row[mask], second[mask], np.full(np.count_nonzero(mask), UNKNOWN))


WITHOUT_PLACE: Final = (
    *READS, "offset", "value", "txn", "high_watermark", "quiet", "node", "leader_epoch", "log_start_offset",
    "isolation", "at_ms", "calm_ms", "open_ms",
)  # fmt: skip


class WithoutPlace(NamedTuple):
    """Acknowledged sends without an offset, as columns."""

    row: Ints
    value: Ints
    visible: Mask  # readers of either isolation level must see the record
    passed_by: Ints  # the read that proves the end if reads that must see the record passed all offsets, else `NO_ROW`


def _acknowledged_without_offset(_: str, view: View) -> WithoutPlace:
    """Return the acknowledged sends without an offset."""
    ops = view.ops
    rows = np.flatnonzero((ops.kind == Kind.SEND) & (ops.status == Status.OK) & (ops.offset == UNKNOWN))
    visible = (ops.txn[rows] == UNKNOWN) | (ops.fate[rows] == Fate.COMMITTED)
    by = np.where(
        visible, view.passed_everything(rows), view.passed_everything(rows, view.sees_uncommitted[view.covered[0]])
    )
    return WithoutPlace(view.to_partition_rows(rows), ops.value[rows], visible, view.to_partition_rows(by))


def _records_without_place(_: str, view: View) -> tuple[Ints, Ints]:
    """Return (value, offset) of the records of sends without an offset that reads received, each once.

    Reads of any outcome count: with an offset from a failed read, the other rules judge the send.
    """
    ops, sends, writer = view.ops, view.sends, view.writer
    exact = (writer != NO_ROW) & (ops.status[writer] == Status.OK) & (ops.offset[writer] == ops.record_offset)
    mine = view.read_value & ~exact & view.in_span(ops.record_offset)
    mine &= np.isin(ops.record_value, ops.value[sends[ops.offset[sends] == UNKNOWN]])
    value, offset = np.unique(np.stack([ops.record_value[mine], ops.record_offset[mine]]), axis=1)
    return value, offset


# -- G1c -----------------------------------------------------------------------------------------


def _circles(map_partitions: PartitionMap, tables: Tables, findings: ByPartition) -> Iterator[tuple[str, RuleFindings]]:
    """Find G1c: one finding per cycle, searched only in the spans of the candidates."""
    candidates = [finding for _, finding in findings if finding.rule == Rule.G1C]
    if not candidates:
        return
    low, high = cycles.spans(*(np.concatenate([getattr(c, name) for c in candidates]) for name in ("first", "second")))
    edges = dict(map_partitions(SpanTask(partial(_edges_within, low, high), _merged)))
    keys = list(edges)
    parts = [cycles.of_partitions(list(kind)) for kind in zip(*edges.values(), strict=True)]
    certain, wr, ww = (_committed(part, tables) for part in parts)
    known = set[int]()
    for chosen, weight in (
        (certain, Weight.VIOLATION),
        (wr, Weight.UNDECIDED),
        (cycles.join([wr, ww]), Weight.INFORMATION),
    ):
        for circle in cycles.circles(chosen):
            nodes = set(chosen.source[circle].tolist())
            if not nodes & known:
                known |= nodes
                place = circle[:1]
                yield (
                    keys[int(chosen.part[place[0]])],
                    RuleFindings(Rule.G1C, chosen.first[place], chosen.second[place], chosen.offset[place], weight),
                )


Edges3 = tuple[cycles.Edges, cycles.Edges, cycles.Edges]
NO_EDGES: Final[Edges3] = (cycles.join([]), cycles.join([]), cycles.join([]))


def _edges_within(low: Ints, high: Ints, _: str, view: View) -> Edges3:
    return cycles.within(view, low, high) if view.has_transactions else NO_EDGES


def _merged(parts: list[Edges3]) -> Edges3:
    certain, reads, writes = (cycles.once(cycles.join(list(kind))) for kind in zip(NO_EDGES, *parts, strict=True))
    return certain, reads, writes


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
    if not by_key:
        return
    polls = dict(map_partitions(ColumnTask(partial(_polls_before, by_key), POLLS), by_key))
    for key, left_out in map_partitions(SpanTask(partial(_left_out, polls), _any_of), by_key):
        for step, poll in sorted(left_out, key=lambda pair: pair[0].returned):
            before = poll.step or groups.assignment_before(tables, step) or step
            yield StepFinding(Rule.COMMIT_AHEAD, key, step.number, step, before)


POLLS: Final = (*READS, "isolation")


class LastPoll(NamedTuple):
    """The poll before a commit, None without one, and whether its reader must see the records of all transactions."""

    step: Step | None
    sees_uncommitted: bool


CommitAndPoll = tuple[Step, LastPoll]


def _polls_before(steps: Mapping[str, list[Step]], key: str, view: View) -> list[CommitAndPoll]:
    """Return each commit with the last poll of its process before it."""
    return [(step, _poll_before(step, view)) for step in steps[key]]


def _poll_before(commit: Step, view: View) -> LastPoll:
    ops, rows = view.ops, view.reading.row
    mine = rows[(ops.process[rows] == commit.process) & (ops.returned[rows] < commit.invoked)]
    if not len(mine):
        return LastPoll(None, sees_uncommitted=False)
    last = mine[np.argmax(ops.returned[mine])]
    times = int(ops.invoked[last]), int(ops.returned[last])
    poll = Step("poll", *times, commit.process, Status.OK, commit.subject, commit.position - 1)
    return LastPoll(poll, bool(view.sees_uncommitted[last]))


def _any_of(parts: list[list[CommitAndPoll]]) -> list[CommitAndPoll]:
    return list({pair for part in parts for pair in part})


def _left_out(commits: Mapping[str, list[CommitAndPoll]], key: str, view: View) -> list[CommitAndPoll]:
    """Return the commits with known records between the position of the process and the committed offset."""

    def skips(step: Step, poll: LastPoll) -> bool:
        known = view.returned_offsets if poll.sees_uncommitted else view.durable_offsets
        first, end = np.searchsorted(known, [step.position, step.number])
        return bool(end > first)

    return [pair for pair in commits[key] if skips(*pair)]


# -- silent-reset: beyond the committed offset ------------------------------------------------------------


def _skipping(
    map_partitions: PartitionMap, tables: Tables, promise: Promise, known: ByPartition
) -> Iterator[StepFinding]:
    """Find silent-reset: a member resumed beyond each offset that its group may have committed, and skipped records.

    `known` are the findings about members that resumed beyond the position of their group.
    """
    by_key: dict[str, list[group_reads.Resumed]] = {}
    for resumed in group_reads.beyond_commits(tables, promise) if not promise.compaction else ():
        by_key.setdefault(resumed.step.subject, []).append(resumed)
    if not by_key:
        return
    of_key = {
        key: [found for place, found in known if place == key and found.rule == Rule.SILENT_RESET] for key in by_key
    }
    task = ColumnTask(partial(group_reads.reads_of, of_key), group_reads.COLUMNS)
    blamed = {key: {int(at) for each in reads for at in each.returned} for key, reads in map_partitions(task, by_key)}
    for key, found in map_partitions(SpanTask(partial(group_reads.skipping, by_key), group_reads.smallest), by_key):
        new = [pair for pair in found if pair[0].step.returned not in blamed[key]]
        for resumed, offset in sorted(new, key=lambda pair: pair[0].step.returned):
            yield StepFinding(Rule.SILENT_RESET, key, offset, resumed.step, resumed.proof, resumed.weight)


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
    for end in _accepted_commits(tables):
        before = [step for step in by_name.get(end.subject, ()) if step.returned < end.invoked]
        own = [step for step in before if step.number == end.number and step.epoch <= end.epoch]
        since = max((step.returned for step in own), default=int(NEVER))
        fencing = next((step for step in before if step.invoked > since and step not in own), None)
        if fencing is not None:
            yield StepFinding(Rule.ZOMBIE_COMMIT, end.subject, end.number, end, fencing)


def _accepted_commits(tables: Tables) -> Iterator[Step]:
    """Yield the commits of transactions that succeeded, and of those that reads prove the first request."""
    fate, shown = tables.transactions.fate, set[int]()
    commits = [step for step in tables.of("end_txn") if step.text == "commit" and step.epoch >= 0]
    succeeded = {step.txn for step in commits if step.status is Status.OK}
    for step in sorted(commits, key=attrgetter("invoked")):
        is_first = step.status is Status.INFO and step.txn not in {UNKNOWN} | succeeded | shown
        if step.status is Status.OK or (is_first and fate[step.txn] == Fate.COMMITTED):
            shown.add(step.txn)
            yield step


def _by_transactional_id(given: list[Step]) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = {}
    for step in given:
        if step.subject:
            found.setdefault(step.subject, []).append(step)
    return found

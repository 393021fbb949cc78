"""Decide silent-reset and double-processing with what the history states of the offsets that a group committed.

A partition shows which records the members of a group received; where a member begins depends on the offsets that
were committed, which are steps of the run.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from highwater.reports.columns import ISOLATIONS, NEVER, UNKNOWN, Fate, Ints, Isolation, Status
from highwater.reports.rules.checks.groups import (
    decided_for_members,
    has_offset,
    may_have_effect,
    steps_by,
    waits_for_transactions,
)
from highwater.reports.rules.checks.polls import existing_offsets
from highwater.reports.rules.findings import Promise, RuleFindings, Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.step_findings import Writes
from highwater.reports.rules.view import View
from highwater.reports.tables import Step, Tables

DECIDED: Final = (Rule.SILENT_RESET, Rule.DOUBLE_PROCESSING)
COLUMNS: Final = ("returned", "txn", "process")
Where = tuple[str, str]  # group and partition


class Reads(NamedTuple):
    """Of each finding: when its first read returned, and its process; when the second returned, its transaction."""

    returned: Ints
    process: Ints
    since: Ints
    txn: Ints


def reads_of(findings: Mapping[str, list[RuleFindings]], key: str, view: View) -> list[Reads]:
    """Return the reads of the findings of a partition."""
    ops = view.ops
    return [
        Reads(ops.returned[found.first], ops.process[found.first], ops.returned[found.second], ops.txn[found.second])
        for found in findings[key]
    ]


class GroupOffsets:
    """The offsets that groups committed, or may have committed."""

    def __init__(self, tables: Tables) -> None:
        fate = tables.transactions.fate
        self._tables = tables
        self._written: dict[Where, list[Step]] = {}
        self._sent: dict[tuple[int, str], Step] = {}
        self.groups = {step.group for step in tables.of("commit", "committed", "send_offsets")}
        self.sends_offsets = any(True for _ in tables.of("send_offsets"))
        self._starts = {(step.subject, step.returned): step for step in tables.of("resume", "reset_to")}
        self._seeks = list(tables.of("seek"))
        for step in sorted(tables.of("commit", "committed", "send_offsets"), key=attrgetter("invoked")):
            if step.f == "send_offsets":
                where = step.txn, step.subject
                if where not in self._sent or self._sent[where].number < step.number:
                    self._sent[where] = step
            if step.number >= 0 and step.status is not Status.FAIL and not (
                step.f == "send_offsets" and fate[step.txn] == Fate.ABORTED
            ):  # fmt: skip
                self._written.setdefault((step.group, step.subject), []).append(step)

    def start_of(self, key: str, returned: int) -> Step | None:
        """Return how the reader began whose first poll of the partition returned then."""
        return self._starts.get((key, returned))

    def is_committed(self, start: Step) -> bool:
        """Return whether the group had a committed offset of the partition when a reader began."""
        return has_offset(self._tables, start.group, start, start.subject)

    def sent_beyond(self, txn: int, key: str, offset: int) -> Step | None:
        """Return the step by which a transaction sent an offset of the partition beyond this one."""
        step = self._sent.get((txn, key))
        return step if step is not None and step.number > offset else None

    def goes_back(self, where: Where, offset: int, since: int, until: int) -> bool:
        """Return whether a client may have committed this offset or a smaller one meanwhile, outside a transaction."""
        return any(
            step.f == "commit" and step.number <= offset and since < step.returned and step.invoked < until
            for step in self._written.get(where, ())
        )

    def seeks(self, process: int, key: str, offset: int, since: int, until: int) -> bool:
        """Return whether a consumer moved to this offset or a smaller one meanwhile."""
        return any(
            step.process == process and step.subject == key and step.number <= offset and since < step.returned < until
            for step in self._seeks
        )


def decide(key: str, found: RuleFindings, reads: Reads, offsets: GroupOffsets) -> Iterator[RuleFindings]:
    """Yield the findings that what the group committed does not explain, by weight."""
    weigh = _weigh_reset if found.rule is Rule.SILENT_RESET else _weigh_repetition
    weights = np.array(
        [weigh(key, int(offset), reads, slot, offsets) for slot, offset in enumerate(found.offset)], np.int64
    )
    for weight in (Weight.VIOLATION, Weight.UNDECIDED):
        chosen = np.flatnonzero(np.maximum(weights, found.weight) == weight)
        if len(chosen):
            part = found.where(chosen)
            yield RuleFindings(part.rule, part.first, part.second, part.offset, weight)


NO_FINDING: Final = max(Weight) + 1


def _weigh_reset(key: str, offset: int, reads: Reads, slot: int, offsets: GroupOffsets) -> int:
    """A reader without a committed offset begins where `auto.offset.reset` says, unless it still had its position."""
    start = offsets.start_of(key, int(reads.returned[slot]))
    if start is None or start.position != UNKNOWN or offsets.is_committed(start):
        return Weight.VIOLATION
    return NO_FINDING if start.f == "reset_to" or start.group in offsets.groups else Weight.UNDECIDED


def _weigh_repetition(key: str, offset: int, reads: Reads, slot: int, offsets: GroupOffsets) -> int:
    """A record is processed again if its offset was not sent, or if an application or an operator goes back to it."""
    if not offsets.sends_offsets:
        return Weight.UNDECIDED
    sent = offsets.sent_beyond(int(reads.txn[slot]), key, offset)
    if sent is None:
        return NO_FINDING
    since, until = int(reads.since[slot]), int(reads.returned[slot])
    goes_back = offsets.goes_back((sent.group, key), offset, since, until)
    goes_back = goes_back or offsets.seeks(int(reads.process[slot]), key, offset, since, until)
    return NO_FINDING if goes_back else Weight.VIOLATION


class Resumed(NamedTuple):
    """A member that resumed beyond `committed`, the largest offset that its group may have committed; and the proof."""

    step: Step
    committed: int
    proof: Step

    @property
    def weight(self) -> Weight:
        return Weight.UNDECIDED if self.proof.f == "send_offsets" else Weight.VIOLATION


def beyond_commits(tables: Tables, promise: Promise) -> Iterator[Resumed]:
    """Yield the members that resumed beyond each offset that their groups may have committed.

    A proof is an accepted commit or a fetched offset, which a commit may have replaced that took effect after it.
    """
    steps = [
        step for step in tables.of("resume", "commit", "committed", "send_offsets") if may_have_effect(tables, step)
    ]
    deletions = [step for step in tables.of("delete_offsets", "delete_topic") if step.status is not Status.FAIL]
    for _, mine in steps_by(steps, "group", "subject"):
        proofs = [step for step in mine if step.status is Status.OK and step.f in {"commit", "committed"}]
        decided = [*proofs, *decided_for_members(tables, mine)]
        writes = Writes((s.number, s.invoked, _effect(s)) for s in mine if s.f in {"commit", "send_offsets"})
        for resumed in (step for step in mine if step.f == "resume"):
            known = decided if waits_for_transactions(resumed, promise) else proofs
            before = [step for step in known if step.returned < resumed.invoked]
            proof = max(before, key=attrgetter("invoked"), default=None)
            if proof is None or proof.number == UNKNOWN or any(map(partial(_may_clear, proof, resumed), deletions)):
                continue
            possible = {proof.number} | writes.possible(proof.invoked, resumed.returned)
            committed = max((number for number in possible if number <= resumed.number), default=resumed.number)
            if committed < resumed.number:
                yield Resumed(resumed, committed, proof)


def _effect(step: Step) -> int:
    return step.returned if step.f == "commit" and step.status is Status.OK else int(NEVER)


def _may_clear(proof: Step, resumed: Step, deletion: Step) -> bool:
    """Return whether a deletion may have removed a committed offset before a member resumed."""
    names = {"", proof.subject, proof.subject.rpartition("-")[0]}
    named = deletion.subject in names and deletion.group in {"", proof.group}
    return named and deletion.returned > proof.invoked and deletion.invoked < resumed.returned


def skipping(resumed: Mapping[str, list[Resumed]], key: str, view: View) -> list[tuple[Resumed, int]]:
    """Return the members that skipped a record that they must see, with its offset: the first one."""
    known = {sees: existing_offsets(view, uncommitted=sees) for sees in (False, True)}
    found = []
    for each in resumed[key]:
        step = each.step
        isolation = ISOLATIONS[step.text] if step.text else view.promise.isolation
        times = np.array([step.invoked]), np.array([step.returned])
        start = NEVER if view.promise.retention else view.log_starts.possible(*times)[0]
        offsets = known[isolation == Isolation.READ_UNCOMMITTED]
        slot = np.searchsorted(offsets, max(each.committed, start))
        if slot < len(offsets) and offsets[slot] < step.number:
            found.append((each, int(offsets[slot])))
    return found


def smallest(parts: list[list[tuple[Resumed, int]]]) -> list[tuple[Resumed, int]]:
    """Return what the spans found, with the smallest offset of each member."""
    found: dict[Resumed, int] = {}
    for each, offset in (pair for part in parts for pair in part):
        found[each] = min(offset, found.get(each, offset))
    return list(found.items())

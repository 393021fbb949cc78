"""Check group coordinators: committed offsets, generations of members, partition ownership, stuck rebalances."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, Final

from highwater.reports.columns import ISOLATIONS, NEVER, UNKNOWN, Fate, Isolation, Status
from highwater.reports.rules.findings import Promise, Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.step_findings import Proofs, StepFinding, Writes, epoch_decreases
from highwater.reports.tables import Step, Tables

UNSTATED_PATIENCE_MS: Final = 60_000
UNSTATED: Final = Promise()
REBALANCING: Final = {"PreparingRebalance", "CompletingRebalance"}


def steps_by(steps: list[Step], *names: str) -> Iterator[tuple[Any, list[Step]]]:
    """Group steps by these fields; each group is in the order of invocation."""
    ordered = sorted(steps, key=attrgetter(*names, "invoked"))
    for key, mine in groupby(ordered, attrgetter(*names)):
        yield key, list(mine)


OF_GROUPS: Final = ("commit", "committed", "send_offsets", "resume", "reset_to", "sync", "assign", "delete_offsets")


def with_names(tables: Tables) -> Tables:
    """Return the tables with the name of the only group in steps that name none."""
    names = {step.group for step in tables.of(*OF_GROUPS)}
    if "" not in names or len(names) != 2:
        return tables
    (name,) = names - {""}
    named = {f: [step if step.group else step._replace(group=name) for step in tables.of(f)] for f in OF_GROUPS}
    return replace(tables, steps={**tables.steps, **{f: mine for f, mine in named.items() if mine}})


def _certain(known: bool) -> Weight:
    return Weight.VIOLATION if known else Weight.INFORMATION


# -- committed offsets -------------------------------------------------------------------------------


def committed_offsets(tables: Tables, promise: Promise = UNSTATED) -> Iterator[StepFinding]:
    """Find committed-offset-regression, forgotten-commit and aborted-offsets-visible, which includes rejected commits.

    The last commit counts, even if it goes back. So a fetched offset that is not the proved one needs a commit of
    exactly this offset that may have taken effect after the proof.
    """
    steps = [step for step in tables.of("commit", "committed", "send_offsets", "resume", "delete_offsets")
             if step.status is not Status.FAIL or step.f == "commit"]  # fmt: skip
    groups = [step for step in steps if step.f == "delete_offsets" and not step.subject]
    topics = list(tables.of("delete_topic"))
    ends = _Ends(tables, promise.patience_ms)
    for (group, key), mine in steps_by(steps, "group", "subject"):
        cleared = [deletion for deletion in groups if deletion.group == group]
        cleared += [deletion for deletion in topics if deletion.subject == key.rpartition("-")[0]]
        yield from _offsets_of_one(tables, mine, cleared, ends, promise)


class _Ends:
    """When the offsets of a transaction are visible: its marker follows the reply to EndTxn.

    The markers of a transaction precede the next successful request of its producer, and, as long as there is no fault,
    follow within `patience_ms`; of a history that does not state it, findings after a minute are undecided.
    """

    def __init__(self, tables: Tables, patience_ms: int) -> None:
        self.patience_ms = patience_ms if patience_ms >= 0 else UNSTATED_PATIENCE_MS
        self.weight = Weight.VIOLATION if patience_ms >= 0 else Weight.UNDECIDED
        fate = tables.transactions.fate
        ended = [
            step for step in tables.of("end_txn")
            if step.status is Status.OK or (step.status is Status.INFO and fate[step.txn] == Fate.COMMITTED)
        ]  # fmt: skip
        self._committed = {step.txn: step for step in ended if step.text == "commit" and step.status is Status.OK}
        self._complete: dict[int, int] = {}
        sent: dict[int, int] = {}
        for step in tables.of("send_offsets"):
            if step.status is Status.OK:
                sent[step.txn] = min(sent.get(step.txn, int(NEVER)), step.returned)
        for _, mine in steps_by([step for step in ended if step.subject], "subject"):
            for step, following in pairwise(mine):
                if following.txn in sent and step.returned < following.invoked:
                    self._complete[step.txn] = sent[following.txn]

    def effect(self, step: Step) -> int:
        """Return the event index by which a step took effect."""
        if step.f == "send_offsets":
            return self._complete.get(step.txn, int(NEVER))
        return step.returned if step.status is Status.OK else int(NEVER)

    def sure_ms(self, step: Step) -> int:
        """Return the time from which the offsets of a committed transaction are visible without faults."""
        end = self._committed.get(step.txn)
        return int(NEVER) if end is None else end.at_ms + self.patience_ms


def _is_committed(tables: Tables, step: Step) -> bool:
    return tables.transactions.fate[step.txn] == Fate.COMMITTED


def may_have_effect(tables: Tables, step: Step) -> bool:
    """Return whether a step was not rejected, and is not of a transaction that is known to be aborted."""
    aborted = step.f == "send_offsets" and tables.transactions.fate[step.txn] == Fate.ABORTED
    return step.status is not Status.FAIL and not aborted


def _offsets_of_one(
    tables: Tables, steps: list[Step], cleared: list[Step], ends: _Ends, promise: Promise
) -> Iterator[StepFinding]:
    taken_back = {step.number: step for step in steps if not may_have_effect(tables, step)}
    relevant = [step for step in steps if may_have_effect(tables, step)]
    written = [step for step in relevant if step.f in {"commit", "send_offsets"}]
    reads = [step for step in relevant if step.f in {"committed", "resume"} and step.status is Status.OK]
    aborted = _aborted_fetches(reads, taken_back, written)
    for step in aborted:
        yield StepFinding(Rule.ABORTED_OFFSETS_VISIBLE, step.subject, step.number, step, taken_back[step.number])
    proofs = sorted((step for step in relevant if _proves(step) and step not in aborted), key=attrgetter("returned"))
    credible = [step for step in reads if step not in aborted]
    suspects = [(*pair, Weight.VIOLATION) for pair in _fetches_of_another_offset(credible, proofs)]
    suspects += _resumes_before_a_marker(tables, credible, written, promise)
    suspects += _fetches_long_after_a_commit(credible, written, ends, {read for read, _, _ in suspects})
    deleted = [*(s for s in relevant if s.f == "delete_offsets"), *cleared]
    writes = Writes((s.number, s.invoked, ends.effect(s)) for s in written)
    clears = Writes((UNKNOWN, s.invoked, ends.effect(s)) for s in deleted)
    for read, deletion in _fetches_of_deleted_offsets(credible, deleted):
        if read.number in writes and not writes.explain(read.number, deletion.invoked, read.returned):
            yield StepFinding(Rule.ABORTED_OFFSETS_VISIBLE, read.subject, read.number, read, deletion)
    unexplained = [each for each in suspects if not _explained(*each[:2], writes, clears)]
    for read, commit in _fetches_of_unknown_offsets(credible, relevant, {read for read, _, _ in unexplained}, promise):
        yield StepFinding(Rule.ABORTED_OFFSETS_VISIBLE, read.subject, read.number, read, commit)
    blamed = set()
    for read, proof, weight in unexplained:
        if read not in blamed:
            blamed.add(read)
            lost = read.number == UNKNOWN
            rule = Rule.FORGOTTEN_COMMIT if lost else Rule.COMMITTED_OFFSET_REGRESSION
            # Without any recorded commit the offsets are those of a client that the history does not record.
            known = Weight.VIOLATION if lost or written else Weight.UNDECIDED
            yield StepFinding(rule, read.subject, read.number, read, proof, max(weight, known))


def _aborted_fetches(reads: list[Step], taken_back: dict[int, Step], written: list[Step]) -> list[Step]:
    """Return fetches of an offset that was written only by an aborted transaction."""
    if not taken_back:
        return []
    numbers = {step.number for step in written}
    return [s for s in reads if s.f == "committed" and s.number in taken_back and s.number not in numbers]


def _fetches_of_another_offset(reads: list[Step], proofs: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Yield (fetch, proof): fetches of another offset than one proved before, with the latest-invoked such proof.

    A smaller one shows that the fetched offset had been replaced; where a member resumes, it may have skipped markers.
    """
    larger, smaller, place = Proofs(), Proofs(sign=-1), 0
    for read in reads:
        while place < len(proofs) and proofs[place].returned < read.invoked:
            larger.add(proofs[place])
            smaller.add(proofs[place])
            place += 1
        for proof in (larger.beyond(read.number), smaller.beyond(read.number) if read.f == "committed" else None):
            if proof is not None:
                yield read, proof


def _resumes_before_a_marker(
    tables: Tables, reads: list[Step], written: list[Step], promise: Promise
) -> Iterator[tuple[Step, Step, Weight]]:
    """Yield (resume, send_offsets, weight): a member resumed below offsets that a committed transaction had sent."""
    sent = sorted(decided_for_members(tables, written), key=attrgetter("returned"))
    so_far, place = Proofs(), 0
    for read in (step for step in reads if sent and waits_for_transactions(step, promise)):
        while place < len(sent) and sent[place].returned < read.invoked:
            so_far.add(sent[place])
            place += 1
        proof = so_far.beyond(read.number)
        if proof is not None:
            yield read, proof, Weight.UNDECIDED


def decided_for_members(tables: Tables, steps: list[Step]) -> Iterator[Step]:
    """Yield the accepted send_offsets of committed transactions."""
    sent = (step for step in steps if step.f == "send_offsets" and step.status is Status.OK)
    return (step for step in sent if _is_committed(tables, step))


def waits_for_transactions(step: Step, promise: Promise) -> bool:
    """Return whether a member that resumes waits until all transactions that sent offsets are decided (KIP-447).

    Consumers with read_committed do, but for older ones, so that findings which depend on it are undecided.
    """
    isolation = ISOLATIONS[step.text] if step.f == "resume" and step.text else promise.isolation
    return step.f == "resume" and isolation == Isolation.READ_COMMITTED


def _fetches_long_after_a_commit(
    reads: list[Step], written: list[Step], ends: _Ends, known: set[Step]
) -> Iterator[tuple[Step, Step, Weight]]:
    """Yield (fetch, proof, weight): fetches of an offset below one of a transaction that was committed long before."""
    sent = sorted((step for step in written if step.f == "send_offsets"), key=ends.sure_ms)
    so_far, place = Proofs(), 0
    for read in sorted(reads, key=_invoked_ms) if sent else ():
        while place < len(sent) and ends.sure_ms(sent[place]) < _invoked_ms(read):
            so_far.add(sent[place])
            place += 1
        proof = so_far.beyond(read.number)
        if proof is not None and read.calm_ms - read.open_ms > ends.patience_ms and read not in known:
            yield read, proof, ends.weight


def _invoked_ms(step: Step) -> int:
    return step.at_ms - step.open_ms


def _fetches_of_deleted_offsets(reads: list[Step], deleted: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Yield (fetch, deletion): fetches of an offset, with the last deletion that had succeeded before."""
    done = sorted((s for s in deleted if s.f == "delete_offsets" and s.status is Status.OK), key=attrgetter("returned"))
    for read in reads:
        place = bisect_left(done, read.invoked, key=attrgetter("returned"))
        if place and read.f == "committed" and read.number != UNKNOWN:
            yield read, done[place - 1]


def _fetches_of_unknown_offsets(
    reads: list[Step], relevant: list[Step], known: set[Step], promise: Promise
) -> Iterator[tuple[Step, Step]]:
    """Yield (fetch, commit): fetches of an offset that no client had committed, with the last accepted commit before.

    Without an accepted commit clients may have committed that the history does not have, unless it states `complete`.
    """
    written = Writes((s.number, s.invoked, int(NEVER)) for s in relevant if s.f in {"commit", "send_offsets"})
    accepted = [step for step in relevant if step.f == "commit" and step.status is Status.OK]
    accepted.sort(key=attrgetter("returned"))
    for read in reads:
        if read.f == "committed" and read.number != UNKNOWN and read not in known:
            place = bisect_left(accepted, read.invoked, key=attrgetter("returned"))
            if (place or promise.complete) and not written.begun(read.number, read.returned):
                yield read, accepted[place - 1] if place else read


def _proves(step: Step) -> bool:
    return step.status is Status.OK and step.number != UNKNOWN and step.f in {"commit", "committed"}


def _explained(read: Step, proof: Step, writes: Writes, clears: Writes) -> bool:
    if clears.explain(UNKNOWN, proof.invoked, read.returned):
        return True
    if read.number > proof.number and not writes.begun(read.number, read.returned):
        return True  # no client had committed it: aborted-offsets-visible
    if read.f == "resume":
        return writes.explain_at_most(read.number, proof.invoked, read.returned)
    return writes.explain(read.number, proof.invoked, read.returned)


def ahead_of_position(tables: Tables) -> list[Step]:
    """Return candidates of commit-ahead: commits beyond the position. Only markers and holes may lie between."""
    accepted = [*(s for s in tables.of("commit") if s.status is Status.OK), *_proved_by_fetches(tables)]
    return [step for step in accepted if step.position != UNKNOWN and step.number > step.position]


def assignment_before(tables: Tables, commit: Step) -> Step | None:
    """Return the last assignment or seek of a process to the partition that it committed."""
    mine = [
        step for step in tables.of("assign", "seek")
        if (step.process, step.subject) == (commit.process, commit.subject) and step.returned < commit.invoked
    ]  # fmt: skip
    return max(mine, key=attrgetter("returned"), default=None)


# -- members -----------------------------------------------------------------------------------------


def zombie_commits(tables: Tables, *, offset_expiry: bool = False) -> Iterator[StepFinding]:
    """Find zombie-commit: an old generation of a partition was served after a newer one was proved.

    A SyncGroup reply or an accepted commit proves a generation: the coordinator has stored it. If only another
    partition proves it the finding is undecided: members of a consumer group (KIP-848) each have their own epoch.

    A group whose last offset has gone is removed, and begins again at generation 1: earlier proofs count no more.

    Offsets of a transaction count as a commit if they came with a member (KIP-447).
    """
    steps = [s for s in tables.of("commit", "sync", "send_offsets") if s.status is Status.OK]
    steps = [s for s in [*steps, *_proved_by_fetches(tables)] if s.epoch >= 0]
    steps = [s for s in steps if s.f != "send_offsets" or s.member]
    for group, mine in steps_by(steps, "group"):
        returned = list(_returned_to(mine))
        alive = {late: not offset_expiry and has_offset(tables, str(group), late) for late, _ in returned}
        begins = sorted(late.invoked for late, _ in returned)
        blamed = set()
        for late, early, weight in (
            *((late, early, Weight.VIOLATION) for late, early in returned if alive[late]),
            *_of_old_generations(mine, begins),
            *_after_another_assignment(tables, str(group), mine, offset_expiry=offset_expiry),
        ):
            if (late.invoked, late.returned) not in blamed:
                blamed.add((late.invoked, late.returned))
                yield StepFinding(Rule.ZOMBIE_COMMIT, late.subject, late.number, late, early, weight)


def _returned_to(steps: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Yield (late, early): SyncGroup replies of an older generation than one that was proved for their partition."""
    for _, mine in steps_by(steps, "subject"):
        yield from epoch_decreases(mine, [step for step in mine if step.f == "sync"])


def _of_old_generations(steps: list[Step], begins: list[int]) -> Iterator[tuple[Step, Step, Weight]]:
    """Yield (late, early, weight): commits of an older generation than was proved since the group began again."""
    lives: dict[int, list[Step]] = {}
    for step in steps:
        lives.setdefault(bisect_right(begins, step.invoked), []).append(step)
    for life in lives.values():
        for _, mine in steps_by(life, "subject"):
            for late, early in epoch_decreases(mine, [step for step in mine if step.f != "sync"]):
                yield late, early, Weight.VIOLATION
    for life in lives.values():
        for late, early in epoch_decreases(life, [step for step in life if step.f != "sync"]):
            yield late, early, Weight.UNDECIDED


def _after_another_assignment(
    tables: Tables, group: str, steps: list[Step], *, offset_expiry: bool
) -> Iterator[tuple[Step, Step, Weight]]:
    """Yield (late, early, weight): commits of an older generation than that in which another member got the partition.

    Every protocol rejects them. If the group may have begun again in the meantime the finding is undecided: nothing was
    committed, and the member was not assigned its generation before.
    """
    assigned = [step for step in tables.of("assign") if step.group == group and step.epoch >= 0 and step.member]
    commits = [step for step in steps if step.f != "sync" and step.member]
    for (member, subject), mine in steps_by(commits if assigned else [], "member", "subject"):
        others = [step for step in assigned if step.subject == subject and step.member != member]
        for late, early in epoch_decreases(others, mine):
            own = [step for step in assigned if step.member == member and step.returned < late.invoked]
            held = own and own[-1].epoch == late.epoch and own[-1].returned < early.returned
            sure = held or (not offset_expiry and has_offset(tables, group, early))
            yield late, early, Weight.VIOLATION if sure else Weight.UNDECIDED


def _proved_by_fetches(tables: Tables) -> Iterator[Step]:
    """Yield commits of unknown outcome that took effect: their offset was fetched, and no other client wrote it."""
    unsure = [s for s in tables.of("commit") if s.status is Status.INFO]
    if not unsure:
        return
    fetched: dict[tuple[str, str, int], int] = {}
    for step in tables.of("committed"):
        if step.status is Status.OK:
            where = (step.group, step.subject, step.number)
            fetched[where] = max(fetched.get(where, UNKNOWN), step.returned)
    written = Counter(
        (step.group, step.subject, step.number) for step in tables.of("commit", "send_offsets")
        if step.status is not Status.FAIL
    )  # fmt: skip
    for step in unsure:
        where = (step.group, step.subject, step.number)
        if written[where] == 1 and fetched.get(where, UNKNOWN) > step.invoked:
            yield step


def has_offset(tables: Tables, group: str, late: Step, subject: str = "") -> bool:
    """Return whether an offset of the group was committed before a step, and no client may have deleted it since.

    With `subject` only offsets of that partition count that every consumer sees. A group also stays for the offsets of
    a transaction that are not visible yet.
    """
    deletions = [s for s in tables.of("delete_offsets", "delete_topic") if s.status is not Status.FAIL]

    def is_deleted(commit: Step) -> bool:
        names = {commit.subject, commit.subject.rpartition("-")[0]}
        return any(s.subject in names and s.group in {"", group} and s.invoked > commit.invoked for s in deletions)

    sent = [step for step in tables.of("send_offsets") if not subject and _is_committed(tables, step)]
    return any(
        step.group == group and subject in {"", step.subject} and step.number >= 0
        and step.returned <= late.invoked and not is_deleted(step)
        for step in (*tables.of("commit", "committed"), *sent)
        if step.status is Status.OK
    )  # fmt: skip


def double_ownership(tables: Tables, *, offset_expiry: bool = False) -> Iterator[StepFinding]:
    """Find double-ownership in SyncGroup replies, in accepted commits, and in assignments seen by members."""
    yield from _granted_twice(tables, offset_expiry=offset_expiry)
    yield from _commits_interleave(tables)
    yield from _believed_twice(tables, offset_expiry=offset_expiry)
    if not offset_expiry:
        yield from _believed_again(tables)


def _granted_twice(tables: Tables, *, offset_expiry: bool) -> Iterator[StepFinding]:
    """Find two members that own a partition in one generation.

    A coordinator stores a generation before it replies, so that another one continues behind it; but a group without
    committed offsets may have been removed, and generations begin again: undecided.
    """
    grants = [s for s in tables.of("sync") if s.status is Status.OK and s.subject and s.epoch >= 0]
    for _, mine in steps_by(grants, "group", "epoch", "subject"):
        by_one = next((pair for _, granted in steps_by(mine, "group", "node") if (pair := _two_members(granted))), None)
        pair = by_one or _two_members(mine)
        if pair is not None:
            alive = not offset_expiry and has_offset(tables, pair[1].group, pair[1])
            weight = Weight.VIOLATION if by_one or alive else Weight.UNDECIDED
            yield StepFinding(Rule.DOUBLE_OWNERSHIP, pair[1].subject, pair[1].epoch, pair[1], pair[0], weight)


def _two_members(grants: list[Step]) -> tuple[Step, Step] | None:
    other = next((step for step in grants if step.member != grants[0].member), None)
    return None if other is None else (grants[0], other)


def _commits_interleave(tables: Tables) -> Iterator[StepFinding]:
    """Find commits of two members that alternate within one generation."""
    commits = [s for s in tables.of("commit") if s.status is Status.OK and s.epoch >= 0 and s.member]
    for _, mine in steps_by(commits, "group", "subject", "epoch"):
        if all(step.member == mine[0].member for step in mine):
            continue
        first: dict[str, Step] = {}
        for step in mine:
            since = first.setdefault(step.member, step)  # keep the commit with the earliest reply
            if step.returned < since.returned:
                first[step.member] = step
            between = [s for s in mine if s.member != step.member and s.invoked > since.returned]
            other = next((s for s in between if s.returned < step.invoked), None)
            if other is not None:
                yield StepFinding(Rule.DOUBLE_OWNERSHIP, step.subject, step.number, step, other)
                break


def _believed_twice(tables: Tables, *, offset_expiry: bool) -> Iterator[StepFinding]:
    """Find two members that hold a partition at once, or one after the other in one generation of a group that lasts.

    A violation if it is one generation, or if the older member still commits. A member that holds it from an earlier
    generation than the other is a zombie, which is information.
    """
    ends = list(tables.of("revoke", "lost", "crash", "assign"))
    last: dict[int, list[Step]] = {}
    for step in sorted(ends, key=attrgetter("returned")):
        last.setdefault(step.process, []).append(step)
    commits = [s for s in tables.of("commit") if s.status is Status.OK and s.epoch >= 0]
    in_groups = [s for s in tables.of("assign") if (s.group or s.epoch >= 0) and s.subject]
    for _, mine in steps_by(in_groups, "group", "subject"):
        for older, newer in pairwise(sorted(mine, key=attrgetter("returned"))):
            if older.process == newer.process:
                continue
            over = next(
                (s.returned for s in last[older.process] if s.returned > older.returned and _ends(s, older)), int(NEVER)
            )
            one_generation = newer.epoch == older.epoch >= 0
            # A static member keeps its instance id when another process takes its place.
            two_members = newer.member != older.member or not newer.member
            if over < newer.returned:
                alive = not offset_expiry and has_offset(tables, newer.group, newer)
                if one_generation and alive and two_members and older.member and newer.member:
                    yield StepFinding(Rule.DOUBLE_OWNERSHIP, newer.subject, newer.epoch, newer, older)
                continue
            live = any(
                s.process == older.process and s.subject == older.subject and s.epoch >= newer.epoch >= older.epoch >= 0
                and newer.returned < s.invoked < over for s in commits
            )  # fmt: skip
            known = _certain(live or (one_generation and two_members))
            yield StepFinding(Rule.DOUBLE_OWNERSHIP, newer.subject, newer.epoch, newer, older, known)


def _believed_again(tables: Tables) -> Iterator[StepFinding]:
    """Find two members of one generation, with other generations between them, of a group that had an offset meanwhile.

    Such a group is not removed, so that its generations do not begin again.
    """
    assigned = [s for s in tables.of("assign") if s.epoch >= 0 and s.subject and s.member]
    for _, mine in steps_by(assigned, "group", "subject"):
        moments = sorted(step.returned for step in mine)
        for _, same in steps_by(mine, "epoch"):
            for older, newer in pairwise(sorted(same, key=attrgetter("returned"))):
                between = bisect_left(moments, newer.returned) > bisect_right(moments, older.returned)
                differ = older.member != newer.member and older.process != newer.process
                if between and differ and has_offset(tables, newer.group, newer):
                    yield StepFinding(Rule.DOUBLE_OWNERSHIP, newer.subject, newer.epoch, newer, older)


def _ends(step: Step, held: Step) -> bool:
    """Return whether a step ends an assignment; a new assignment or a crash ends all assignments of the process."""
    return step.subject == held.subject or step.f in {"assign", "crash"}


def stuck_rebalances(tables: Tables, patience_ms: int) -> Iterator[StepFinding]:
    """Find stuck (of a group): it stays in a rebalance for more than `patience_ms` without faults."""
    steps = [s for s in tables.of("group") if s.status is Status.OK]
    for group, mine in steps_by(steps, "group"):
        for rebalancing, run in groupby(mine, lambda step: step.text in REBALANCING):
            steps_of_run = list(run)
            last = steps_of_run[-1]
            waited_ms = min(last.at_ms - steps_of_run[0].at_ms, last.calm_ms) - last.open_ms
            if rebalancing and len(steps_of_run) > 2 and waited_ms > patience_ms >= 0:
                yield StepFinding(Rule.STUCK, str(group), waited_ms, last, steps_of_run[0])

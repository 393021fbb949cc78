"""Check group coordinators: committed offsets, generations of members, partition ownership, stuck rebalances."""

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, Final

from highwater.reports.columns import NEVER, UNKNOWN, Fate, Status
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.step_findings import Proofs, StepFinding, Writes, epoch_decreases
from highwater.reports.tables import Step, Tables

REBALANCING: Final = {"PreparingRebalance", "CompletingRebalance"}


def _by(steps: list[Step], *names: str) -> Iterator[tuple[Any, list[Step]]]:
    """Group steps by these fields; each group is in the order of invocation."""
    ordered = sorted(steps, key=attrgetter(*names, "invoked"))
    for key, mine in groupby(ordered, attrgetter(*names)):
        yield key, list(mine)


# -- committed offsets -------------------------------------------------------------------------------


def committed_offsets(tables: Tables) -> Iterator[StepFinding]:
    """Find committed-offset-regression, forgotten-commit and aborted-offsets-visible.

    The last commit counts, even if it goes back. So a fetched offset below a proved one needs a commit of exactly this
    offset that may have taken effect after the proof.
    """
    steps = [step for step in tables.of("commit", "committed", "send_offsets", "resume", "delete_offsets")
             if step.status is not Status.FAIL]  # fmt: skip
    groups = [step for step in steps if step.f == "delete_offsets" and not step.subject]
    topics = list(tables.of("delete_topic"))
    for (group, key), mine in _by(steps, "group", "subject"):
        cleared = [deletion for deletion in groups if deletion.group == group]
        cleared += [deletion for deletion in topics if deletion.subject == key.rpartition("-")[0]]
        yield from _offsets_of_one(tables, mine, cleared)


def _offsets_of_one(tables: Tables, steps: list[Step], cleared: list[Step]) -> Iterator[StepFinding]:
    fate = tables.transactions.fate
    relevant = [step for step in steps if step.f != "send_offsets" or fate[step.txn] != Fate.ABORTED]
    taken_back = {step.number: step for step in steps if step.f == "send_offsets" and fate[step.txn] == Fate.ABORTED}
    written = [step for step in relevant if step.f in {"commit", "send_offsets"}]
    reads = [step for step in relevant if step.f in {"committed", "resume"} and step.status is Status.OK]
    aborted = _aborted_fetches(reads, taken_back, written)
    for step in aborted:
        yield StepFinding(Rule.ABORTED_OFFSETS_VISIBLE, step.subject, step.number, step, taken_back[step.number])
    proofs = sorted((step for step in relevant if _proves(step) and step not in aborted), key=attrgetter("returned"))
    suspects = list(_fetches_below_a_proof([step for step in reads if step not in aborted], proofs))
    if not suspects:
        return
    writes = Writes((s.number, s.invoked, _effect(s)) for s in written)
    deleted = [*(s for s in relevant if s.f == "delete_offsets"), *cleared]
    clears = Writes((UNKNOWN, s.invoked, _effect(s)) for s in deleted)
    # A fetched offset without a recorded commit shows an unknown client, which may have committed any offset.
    strangers = any(s.f == "committed" and s.number != UNKNOWN and s.number not in writes for s in reads)
    for read, proof in suspects:
        if not _explained(read, proof, writes, clears):
            lost = read.number == UNKNOWN
            rule = Rule.FORGOTTEN_COMMIT if lost else Rule.COMMITTED_OFFSET_REGRESSION
            known = lost or not strangers
            yield StepFinding(rule, read.subject, read.number, read, proof, not known)


def _aborted_fetches(reads: list[Step], taken_back: dict[int, Step], written: list[Step]) -> list[Step]:
    """Return fetches of an offset that was written only by an aborted transaction."""
    if not taken_back:
        return []
    numbers = {step.number for step in written}
    return [s for s in reads if s.f == "committed" and s.number in taken_back and s.number not in numbers]


def _fetches_below_a_proof(reads: list[Step], proofs: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Yield (fetch, proof): fetches of an offset below one proved before, with the latest-invoked such proof."""
    so_far, place = Proofs(), 0
    for read in reads:
        while place < len(proofs) and proofs[place].returned < read.invoked:
            so_far.add(proofs[place])
            place += 1
        proof = so_far.above(read.number)
        if proof is not None:
            yield read, proof


def _proves(step: Step) -> bool:
    return step.status is Status.OK and step.number != UNKNOWN and step.f in {"commit", "committed"}


def _effect(step: Step) -> int:
    """Return the event index by which the step took effect; offsets of a transaction wait for its marker."""
    return step.returned if step.status is Status.OK and step.f != "send_offsets" else int(NEVER)


def _explained(read: Step, proof: Step, writes: Writes, clears: Writes) -> bool:
    if clears.explain(UNKNOWN, proof.invoked, read.returned):
        return True
    if read.f == "resume":
        return writes.explain_at_most(read.number, proof.invoked, read.returned)
    return writes.explain(read.number, proof.invoked, read.returned)


def ahead_of_position(tables: Tables) -> list[Step]:
    """Return candidates of commit-ahead: commits beyond the position. Only markers and holes may lie between."""
    return [s for s in tables.of("commit") if s.status is Status.OK and s.position != UNKNOWN and s.number > s.position]


# -- members -----------------------------------------------------------------------------------------


def zombie_commits(tables: Tables) -> Iterator[StepFinding]:
    """Find zombie-commit: a commit of an older generation was accepted after a newer generation was proved.

    A SyncGroup reply or an accepted commit proves a generation: the coordinator has stored it.

    Offsets of a transaction count as a commit if they came with a member (KIP-447).
    """
    steps = [s for s in tables.of("commit", "sync", "send_offsets") if s.status is Status.OK and s.epoch >= 0]
    for _, mine in _by([s for s in steps if s.f != "send_offsets" or s.member], "group"):
        commits = [step for step in mine if step.f != "sync"]
        blamed = set()
        for late, early in epoch_decreases(mine, commits):
            if (late.invoked, late.returned) not in blamed:
                blamed.add((late.invoked, late.returned))
                yield StepFinding(Rule.ZOMBIE_COMMIT, late.subject, late.number, late, early)


def double_ownership(tables: Tables) -> Iterator[StepFinding]:
    """Find double-ownership in SyncGroup replies, in accepted commits, and in assignments seen by members."""
    yield from _granted_twice(tables)
    yield from _commits_interleave(tables)
    yield from _believed_twice(tables)


def _granted_twice(tables: Tables) -> Iterator[StepFinding]:
    """Find two members that own a partition in one generation; another coordinator may reuse a generation number."""
    grants = [s for s in tables.of("sync") if s.status is Status.OK and s.subject and s.epoch >= 0]
    for _, mine in _by(grants, "group", "epoch", "subject"):
        by_one = next(
            (pair for node, granted in _by(mine, "group", "node") if node[1] and (pair := _two_members(granted))), None
        )
        pair = by_one or _two_members(mine)
        if pair is not None:
            yield StepFinding(Rule.DOUBLE_OWNERSHIP, pair[1].subject, pair[1].epoch, pair[1], pair[0], by_one is None)


def _two_members(grants: list[Step]) -> tuple[Step, Step] | None:
    other = next((step for step in grants if step.member != grants[0].member), None)
    return None if other is None else (grants[0], other)


def _commits_interleave(tables: Tables) -> Iterator[StepFinding]:
    """Find commits of two members that alternate within one generation."""
    commits = [s for s in tables.of("commit") if s.status is Status.OK and s.epoch >= 0 and s.member]
    for _, mine in _by(commits, "group", "subject", "epoch"):
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


def _believed_twice(tables: Tables) -> Iterator[StepFinding]:
    """Find two members that hold a partition at once.

    A violation only if the older member still commits. A member that holds it from an earlier generation than the
    other is a zombie in any case, which is information.
    """
    ends = list(tables.of("revoke", "lost", "crash", "assign"))
    last: dict[int, list[Step]] = {}
    for step in sorted(ends, key=attrgetter("returned")):
        last.setdefault(step.process, []).append(step)
    commits = [s for s in tables.of("commit") if s.status is Status.OK and s.epoch >= 0]
    for _, mine in _by([s for s in tables.of("assign") if s.group and s.subject], "group", "subject"):
        for older, newer in pairwise(sorted(mine, key=attrgetter("returned"))):
            if older.process == newer.process:
                continue
            over = next(
                (s.returned for s in last[older.process] if s.returned > older.returned and _ends(s, older)), int(NEVER)
            )
            if over < newer.returned:
                continue
            live = any(
                s.process == older.process and s.subject == older.subject and s.epoch >= newer.epoch >= older.epoch >= 0
                and newer.returned < s.invoked < over for s in commits
            )  # fmt: skip
            yield StepFinding(Rule.DOUBLE_OWNERSHIP, newer.subject, newer.epoch, newer, older, not live)


def _ends(step: Step, held: Step) -> bool:
    """Return whether a step ends an assignment; a new assignment or a crash ends all assignments of the process."""
    return step.subject == held.subject or step.f in {"assign", "crash"}


def stuck_rebalances(tables: Tables, patience_ms: int) -> Iterator[StepFinding]:
    """Find stuck (of a group): it stays in a rebalance for more than `patience_ms` without faults."""
    steps = [s for s in tables.of("group") if s.status is Status.OK]
    for group, mine in _by(steps, "group"):
        for rebalancing, run in groupby(mine, lambda step: step.text in REBALANCING):
            steps_of_run = list(run)
            waited_ms = min(steps_of_run[-1].at_ms - steps_of_run[0].at_ms, steps_of_run[-1].calm_ms)
            if rebalancing and len(steps_of_run) > 2 and waited_ms > patience_ms >= 0:
                yield StepFinding(Rule.STUCK, str(group), waited_ms, steps_of_run[-1], steps_of_run[0])

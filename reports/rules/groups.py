"""What a group's coordinator promises: rules 24 to 27, 30, 32 and 37, over the steps of the group."""

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, Final

from highwater.reports.columns import NEVER, UNKNOWN, Fate, Status
from highwater.reports.rules.step_findings import Proofs, Told, Writes, falls
from highwater.reports.tables import Step, Tables

REBALANCING: Final = {"PreparingRebalance", "CompletingRebalance"}


def _by(steps: list[Step], *names: str) -> Iterator[tuple[Any, list[Step]]]:
    """Steps that agree in these fields, in the order of their invocation."""

    ordered = sorted(steps, key=attrgetter(*names, "invoked"))
    for found, mine in groupby(ordered, attrgetter(*names)):
        yield found, list(mine)


# -- committed offsets -------------------------------------------------------------------------------


def committed_offsets(tables: Tables) -> Iterator[Told]:
    """Rules 25, 32 and 37. The last commit counts, also when it goes back; so who finds a smaller offset than was
    proved before needs a commit of just that, which may have come later than the proof."""
    steps = [step for step in tables.of("commit", "committed", "send_offsets", "resume", "delete_offsets")
             if step.status is not Status.FAIL]  # fmt: skip
    groups = [step for step in steps if step.f == "delete_offsets" and not step.subject]
    topics = list(tables.of("delete_topic"))
    for (group, key), mine in _by(steps, "group", "subject"):
        cleared = [each for each in groups if each.group == group]
        cleared += [each for each in topics if each.subject == key.rpartition("-")[0]]
        yield from _offsets_of_one(tables, mine, cleared)


def _offsets_of_one(tables: Tables, steps: list[Step], cleared: list[Step]) -> Iterator[Told]:
    fate = tables.transactions.fate
    kept = [step for step in steps if step.f != "send_offsets" or fate[step.txn] != Fate.ABORTED]
    taken_back = {step.number: step for step in steps if step.f == "send_offsets" and fate[step.txn] == Fate.ABORTED}
    written = [step for step in kept if step.f in {"commit", "send_offsets"}]
    reads = [step for step in kept if step.f in {"committed", "resume"} and step.status is Status.OK]
    aborted = _taken_back(reads, taken_back, written)
    for step in aborted:
        yield Told(37, step.subject, step.number, step, taken_back[step.number])
    proofs = sorted((step for step in kept if _proves(step) and step not in aborted), key=attrgetter("returned"))
    suspects = list(_below_a_proof([step for step in reads if step not in aborted], proofs))
    if not suspects:
        return
    writes = Writes((s.number, s.invoked, _effect(s)) for s in written)
    deleted = [*(s for s in kept if s.f == "delete_offsets"), *cleared]
    clears = Writes((UNKNOWN, s.invoked, _effect(s)) for s in deleted)
    # Whoever commits without a record of it may have committed anything.
    strangers = any(s.f == "committed" and s.number != UNKNOWN and s.number not in writes for s in reads)
    for read, proof in suspects:
        if not _explained(read, proof, writes, clears):
            rule, known = (32, True) if read.number == UNKNOWN else (25, not strangers)
            yield Told(rule, read.subject, read.number, read, proof, not known)


def _taken_back(reads: list[Step], taken_back: dict[int, Step], written: list[Step]) -> list[Step]:
    """Fetched offsets that only a transaction wrote that was aborted."""
    if not taken_back:
        return []
    numbers = {step.number for step in written}
    return [s for s in reads if s.f == "committed" and s.number in taken_back and s.number not in numbers]


def _below_a_proof(reads: list[Step], proofs: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Reads of less than was proved before they began, with the proof that was begun last."""
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
    """When it had taken effect at the latest; offsets of a transaction wait for its marker."""
    return step.returned if step.status is Status.OK and step.f != "send_offsets" else int(NEVER)


def _explained(read: Step, proof: Step, writes: Writes, clears: Writes) -> bool:
    if clears.explain(UNKNOWN, proof.invoked, read.returned):
        return True
    if read.f == "resume":
        return writes.explain_at_most(read.number, proof.invoked, read.returned)
    return writes.explain(read.number, proof.invoked, read.returned)


def ahead_of_position(tables: Tables) -> list[Step]:
    """Candidates of rule 24: commits beyond where the process had read to. Only markers and holes may lie between."""
    return [s for s in tables.of("commit") if s.status is Status.OK and s.position != UNKNOWN and s.number > s.position]


# -- members -----------------------------------------------------------------------------------------


def zombie_commits(tables: Tables) -> Iterator[Told]:
    """Rule 27. A generation is proved by what its coordinator has stored: a SyncGroup's answer, an accepted commit.

    Offsets of a transaction count as a commit if they came with a member (KIP-447).
    """
    steps = [s for s in tables.of("commit", "sync", "send_offsets") if s.status is Status.OK and s.epoch >= 0]
    for _, mine in _by([s for s in steps if s.f != "send_offsets" or s.member], "group"):
        commits = [step for step in mine if step.f != "sync"]
        blamed = set()
        for late, early in falls(mine, commits):
            if (late.invoked, late.returned) not in blamed:
                blamed.add((late.invoked, late.returned))
                yield Told(27, late.subject, late.number, late, early)


def double_ownership(tables: Tables) -> Iterator[Told]:
    """Rule 26: grants, accepted commits, and what members believed."""
    yield from _granted_twice(tables)
    yield from _commits_interleave(tables)
    yield from _believed_twice(tables)


def _granted_twice(tables: Tables) -> Iterator[Told]:
    """One generation, one member. A generation's number may come again from another coordinator."""
    grants = [s for s in tables.of("sync") if s.status is Status.OK and s.subject and s.epoch >= 0]
    for _, mine in _by(grants, "group", "epoch", "subject"):
        by_one = next(
            (pair for node, told in _by(mine, "group", "node") if node[1] and (pair := _two_members(told))), None
        )
        pair = by_one or _two_members(mine)
        if pair is not None:
            yield Told(26, pair[1].subject, pair[1].epoch, pair[1], pair[0], by_one is None)


def _two_members(grants: list[Step]) -> tuple[Step, Step] | None:
    other = next((step for step in grants if step.member != grants[0].member), None)
    return None if other is None else (grants[0], other)


def _commits_interleave(tables: Tables) -> Iterator[Told]:
    """A member commits, another after it, then the first again, all in one generation."""
    commits = [s for s in tables.of("commit") if s.status is Status.OK and s.epoch >= 0 and s.member]
    for _, mine in _by(commits, "group", "subject", "epoch"):
        if all(step.member == mine[0].member for step in mine):
            continue
        first: dict[str, Step] = {}
        for step in mine:
            since = first.setdefault(step.member, step)  # whose answer came first
            if step.returned < since.returned:
                first[step.member] = step
            between = [s for s in mine if s.member != step.member and s.invoked > since.returned]
            found = next((s for s in between if s.returned < step.invoked), None)
            if found is not None:
                yield Told(26, step.subject, step.number, step, found)
                break


def _believed_twice(tables: Tables) -> Iterator[Told]:
    """Two members hold a partition at once: a violation if the one who had it first is no zombie, since it still may
    commit. Who holds it from an earlier generation than the other is one, whatever came first."""
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
            yield Told(26, newer.subject, newer.epoch, newer, older, not live)


def _ends(step: Step, held: Step) -> bool:
    """An assignment replaces all that the process had, and a crash ends it."""
    return step.subject == held.subject or step.f in {"assign", "crash"}


def stuck_rebalances(tables: Tables, patience_ms: int) -> Iterator[Told]:
    """Rule 30, of a group: seen in a rebalance, and never out of it, for longer than anybody needs without faults."""
    steps = [s for s in tables.of("group") if s.status is Status.OK]
    for group, mine in _by(steps, "group"):
        for rebalancing, run in groupby(mine, lambda step: step.text in REBALANCING):
            seen = list(run)
            waited_ms = min(seen[-1].at_ms - seen[0].at_ms, seen[-1].calm_ms)
            if rebalancing and len(seen) > 2 and waited_ms > patience_ms >= 0:
                yield Told(30, str(group), waited_ms, seen[-1], seen[0])

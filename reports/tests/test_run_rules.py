"""Compares the rules of a run with plain Python: committed offsets, generations and cycles."""

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.reports.columns import NEVER, NOTHING, UNKNOWN, Status
from highwater.reports.rules.checks import groups
from highwater.reports.rules.checks.cycles import Edges, circles
from highwater.reports.rules.findings import Weight
from highwater.reports.tables import Step, Tables

KEY, GROUP = "t-0", "g"


def steps(chance: random.Random, names: list[str]) -> list[Step]:
    """Return two to seven steps with distinct moments; some have an unknown outcome."""
    count = chance.randint(2, 7)
    moments = chance.sample(range(40), 2 * count)
    if chance.random() < 0.5:  # one after the other
        moments.sort()
    made = []
    for slot in range(count):
        begin, end = sorted(moments[2 * slot : 2 * slot + 2])
        f = chance.choice(names)
        is_unknown = f == "commit" and chance.random() < 0.2
        number = chance.choice([-1, 1, 2, 3]) if f == "committed" else chance.randint(1, 3)
        made.append(
            Step(
                f, begin, int(NEVER) if is_unknown else end, slot, Status.INFO if is_unknown else Status.OK, KEY,
                number, epoch=chance.randint(1, 3), group=GROUP, member=f"m{chance.randrange(2)}", node="1",
            )
        )  # fmt: skip
    return sorted(made, key=lambda step: step.invoked)


def tables(made: list[Step]) -> Tables:
    found = Tables()
    for step in made:
        found.add(step)
    return found


def linearizable(made: list[Step]) -> bool:
    """Return whether some order explains all reads, in which an unknown commit may have no effect."""

    def go(left: tuple[Step, ...], value: int) -> bool:
        if all(step.status is Status.INFO for step in left):
            return True
        earliest = min(step.returned for step in left)
        for slot, step in enumerate(left):
            rest = left[:slot] + left[slot + 1 :]
            fits = step.f == "commit" or step.number == value
            if step.invoked < earliest and fits and go(rest, step.number if step.f == "commit" else value):
                return True
        return False

    return go(tuple(made), -1)


def offsets_that_fell(made: list[Step]) -> set[tuple[int, int]]:
    """Return (rule, reader) of each read of another offset than a proved one that no concurrent commit explains.

    One that no client had committed before is a finding of rule 25 if it is below a proved one, else of rule 37 if
    an accepted commit precedes the read.
    """
    found = set()
    accepted = [step for step in made if step.f == "commit" and step.status is Status.OK]
    for read in (step for step in made if step.f == "committed"):
        written = {step.number for step in made if step.f == "commit" and step.invoked < read.returned}
        proofs = [step for step in made if step.status is Status.OK and step.returned < read.invoked]
        proofs = [proof for proof in proofs if proof.number > read.number or -1 < proof.number < read.number in written]
        writes = [step for step in made if step.f == "commit" and step.number == read.number]
        writes = [write for write in writes if write.invoked < read.returned]
        if any(all(write.returned <= proof.invoked for write in writes) for proof in proofs):
            found.add((32 if read.number < 0 else 25, read.process))
        elif read.number not in {-1, *written} and any(commit.returned < read.invoked for commit in accepted):
            found.add((37, read.process))
    return found


@given(st.randoms(use_true_random=False))
@settings(max_examples=400, deadline=None, database=None)
def test_offsets_that_fall_are_all_found_and_none_that_a_register_explains(chance: random.Random) -> None:
    made = steps(chance, ["commit", "commit", "committed"])
    found = {(each.rule, each.first.process) for each in groups.committed_offsets(tables(made))}
    assert found == offsets_that_fell(made)
    assert not (found and linearizable(made))


@given(st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None, database=None)
def test_old_generations_are_found_and_none_of_a_group_that_began_again(chance: random.Random) -> None:
    """A group with an offset is never removed, so that no coordinator may grant an older generation of it again."""
    made = steps(chance, ["commit", "sync"])
    found = {each.first.process for each in groups.zombie_commits(tables(made))}
    ok = [step for step in made if step.status is Status.OK]

    def is_old(late: Step, known: list[Step]) -> bool:
        return any(proof.returned < late.invoked and proof.epoch > late.epoch for proof in known)

    again = [step for step in ok if step.f == "sync" and is_old(step, ok)]
    wrong = {
        step.process for step in again
        if any(commit.f == "commit" and commit.returned < step.invoked for commit in ok)
    }  # fmt: skip
    for commit in (step for step in ok if step.f == "commit"):
        begun = sum(step.invoked <= commit.invoked for step in again)
        same_life = [step for step in ok if sum(other.invoked <= step.invoked for other in again) == begun]
        wrong |= {commit.process} if is_old(commit, same_life) else set()
    assert found == wrong


@given(st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None, database=None)
def test_circles_are_the_transactions_that_reach_themselves(chance: random.Random) -> None:
    nodes = chance.randint(2, 12)
    pairs = {(chance.randrange(nodes), chance.randrange(nodes)) for _ in range(chance.randint(1, 2 * nodes))}
    pairs = {(a, b) for a, b in pairs if a != b}
    reach = {(a, b) for a, b in pairs}
    for middle in range(nodes):
        reach |= {(a, c) for a, b in reach if b == middle for d, c in reach if d == middle}
    source = np.array([a for a, _ in sorted(pairs)], np.int64)
    target = np.array([b for _, b in sorted(pairs)], np.int64)
    edges = Edges(source, target, source, target, source, source) if pairs else Edges(*[NOTHING] * 6)
    found = {int(node) for circle in circles(edges) for node in edges.source[circle]}
    assert found == {node for node in range(nodes) if (node, node) in reach}


def test_a_chain_of_a_hundred_thousand_is_no_circle_and_its_closing_is() -> None:
    chain = np.arange(100_000)
    edges = Edges(chain[1:], chain[:-1], chain[1:], chain[1:], chain[1:], chain[1:])  # all against the order
    assert circles(edges) == []
    closed = Edges(*(np.append(column, extra) for column, extra in zip(
        (chain[1:], chain[:-1], chain[1:], chain[1:], chain[1:], chain[1:]), (0, 99_999, 0, 0, 0, 0), strict=True
    )))  # fmt: skip
    (circle,) = circles(closed)
    assert len(circle) == 100_000


def test_a_generation_may_come_again_from_another_coordinator() -> None:
    def grant(member: str, node: str, at: int) -> Step:
        return Step("sync", at, at + 1, at, Status.OK, KEY, UNKNOWN, 4, GROUP, member, node)

    twice = list(groups.double_ownership(tables([grant("a", "1", 1), grant("b", "1", 3)])))
    again = list(groups.double_ownership(tables([grant("a", "1", 1), grant("b", "2", 3)])))
    assert [each.weight for each in twice] == [Weight.VIOLATION]
    assert [each.weight for each in again] == [Weight.UNDECIDED]
    kept = Step("commit", 0, 0, 9, Status.OK, KEY, 3, 4, GROUP, "a", "1")  # the group was not removed
    after = list(groups.double_ownership(tables([kept, grant("a", "1", 1), grant("b", "2", 3)])))
    assert [each.weight for each in after] == [Weight.VIOLATION]

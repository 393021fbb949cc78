"""Rules over the steps of a run in plain Python, pair by pair: owners, commits ahead, aborted offsets, epochs, ids."""

import random
from itertools import groupby, pairwise, permutations, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.reports.columns import NEVER, UNKNOWN, Fate, Status
from highwater.reports.rules import groups, run
from highwater.reports.rules.run import _left_out
from highwater.reports.rules.view import View
from highwater.reports.tables import Step, Tables
from highwater.reports.tests.brute import Brute
from highwater.reports.tests.random_ops import random_operations
from highwater.reports.tests.test_run_rules import GROUP, KEY, tables

PATIENCE_MS = 10
histories = given(st.randoms(use_true_random=False))
thorough = settings(max_examples=300, deadline=None, database=None)


def random_steps(
    chance: random.Random, names: list[str], largest: int = 3, epochs: int = 2, processes: int = 3
) -> list[Step]:
    """Two to eight of at most three processes, no two events at one moment; some of unknown outcome."""
    count = chance.randint(2, 8)
    moments = chance.sample(range(60), 2 * count)
    if chance.random() < 0.6:  # one after the other
        moments.sort()
    made = []
    for slot in range(count):
        begin, end = sorted(moments[2 * slot : 2 * slot + 2])
        process = chance.randrange(processes)
        untold = chance.random() < 0.15
        made.append(
            Step(
                chance.choice(names), begin, int(NEVER) if untold else end, process,
                Status.INFO if untold else Status.OK, KEY, chance.randint(0, largest), chance.randint(0, epochs), GROUP,
                f"m{process}", chance.choice(["1", "1", "2"]), position=chance.choice([UNKNOWN, 0, 1, 2]),
                at_ms=begin, calm_ms=chance.choice([5, 20, 40]), text=chance.choice(["Stable", *groups.REBALANCING]),
            )
        )  # fmt: skip
    return sorted(made, key=lambda step: step.invoked)


def told_of(made: list[Step], *names: str) -> list[Step]:
    return [step for step in made if step.f in names and step.status is Status.OK]


# -- rule 26 -----------------------------------------------------------------------------------------


def two_grants(made: list[Step]) -> set[tuple[bool, int]]:
    """(violation, generation): of one coordinator it is one, of two it is not certain."""
    pairs = [
        (a.node == b.node, a.epoch) for a, b in permutations(told_of(made, "sync"), 2)
        if a.epoch == b.epoch and a.member != b.member
    ]  # fmt: skip
    certain = {epoch for same, epoch in pairs if same}
    return {(epoch in certain, epoch) for _, epoch in pairs}


def interleave(made: list[Step]) -> set[int]:
    """Generations in which one commits, another after it, and then the first one again."""
    return {
        a.epoch for a, b, c in permutations(told_of(made, "commit"), 3)
        if a.member == c.member != b.member and a.epoch == b.epoch == c.epoch
        and a.returned < b.invoked and b.returned < c.invoked
    }  # fmt: skip


def overlaps(made: list[Step]) -> dict[tuple[int, int], bool]:
    """When (older, newer) were assigned, if both had it then; and whether the older one still commits."""
    found = {}
    for older, newer in permutations(told_of(made, "assign"), 2):
        mine = [s for s in made if s.process == older.process and s.f in {"assign", "revoke"} and s.returned < NEVER]
        over = min((s.returned for s in mine if s.returned > older.returned), default=int(NEVER))
        if older.process != newer.process and older.returned < newer.returned <= over:
            found[older.returned, newer.returned] = newer.epoch >= older.epoch and any(
                s.process == older.process and s.epoch >= newer.epoch and newer.returned < s.invoked < over
                for s in told_of(made, "commit")
            )
    return found


@histories
@thorough
def test_grants_of_one_generation_to_two_members_are_found(chance: random.Random) -> None:
    made = random_steps(chance, ["sync"])
    found = {(not each.information, each.number) for each in groups.double_ownership(tables(made))}
    assert found == two_grants(made)


@histories
@thorough
def test_commits_of_two_members_that_interleave_are_found(chance: random.Random) -> None:
    made = random_steps(chance, ["commit"], epochs=0, processes=2)
    assert {each.first.epoch for each in groups.double_ownership(tables(made))} == interleave(made)


@histories
@thorough
def test_members_that_hold_a_partition_at_once_are_found_and_blamed_only_if_they_still_commit(
    chance: random.Random,
) -> None:
    made = [step for step in random_steps(chance, ["assign", "assign", "revoke", "commit"])
            if step.f == "commit" or step.status is Status.OK]  # fmt: skip
    found = {
        (each.second.returned, each.first.returned): not each.information
        for each in groups.double_ownership(tables(made)) if each.first.f == "assign"
    }  # fmt: skip
    expected, moments = overlaps(made), sorted(step.returned for step in told_of(made, "assign"))
    assert found == {pair: blamed for pair, blamed in expected.items() if pair in set(pairwise(moments))}
    assert bool(found) == bool(expected)


# -- rules 24, 30 and 37 -----------------------------------------------------------------------------


@histories
@thorough
def test_commits_ahead_are_those_that_leave_out_a_known_record(chance: random.Random) -> None:
    ops, promise = random_operations(chance)
    made = random_steps(chance, ["commit"], largest=8)
    known = {offset for _, offset in Brute(ops, promise).solid_records()}
    candidates = list(groups.ahead_of_position(tables(made)))
    ahead = [s for s in told_of(made, "commit") if s.position != UNKNOWN and known & set(range(s.position, s.number))]
    assert _left_out({KEY: candidates}, KEY, View(ops, promise)) == ahead if candidates else not ahead


@histories
@thorough
def test_a_group_is_stuck_that_is_seen_in_nothing_but_rebalances_for_too_long(chance: random.Random) -> None:
    made = random_steps(chance, ["group"])
    expected = set()
    for rebalancing, steps in groupby(told_of(made, "group"), lambda step: step.text != "Stable"):
        seen = list(steps)
        long = seen[-1].at_ms - seen[0].at_ms > PATIENCE_MS < seen[-1].calm_ms
        expected |= {(seen[0].invoked, seen[-1].invoked)} if rebalancing and len(seen) >= 3 and long else set()
    found = groups.stuck_rebalances(tables(made), PATIENCE_MS)
    assert {(each.second.invoked, each.first.invoked) for each in found} == expected


@histories
@thorough
def test_offsets_that_only_an_aborted_transaction_committed_are_found_when_fetched(chance: random.Random) -> None:
    made = random_steps(chance, ["committed", "commit", "send_offsets", "send_offsets"])
    run = Tables()
    fates = [chance.choice([UNKNOWN, Fate.COMMITTED, Fate.ABORTED]) for _ in range(3)]
    for txn, fate in enumerate(fates):
        run.transactions.fate[run.transactions.number(txn)] = fate
    made = [step._replace(txn=chance.randrange(3)) if step.f == "send_offsets" else step for step in made]
    for step in made:
        run.add(step)
    sent = [step for step in made if step.f == "send_offsets"]
    honest = {s.number for s in made if s.f == "commit"} | {s.number for s in sent if fates[s.txn] != Fate.ABORTED}
    taken_back = {step.number for step in sent if fates[step.txn] == Fate.ABORTED}
    expected = {s.invoked for s in told_of(made, "committed") if s.number in taken_back - honest}
    assert {each.first.invoked for each in groups.committed_offsets(run) if each.rule == 37} == expected


# -- rules 28 and 31 ---------------------------------------------------------------------------------


@histories
@thorough
def test_leader_epochs_with_two_leaders_or_that_one_broker_tells_backwards_are_found(chance: random.Random) -> None:
    made = random_steps(chance, ["metadata"], largest=1)
    ok = told_of(made, "metadata")
    two = {a.epoch for a, b in product(ok, ok) if a.epoch == b.epoch and a.number != b.number}
    back = {
        b.invoked for a, b in product(ok, ok) if a.node == b.node and a.returned < b.invoked and a.epoch > b.epoch
    }  # fmt: skip
    found = list(run.epoch_safety(tables(made)))
    assert {each.first.epoch for each in found if each.first.epoch == each.second.epoch} == two
    assert {each.first.invoked for each in found if each.first.epoch != each.second.epoch} == back


@histories
@thorough
def test_producer_ids_that_two_producers_were_given_are_found(chance: random.Random) -> None:
    made = random_steps(chance, ["init_producer"], largest=1)
    ok = told_of(made, "init_producer")
    shared = {
        (a.number, a.epoch) for a, b in product(ok, ok)
        if (a.number, a.epoch) == (b.number, b.epoch) and a.process != b.process
    }  # fmt: skip
    assert {(each.number, each.first.epoch) for each in run.duplicate_producer_ids(tables(made))} == shared


def test_random_steps_show_each_of_these_rules_and_none() -> None:
    chance = random.Random(7)
    shown = np.zeros(6, int)
    for _ in range(400):
        made = random_steps(chance, ["sync", "commit", "commit", "commit", "assign", "assign"], epochs=1)
        blamed = any(overlaps(made).values())
        shown += [bool(two_grants(made)), bool(interleave(made)), bool(overlaps(made)), blamed, not blamed, 1]
    assert all(shown), shown


def test_a_commit_that_is_answered_late_hides_no_other_of_its_member() -> None:
    def commit(process: int, invoked: int, returned: int) -> Step:
        return Step("commit", invoked, returned, process, Status.OK, KEY, 1, 1, GROUP, f"m{process}")

    made = [commit(0, 0, 20), commit(0, 1, 2), commit(1, 3, 4), commit(0, 5, 6)]
    (found,) = groups.double_ownership(tables(made))
    assert (found.first, found.second) == (made[3], made[2])

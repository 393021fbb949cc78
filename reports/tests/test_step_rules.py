"""Compares the rules over the steps of a run with plain Python, for all pairs of steps."""

import random
from itertools import groupby, pairwise, permutations, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.reports.columns import NEVER, UNKNOWN, Fate, Kind, Status
from highwater.reports.rules import run
from highwater.reports.rules.checks import groups
from highwater.reports.rules.checks.outcomes import fetched_alone
from highwater.reports.rules.findings import Weight
from highwater.reports.rules.run import LastPoll, _left_out
from highwater.reports.rules.view import View
from highwater.reports.tables import Step, Tables
from highwater.reports.tests.oracle.history import History
from highwater.reports.tests.oracle.reads import is_durable
from highwater.reports.tests.random_ops import random_operations
from highwater.reports.tests.test_run_rules import GROUP, KEY, tables

PATIENCE_MS = 10
histories = given(st.randoms(use_true_random=False))
thorough = settings(max_examples=300, deadline=None, database=None)


def random_steps(
    chance: random.Random, names: list[str], largest: int = 3, epochs: int = 2, processes: int = 3
) -> list[Step]:
    """Return two to eight steps of at most three processes with distinct moments; some have an unknown outcome."""
    count = chance.randint(2, 8)
    moments = chance.sample(range(60), 2 * count)
    if chance.random() < 0.6:  # one after the other
        moments.sort()
    made = []
    for slot in range(count):
        begin, end = sorted(moments[2 * slot : 2 * slot + 2])
        process = chance.randrange(processes)
        is_unknown = chance.random() < 0.15
        made.append(
            Step(
                chance.choice(names), begin, int(NEVER) if is_unknown else end, process,
                Status.INFO if is_unknown else Status.OK, KEY, chance.randint(0, largest), chance.randint(0, epochs),
                GROUP, f"m{process}", chance.choice(["1", "1", "2"]), position=chance.choice([UNKNOWN, 0, 1, 2]),
                at_ms=begin, calm_ms=chance.choice([5, PATIENCE_MS, 20, 40]), open_ms=chance.choice([0, 0, 5]),
                text=chance.choice(["Stable", *groups.REBALANCING]),
            )
        )  # fmt: skip
    return sorted(made, key=lambda step: step.invoked)


def completed(made: list[Step], *names: str) -> list[Step]:
    """Return the steps of these kinds that completed successfully."""
    return [step for step in made if step.f in names and step.status is Status.OK]


# -- rule 26 -----------------------------------------------------------------------------------------


def two_grants(made: list[Step]) -> set[tuple[bool, int]]:
    """Return (is a violation, generation): of two coordinators, one may have removed the group, without offsets."""
    pairs = [
        (a.node == b.node, a.epoch) for a, b in permutations(completed(made, "sync"), 2)
        if a.epoch == b.epoch and a.member != b.member
    ]  # fmt: skip
    certain = {epoch for same, epoch in pairs if same}
    return {(epoch in certain, epoch) for _, epoch in pairs}


def interleave(made: list[Step]) -> set[int]:
    """Return the generations in which a member commits between two commits of another."""
    return {
        a.epoch for a, b, c in permutations(completed(made, "commit"), 3)
        if a.member == c.member != b.member and a.epoch == b.epoch == c.epoch
        and a.returned < b.invoked and b.returned < c.invoked
    }  # fmt: skip


def overlaps(made: list[Step]) -> dict[tuple[int, int], bool]:
    """Return overlapping (older, newer) assignments, and whether of one generation, or the older one commits."""
    found = {}
    for older, newer in permutations(completed(made, "assign"), 2):
        mine = [s for s in made if s.process == older.process and s.f in {"assign", "revoke"} and s.returned < NEVER]
        over = min((s.returned for s in mine if s.returned > older.returned), default=int(NEVER))
        if older.process != newer.process and older.returned < newer.returned <= over:
            found[older.returned, newer.returned] = newer.epoch == older.epoch or (
                newer.epoch > older.epoch
                and any(
                    s.process == older.process and s.epoch >= newer.epoch and newer.returned < s.invoked < over
                    for s in completed(made, "commit")
                )
            )
    return found


@histories
@thorough
def test_grants_of_one_generation_to_two_members_are_found(chance: random.Random) -> None:
    made = random_steps(chance, ["sync"])
    found = list(groups.double_ownership(tables(made)))
    assert {(each.weight is Weight.VIOLATION, each.number) for each in found} == two_grants(made)
    assert all(each.first.epoch == each.second.epoch == each.number for each in found)
    assert all(each.first.member != each.second.member for each in found)
    assert all(each.weight is Weight.UNDECIDED or each.first.node == each.second.node for each in found)


@histories
@thorough
def test_commits_of_two_members_that_interleave_are_found(chance: random.Random) -> None:
    made = random_steps(chance, ["commit"], epochs=0, processes=2)
    assert {each.first.epoch for each in groups.double_ownership(tables(made))} == interleave(made)


@histories
@thorough
def test_members_that_own_a_partition_together_are_violations_in_one_generation_or_if_the_older_one_still_commits(
    chance: random.Random,
) -> None:
    made = [step for step in random_steps(chance, ["assign", "assign", "revoke", "commit"])
            if step.f == "commit" or step.status is Status.OK]  # fmt: skip
    found = {
        (each.second.returned, each.first.returned): not each.information
        for each in groups.double_ownership(tables(made)) if each.first.f == "assign"
    }  # fmt: skip
    expected, moments = overlaps(made), sorted(step.returned for step in completed(made, "assign"))
    one_after_the_other = {
        (older.returned, newer.returned): True for older, newer in permutations(completed(made, "assign"), 2)
        if older.process != newer.process and older.epoch == newer.epoch and older.returned < newer.returned
        and any(commit.returned <= newer.invoked for commit in completed(made, "commit"))
    }  # fmt: skip
    pairs = set(pairwise(moments))
    assigned = completed(made, "assign")
    again = [sorted(s.returned for s in assigned if s.epoch == epoch) for epoch in {s.epoch for s in assigned}]
    of_one_generation = {pair: True for same in again for pair in pairwise(same) if pair in one_after_the_other}
    adjacent = {pair: is_bad for pair, is_bad in (one_after_the_other | expected).items() if pair in pairs}
    assert found == of_one_generation | adjacent
    assert bool(found) >= bool(expected)


# -- rules 24, 30 and 37 -----------------------------------------------------------------------------


@histories
@thorough
def test_commits_ahead_are_those_that_leave_out_a_known_record(chance: random.Random) -> None:
    ops, promise = random_operations(chance)
    made = random_steps(chance, ["commit"], largest=8)
    history = History(ops, promise)
    known = {
        offset
        for row in history.rows if row.kind == Kind.READ and row.succeeded
        for offset, value in row.records if is_durable(history, offset, value)
    }  # fmt: skip
    candidates = list(groups.ahead_of_position(tables(made)))
    ahead = [s for s in completed(made, "commit") if s.position != UNKNOWN and known & set(range(s.position, s.number))]
    polls = [(step, LastPoll(None, sees_uncommitted=False)) for step in candidates]
    assert [step for step, _ in _left_out({KEY: polls}, KEY, View(ops, promise))] == ahead


@histories
@thorough
def test_a_group_that_only_rebalances_for_too_long_is_stuck(chance: random.Random) -> None:
    made = random_steps(chance, ["group"])
    expected = set()
    for rebalancing, steps in groupby(completed(made, "group"), lambda step: step.text != "Stable"):
        states = list(steps)
        last = states[-1]
        is_long = last.at_ms - states[0].at_ms > PATIENCE_MS + last.open_ms < last.calm_ms
        is_stuck = rebalancing and len(states) >= 3 and is_long
        expected |= {(states[0].invoked, states[-1].invoked)} if is_stuck else set()
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
    committed_offsets = {s.number for s in made if s.f == "commit"} | {
        s.number for s in sent if fates[s.txn] != Fate.ABORTED
    }
    aborted_offsets = {step.number for step in sent if fates[step.txn] == Fate.ABORTED}
    expected = {s.invoked for s in completed(made, "committed") if s.number in aborted_offsets - committed_offsets}
    found = [each for each in groups.committed_offsets(run) if each.rule == 37]
    assert {each.first.invoked for each in found if each.second.f == "send_offsets"} == expected


@histories
@thorough
def test_fetched_offsets_show_that_the_only_transaction_which_sent_them_committed(chance: random.Random) -> None:
    made = random_steps(chance, ["committed", "commit", "send_offsets", "send_offsets"], largest=8)
    run, ended = Tables(), [chance.choice([0, 20, 40, int(NEVER)]) for _ in range(3)]
    made = [step._replace(txn=chance.randrange(3)) if step.f == "send_offsets" else step for step in made]
    for txn, moment in enumerate(ended):
        run.transactions.ended[run.transactions.number(txn)] = moment
        run.transactions.begun[txn] = True
    for step in made:
        run.add(step)
    expected = set()
    for sent in (step for step in made if step.f == "send_offsets"):
        same = [step for step in made if step.number == sent.number]
        fetches = [step.returned for step in completed(same, "committed")]
        alone = all(step.f == "committed" or step.txn == sent.txn for step in same)
        expected |= {sent.txn} if alone and fetches and min(fetches) > ended[sent.txn] else set()
    assert {*fetched_alone({0, 1, 2}, run)} == expected


# -- rules 28 and 31 ---------------------------------------------------------------------------------


@histories
@thorough
def test_epochs_with_two_leaders_and_epochs_that_decrease_on_one_broker_are_found(chance: random.Random) -> None:
    made = random_steps(chance, ["metadata"], largest=1)
    ok = completed(made, "metadata")
    two = {a.epoch for a, b in product(ok, ok) if a.epoch == b.epoch and a.number != b.number}
    back = {
        b.invoked for a, b in product(ok, ok) if a.node == b.node and a.returned < b.invoked and a.epoch > b.epoch
    }  # fmt: skip
    found = list(run.epoch_safety(tables(made)))
    assert {each.first.epoch for each in found if each.first.epoch == each.second.epoch} == two
    assert {each.first.invoked for each in found if each.first.epoch != each.second.epoch} == back


@histories
@thorough
def test_producer_ids_assigned_to_two_producers_are_found(chance: random.Random) -> None:
    made = random_steps(chance, ["init_producer"], largest=1)
    ok = completed(made, "init_producer")
    shared = {
        (a.number, a.epoch) for a, b in product(ok, ok)
        if (a.number, a.epoch) == (b.number, b.epoch) and a.process != b.process
    }  # fmt: skip
    older = {
        late.invoked for early, late in product(ok, ok)
        if early.returned < late.invoked and early.number == late.number and early.epoch > late.epoch
    }  # fmt: skip
    found = list(run.duplicate_producer_ids(tables(made)))
    assert {(each.number, each.first.epoch) for each in found if each.first.epoch == each.second.epoch} == shared
    assert {each.first.invoked for each in found if each.first.epoch != each.second.epoch} == older


@histories
@thorough
def test_commits_of_fenced_producers_are_found(chance: random.Random) -> None:
    made = random_steps(chance, ["init_producer", "init_producer", "end_txn"], largest=1)
    made = [step._replace(text=chance.choice(["commit", "abort"])) if step.f == "end_txn" else step for step in made]
    given = completed(made, "init_producer")
    fenced = set()
    for end in (step for step in completed(made, "end_txn") if step.text == "commit"):
        before = [step for step in given if step.returned < end.invoked]
        own = [step for step in before if step.number == end.number and step.epoch <= end.epoch]
        newer = [step for step in before if own and all(mine.returned < step.invoked for mine in own)]
        fenced |= {end.invoked} if newer else set()
    assert {each.first.invoked for each in run.fenced_commits(tables(made))} == fenced


def test_random_steps_violate_each_of_these_rules_and_none() -> None:
    chance = random.Random(7)
    shown = np.zeros(6, int)
    for _ in range(400):
        made = random_steps(chance, ["sync", "commit", "commit", "commit", "assign", "assign"], epochs=1)
        is_violation = any(overlaps(made).values())
        shown += [
            bool(two_grants(made)),
            bool(interleave(made)),
            bool(overlaps(made)),
            is_violation,
            not is_violation,
            1,
        ]
    assert all(shown), shown


def test_a_late_commit_response_does_not_hide_other_commits_of_the_member() -> None:
    def commit(process: int, invoked: int, returned: int) -> Step:
        return Step("commit", invoked, returned, process, Status.OK, KEY, 1, 1, GROUP, f"m{process}")

    made = [commit(0, 0, 20), commit(0, 1, 2), commit(1, 3, 4), commit(0, 5, 6)]
    (found,) = groups.double_ownership(tables(made))
    assert (found.first, found.second) == (made[3], made[2])


def test_consumers_without_a_group_may_read_the_same_partition() -> None:
    assigned = [Step("assign", 2 * n, 2 * n + 1, n, Status.OK, KEY, UNKNOWN, UNKNOWN, "") for n in range(2)]
    assert list(groups.double_ownership(tables(assigned))) == []
    assert list(groups.double_ownership(tables([step._replace(group=GROUP) for step in assigned]))) != []

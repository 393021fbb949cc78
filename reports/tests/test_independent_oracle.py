"""Compares the rules of a partition with a second oracle, which was written from the definitions only."""

from collections import Counter
from itertools import islice, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from highwater.reports.columns import UNKNOWN, Kind, Status
from highwater.reports.rules.checks.outcomes import received
from highwater.reports.rules.findings import Promise, Weight
from highwater.reports.rules.partition import check
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.run import without_place
from highwater.reports.rules.view import View
from highwater.reports.tests.oracle import exhaustive, find_culprits
from highwater.reports.tests.oracle.comparison import LOST_OR_UNSEEN, differences, violations
from highwater.reports.tests.oracle.histories import Origin, random_history
from highwater.reports.tests.oracle.history import History
from highwater.reports.tests.oracle.mixtures import mixture
from highwater.reports.tests.oracle.simulation import FEATURES
from highwater.reports.tests.oracle.situations import SITUATIONS
from highwater.reports.tests.oracle.transactions import shown_to_commit
from highwater.reports.tests.random_ops import operations

RANDOM_HISTORIES = 1000
CORRECT_HISTORIES = 600
SEARCHED = 9000
STRIDE = 16
SITUATION_SEEDS = 2000
SITUATION_SHARE = 1 / 50
NEVER_UNDECIDED = {1, 4, 5, 7, 9, 10, 11, 13, 20, 22, 23, 29, 30, 34, 36, 38, 41}
INFORMATION = {Rule.STALE_READ, Rule.HIGH_WATERMARK_REGRESSION, Rule.RESURRECTED_RECORD}
ONLY_INFORMATION = {Rule.INT_SEND_SKIP, Rule.ABORT_REWIND}
OF_A_PARTITION = {*range(1, 21), 22, 23, *range(28, 31), *range(33, 37), *range(38, 42)}


@given(st.integers(0, 2**32))
@example(131_999)  # a larger last stable offset arrives together with a smaller one
@settings(max_examples=RANDOM_HISTORIES)
def test_the_rules_find_what_the_oracle_finds(seed: int) -> None:
    sample = random_history(seed)
    assert differences(sample.ops, sample.promise) == {}
    assert differences(*mixture(seed)) == {}


@given(st.integers(0, 2**32))
@settings(max_examples=RANDOM_HISTORIES)
def test_the_rules_and_the_oracle_agree_which_transactions_committed(seed: int) -> None:
    sample = random_history(seed)
    for ops, promise in ((sample.ops, sample.promise), mixture(seed)):
        view = View(ops, promise)
        unknown = np.unique(ops.txn[(ops.txn != UNKNOWN) & (ops.fate == UNKNOWN)])
        assert {*received(unknown, "", view).tolist()} == shown_to_commit(History(ops, promise))


@given(st.integers(0, 2**32))
@settings(max_examples=RANDOM_HISTORIES)
def test_the_rules_and_the_oracle_agree_about_records_whose_place_is_unknown(seed: int) -> None:
    sample = random_history(seed)
    for ops, promise in ((sample.ops, sample.promise), mixture(seed)):
        view, history = View(ops, promise), History(ops, promise)
        parts = without_place(lambda work, keys=None: [("t-0", work("t-0", view))])  # noqa: B023
        found = {(part.rule, int(row)) for _, part in parts for row in part.first}
        expected = {
            (rule, row)
            for (rule, _), rows in find_culprits(ops, promise).items()
            for row in rows
            if rule in LOST_OR_UNSEEN and isinstance(row, int) and history.place(history.rows[row]) is None
            if history.rows[row].acknowledged
        }
        has_order = all(list(row.offsets) == sorted(row.offsets) for row in history.reads)
        if not promise.compaction and has_order:
            assert found == expected


def test_a_correct_partition_has_no_violation() -> None:
    for seed in range(CORRECT_HISTORIES):
        sample = random_history(seed)
        if sample.origin is Origin.CORRECT:
            for culprits in (find_culprits(sample.ops, sample.promise), check(sample.ops, sample.promise)):
                assert violations(culprits) == set(), f"seed {seed}"


@pytest.mark.soak
def test_every_rule_and_weight_occurs_in_random_histories() -> None:
    missing = _expected()
    valid, features = 0, set[str]()
    for seed in range(SEARCHED):
        sample = random_history(seed)
        found = find_culprits(sample.ops, sample.promise)
        missing -= found.keys()
        valid += not found
        if len(sample.features) <= 3:
            features |= set(sample.features)
    assert missing == set()
    assert valid > SEARCHED / 10
    assert features == set(FEATURES)


def _expected() -> set[tuple[Rule, Weight]]:
    """Return the weights that a rule may have, by the definitions."""
    rules = {Rule(number) for number in OF_A_PARTITION}
    weights = {(rule, Weight.VIOLATION) for rule in rules - ONLY_INFORMATION}
    weights |= {(rule, Weight.INFORMATION) for rule in INFORMATION | ONLY_INFORMATION}
    return weights | {(rule, Weight.UNDECIDED) for rule in rules if rule not in NEVER_UNDECIDED}


@pytest.mark.soak
@pytest.mark.parametrize("theme", exhaustive.THEMES)
def test_the_rules_find_what_the_oracle_finds_in_small_histories(theme: str) -> None:
    """Every `STRIDE`-th one; `python -m highwater.soak.rules --small` compares all."""
    for number, (ops, promise) in enumerate(islice(exhaustive.histories(theme), 0, None, STRIDE)):
        assert differences(ops, promise) == {}, f"history {number * STRIDE} of {theme}"


def test_the_small_histories_are_many() -> None:
    assert sum(exhaustive.number_of_histories(theme) for theme in exhaustive.THEMES) >= 100_000


def test_a_dump_with_a_repeated_offset_still_differs_from_another_dump() -> None:
    def dump(moment: int, *values: int) -> dict[str, object]:
        row = {"kind": Kind.DUMP, "status": Status.OK, "position": 0, "high_watermark": 1, "process": moment}
        return row | {"invoked": moment, "returned": moment + 1, "records": [(0, value) for value in values]}

    for first, second, differ in [((7, 8), (8,), True), ((8,), (7, 8), True), ((7, 8), (), False), ((8,), (8,), False)]:
        dumps = [dump(0, *first), *([dump(2, *second)] if second else [])]
        found = {part.rule for part in check(operations(dumps), Promise())}
        assert (Rule.REPLICA_DIVERGENCE in found) == differ


@pytest.mark.long
def test_each_situation_is_in_one_of_fifty_histories_with_and_without_a_finding() -> None:
    counts = Counter[tuple[str, bool | None]]()
    for seed in range(SITUATION_SEEDS):
        sample = random_history(seed)
        for history in (History(sample.ops, sample.promise), History(*mixture(seed))):
            counts.update((name, situation(history)) for name, situation in SITUATIONS.items())
    shares = {key: counts[key] / (2 * SITUATION_SEEDS) for key in product(SITUATIONS, (True, False))}
    assert {key: share for key, share in shares.items() if share < SITUATION_SHARE} == {}

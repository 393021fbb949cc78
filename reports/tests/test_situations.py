"""Checks that random histories have each situation often, with a finding and without, so that a comparison shows it."""

from collections import Counter
from itertools import product

import pytest

from highwater.reports.tests.oracle.histories import random_history
from highwater.reports.tests.oracle.history import History
from highwater.reports.tests.oracle.mixtures import mixture
from highwater.reports.tests.oracle.situations import SITUATIONS

SEEDS = 2000
AT_LEAST = 1 / 50


@pytest.mark.long
def test_each_situation_is_in_one_of_fifty_histories_with_and_without_a_finding() -> None:
    counts = Counter[tuple[str, bool | None]]()
    for seed in range(SEEDS):
        sample = random_history(seed)
        for history in (History(sample.ops, sample.promise), History(*mixture(seed))):
            counts.update((name, situation(history)) for name, situation in SITUATIONS.items())
    shares = {key: counts[key] / (2 * SEEDS) for key in product(SITUATIONS, (True, False))}
    assert {key: share for key, share in shares.items() if share < AT_LEAST} == {}

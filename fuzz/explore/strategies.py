"""How paths are drawn: Hypothesis strategies, for tests with settings of their own."""

from itertools import chain
from typing import Final

from hypothesis import strategies as st

from highwater.conformance.client.draws import LOOPS, NUMBERS, SEEDS, Path, Step

PARTS: Final = 4
"""A loop is drawn in so many lists: Hypothesis draws five elements of a list on average, whatever its limit is."""


def steps() -> st.SearchStrategy[Step]:
    """Draw a step; the simplest is the first one with the first of everything."""
    return st.builds(Step, number=st.integers(0, NUMBERS - 1), seed=st.integers(0, SEEDS - 1))


def paths(max_steps: int = 64) -> st.SearchStrategy[Path]:
    """Draw a path with at most so many steps in each of its loops; it shrinks by leaving out steps.

    Most of the time of a short walk is spent on its topics and on the comparison at its end.
    """
    part = st.lists(steps(), max_size=max_steps // PARTS)
    loop = st.tuples(*[part] * PARTS).map(lambda parts: tuple(chain.from_iterable(parts)))
    outside = st.tuples(st.builds(Step, seed=st.integers(0, SEEDS - 1)))
    return st.builds(Path, outside=outside, loops=st.tuples(*[loop] * LOOPS))

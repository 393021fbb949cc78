"""How paths are drawn: Hypothesis strategies, for tests with settings of their own."""

from typing import Final

from hypothesis import strategies as st

from highwater.conformance.client.draws import Path, Step

NUMBERS: Final = 1 << 10
SEEDS: Final = (1 << 32) - 1
LOOPS: Final = 3
"""Loops of a program that begin one after another; those within a step are chosen by its seed."""


def steps() -> st.SearchStrategy[Step]:
    """Draw a step; the simplest is the first one with the first of everything."""
    return st.builds(Step, number=st.integers(0, NUMBERS - 1), seed=st.integers(0, SEEDS))


def paths(max_steps: int = 16) -> st.SearchStrategy[Path]:
    """Draw a path with at most so many steps in each of its loops; it shrinks by leaving out steps."""
    loop = st.lists(steps(), max_size=max_steps).map(tuple)
    outside = st.tuples(st.builds(Step, seed=st.integers(0, SEEDS)))
    return st.builds(Path, outside=outside, loops=st.tuples(*[loop] * LOOPS))

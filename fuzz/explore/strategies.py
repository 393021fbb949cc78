"""How paths are drawn: Hypothesis strategies, for tests with settings of their own."""

from hypothesis import strategies as st

from highwater.conformance.client.draws import LOOPS, NUMBERS, SEEDS, Path, Step


def steps() -> st.SearchStrategy[Step]:
    """Draw a step; the simplest is the first one with the first of everything."""
    return st.builds(Step, number=st.integers(0, NUMBERS - 1), seed=st.integers(0, SEEDS - 1))


def paths(max_steps: int = 16) -> st.SearchStrategy[Path]:
    """Draw a path with at most so many steps in each of its loops; it shrinks by leaving out steps."""
    loop = st.lists(steps(), max_size=max_steps).map(tuple)
    outside = st.tuples(st.builds(Step, seed=st.integers(0, SEEDS - 1)))
    return st.builds(Path, outside=outside, loops=st.tuples(*[loop] * LOOPS))

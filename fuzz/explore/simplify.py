"""Shrink the choices within the steps of a walk, once Hypothesis has left out what steps it could."""

from collections.abc import Callable, Iterator

from highwater.conformance.client.draws import Path, Step
from highwater.fuzz.explore.ground import Walked

Again = Callable[[Path], Walked | None]
"""Walks a path; returns the walk if it meets the same difference."""


def simplify(walked: Walked, again: Again, is_over: Callable[[], bool]) -> Walked:
    """Return the smallest walk found before `is_over`: with fewer steps, and with first choices where they do."""
    smallest = walked
    written = again(walked.taken)
    if written is not None:
        smallest = written  # the same walk, without seeds
    improved = True
    while improved and not is_over():
        improved = False
        for path in _smaller(smallest.path):
            if is_over():
                break
            tried = again(path)
            if tried is not None:
                smallest, improved = tried, True
                break
    return smallest


def _smaller(path: Path) -> Iterator[Path]:
    """Yield paths that differ in one place: a step left out, the choices of one cut off, a choice made the first."""
    for loop, steps in enumerate(path.loops):
        for place in reversed(range(len(steps))):
            yield _with(path, loop, (*steps[:place], *steps[place + 1 :]))
    for loop, steps in enumerate(path.loops):
        for place, step in enumerate(steps):
            for choices in _smaller_choices(step.choices):
                yield _with(path, loop, (*steps[:place], Step(step.number, choices=choices), *steps[place + 1 :]))
    for place, step in enumerate(path.outside):
        for choices in _smaller_choices(step.choices):
            yield Path((*path.outside[:place], Step(choices=choices), *path.outside[place + 1 :]), path.loops)


def _with(path: Path, loop: int, steps: tuple[Step, ...]) -> Path:
    return Path(path.outside, (*path.loops[:loop], steps, *path.loops[loop + 1 :]))


def _smaller_choices(choices: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the first half, the first quarters, and the choices with one that is not 0 made 0."""
    end = len(choices)
    while end and not choices[end - 1]:
        end -= 1
    if end < len(choices):
        yield choices[:end]
        return  # zeros at the end are chosen anyway
    for kept in sorted({0, end // 2, end * 3 // 4} - {end}):
        yield choices[:kept]
    for place, choice in enumerate(choices):
        if choice:
            yield (*choices[:place], 0, *choices[place + 1 :])

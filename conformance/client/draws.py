"""The choices of a walk: constant in the suite, those of a path in a simulated run and in `highwater explore`.

A walk takes its generator from `Draws.generator` and its steps from `Draws.steps`. A `Path` holds all choices as a
plain value, which can be drawn, shrunk, stored and read. Each step has choices of its own, so any can be left out.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

FINE: Final = 1 << 20
"""The number of different probabilities that are drawn."""
MOST_CHOICES: Final = 1 << 16
STEPS: Final = 6
"""The most steps of a random path in each of its loops: it is to be read by people, and to take little time."""
LOOPS: Final = 3
"""Loops of a program that begin one after another; those within a step are chosen by its seed."""
NUMBERS, SEEDS = 1 << 10, 1 << 32
"""Numbers and seeds that steps are drawn from."""


class Draws:
    """The choices of the suite: the same in every run, and all steps."""

    def generator(self, number: int) -> random.Random:
        """Return the generator of a walk with this number."""
        return random.Random(number)

    def steps(self, count: int, chance: random.Random) -> Iterator[int]:
        """Yield the numbers of the steps of a loop, from 0 on."""
        yield from range(count)

    def some(self, checks: Sequence[T]) -> Sequence[T]:
        """Return those of many similar checks that a walk carries out, in their order: all of them."""
        return checks


CONSTANT: Final = Draws()


class Step(msgspec.Struct, frozen=True):
    """One step of a path: its number in the loop, its first choices, and the seed of those that follow.

    A choice is a number below the count of what can be chosen. With the seed 0 the first is chosen each time.
    """

    number: int = 0
    seed: int = 0
    choices: tuple[int, ...] = ()


class Path(msgspec.Struct, frozen=True):
    """The choices of a walk outside of its steps, and the steps of its loops, in the order in which these begin.

    `outside` has an entry for each generator and for what follows each loop; the last one is used for those it lacks.
    """

    outside: tuple[Step, ...] = ()
    loops: tuple[tuple[Step, ...], ...] = ()

    def __len__(self) -> int:
        """Return the number of steps."""
        return sum(map(len, self.loops))


def random_path(chance: random.Random) -> Path:
    """Return a path whose loops have one to `STEPS` steps."""

    def step() -> Step:
        return Step(chance.randrange(NUMBERS), chance.randrange(SEEDS))

    loops = (tuple(step() for _ in range(chance.randint(1, STEPS))) for _ in range(LOOPS))
    return Path((step(),), tuple(loops))


class Choices(random.Random):
    """A generator that returns the choices of a step; `made` are those of the step that began last.

    The first choice of all is the simplest: the first element, the smallest number, and a probability that is missed.
    """

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.begin(step)

    def begin(self, step: Step) -> list[int]:
        """Return the list in which the choices of this step are noted."""
        self._given, self._following = iter(step.choices), random.Random(step.seed) if step.seed else None
        self.made: list[int] = []
        return self.made

    def _randbelow(self, count: int) -> int:
        given = next(self._given, None)
        if given is None:
            given = self._following.randrange(count) if self._following else 0
        self.made.append(given % count)
        assert len(self.made) < MOST_CHOICES, "a step that draws until it gets another value does not end"
        return self.made[-1]

    def random(self) -> float:
        return 1 - (self._randbelow(FINE) + 1) / FINE

    def getrandbits(self, k: int, /) -> int:
        return self._randbelow(1 << k)

    def sample(self, population: Sequence[Any], k: int, *, counts: object = None) -> list[Any]:
        """Return k elements; the inherited method draws until it gets another one, which may never be."""
        assert counts is None, "no walk repeats elements"
        pool = list(population)
        return [pool.pop(self._randbelow(len(pool))) for _ in range(k)]

    def seed(self, a: object = None, version: int = 2) -> None:
        """Do nothing: what follows is in the step."""


class Followed(Draws):
    """The choices of a path; `taken` is the same path with each choice that was made instead of the seeds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_in_step = False
        self._outside: list[list[int]] = []
        self._loops: list[list[tuple[int, list[int]]]] = []

    def _next_outside(self) -> Step:
        given, place = self._path.outside, len(self._outside)
        return given[min(place, len(given) - 1)] if given else Step()

    def generator(self, number: int) -> random.Random:
        chosen = Choices(self._next_outside())
        self._outside.append(chosen.made)
        return chosen

    def steps(self, count: int, chance: random.Random) -> Iterator[int]:
        """Yield the numbers of the steps of a loop; one within a step takes a few that its step chooses."""
        if self._is_in_step or not isinstance(chance, Choices):
            yield from sorted(chance.sample(range(count), chance.randint(1, min(count, STEPS))))
            return
        place, made = len(self._loops), list[tuple[int, list[int]]]()
        self._loops.append(made)
        loop = self._path.loops[place] if place < len(self._path.loops) else ()
        by_number = {step.number % count: step for step in reversed(loop)}
        for number in sorted(by_number):
            made.append((number, chance.begin(by_number[number])))
            self._is_in_step = True
            yield number
            self._is_in_step = False
        self._outside.append(chance.begin(self._next_outside()))

    def some(self, checks: Sequence[T]) -> Sequence[T]:
        chance = self.generator(0)
        return [checks[place] for place in sorted(chance.sample(range(len(checks)), min(len(checks), STEPS)))]

    def taken(self) -> Path:
        """Return the path that was followed, as far as it was."""
        outside = tuple(Step(choices=tuple(made)) for made in self._outside)
        loops = (tuple(Step(number, choices=tuple(made)) for number, made in loop) for loop in self._loops)
        return Path(outside, tuple(loops))

"""The random choices of a walk: constant in the suite, drawn in a sequence of the fuzzer or in a simulated run.

A walk takes its generator from `Draws.generator` and its steps from `Draws.steps`. With a drawn seed it makes other
choices, takes fewer steps, and any of them can be left out: each step has choices of its own.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

T = TypeVar("T")

STEPS: Final = 6
"""The most steps of a drawn walk in each of its loops: it is to be read by people, and to take little time."""


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


@dataclass
class Drawn(Draws):
    """Choices by a seed; `without` are the numbers of steps to leave out, counted over all loops in `begun`."""

    seed: str
    without: frozenset[int] = frozenset()
    begun: int = 0
    _looks: int = field(default=0, init=False)

    def generator(self, number: int) -> random.Random:
        return random.Random(f"{self.seed}:{number}")

    def steps(self, count: int, chance: random.Random) -> Iterator[int]:
        """Yield some of the numbers; `chance` begins again at each, so that leaving one out changes no other."""
        seed, few = chance.getrandbits(64), chance.randint(1, min(count, STEPS))
        for number in sorted(chance.sample(range(count), few)):
            self.begun += 1
            chance.seed(f"{seed}:{number}")
            if self.begun - 1 not in self.without:
                yield number
        chance.seed(f"{seed}:end")

    def some(self, checks: Sequence[T]) -> Sequence[T]:
        self._looks += 1
        chance = random.Random(f"{self.seed}:look {self._looks}")
        return [checks[place] for place in sorted(chance.sample(range(len(checks)), min(len(checks), STEPS)))]

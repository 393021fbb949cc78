"""Virtual time and one stream of events for actors: generators that yield their next wait in ms."""

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from highwater.spec.formats.history import NEMESIS, Event

Actor = Iterator[float]


class SynthesisContext:
    """Runs actors until the requested number of operations is reached; `ended` then is true."""

    def __init__(self, seed: int, sink: Callable[[Event], None]) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 0.0
        self.operations = 0
        self._ended = False
        self._sink = sink
        self._index = itertools.count(1)
        self._processes = itertools.count()
        self._values = itertools.count(1)
        self._turns: list[tuple[float, int, Actor]] = []
        self._ties = itertools.count()

    def process(self) -> int:
        return next(self._processes)

    def value(self) -> int:
        return next(self._values)

    def delay(self, mean_ms: float) -> float:
        return self.chance.random() * 2 * mean_ms

    def ended(self) -> bool:
        return self._ended

    def end(self) -> None:
        """Signal the end and run until every actor has finished."""
        self._ended = True
        self.run()

    def add(self, actor: Actor, after_ms: float = 0.0) -> None:
        heapq.heappush(self._turns, (self.now_ms + after_ms, next(self._ties), actor))

    def event(self, process: int | str, type_: str, f: str, **fields: Any) -> None:
        self.operations += type_ == "invoke"
        index, time_ns = next(self._index), int(self.now_ms * 1_000_000)
        self._sink(Event(index=index, time_ns=time_ns, process=process, type=type_, f=f, **fields))  # type: ignore[arg-type]

    def nemesis(self, f: str, **fields: Any) -> None:
        self.event(NEMESIS, "info", f, **fields)

    def run(self, operations: int | None = None) -> None:
        """Run until that many operations have started, or until no actor is left."""
        while self._turns and (operations is None or self.operations < operations):
            self.now_ms, _, actor = heapq.heappop(self._turns)
            wait_ms = next(actor, None)
            if wait_ms is not None:
                self.add(actor, wait_ms)

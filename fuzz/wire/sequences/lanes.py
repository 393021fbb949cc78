"""Several plays at a time, for each waits for answers most of its time."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from fuzz.wire.sequences.playing import Played, Spoken, perform
from fuzz.wire.sequences.stage import Stage

LANES: Final = 4


class Lanes:
    """Against one address; what a play must have to itself, the others do not touch meanwhile."""

    def __init__(self, served: Spoken, draw: Callable[[], str]) -> None:
        self._served, self._draw = served, draw
        self._claims: dict[str, Stage] = {}

    def play(self, address: str, end: float) -> list[tuple[str, Played]]:
        """Until that time, and until the last one has ended: name, and what became of it."""
        played: list[tuple[str, Played]] = []

        def lane() -> None:
            with suppress(OSError):  # it takes no connections: the next turn will find it dead
                while time.monotonic() < end:
                    name = self._draw()
                    played.append((name, perform(name, address, self._served, claims=self._claims)))

        with ThreadPoolExecutor(LANES) as pool:
            for lane_run in [pool.submit(lane) for _ in range(LANES)]:
                lane_run.result()
        return played

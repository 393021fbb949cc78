"""Detect memory that is kept for every request of some kind, from the slope over the whole run.

Theory of operation
-------------------
After each turn the resident memory and the number of requests by kind (API and outcome) are noted. The minimum of the
last samples is compared with the minimum after the warm-up: garbage collection and compaction only make single samples
larger. Once that grows by `GROWTH_MB`, least squares over all turns attribute the growth to kinds. The kinds with the
largest shares become suspects, and `slope` decides: it sends only these requests, in blocks, and the memory must grow
in every block after the warm-up. If none is confirmed, the next suspicion needs twice the growth: brokers legally keep
records, topics and members.

Not covered: a JVM, whose heap grows up to its limit whatever is sent, and a process whose memory cannot be read.
"""

from collections import Counter, deque
from collections.abc import Callable
from itertools import cycle, islice
from typing import Final, NamedTuple

from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.process import MEGABYTE

GROWTH_MB: Final = 24
WARM_UP_S: Final = 2.0
RECENT: Final = 6
"""Samples of which the smallest counts."""
CASES_OF_KIND: Final = 6
SUSPECT_KINDS: Final = 6
RIDGE: Final = 1.0
"""Added to the diagonal: kinds that always occur together share their slope."""
BLOCKS, WARM_UP_BLOCKS, BLOCK_REQUESTS, BLOCK_MB = 6, 2, 150, 32
MEASURED_EVERY: Final = 10
KEPT_BYTES: Final = 16 * 1024
KEPT_FACTOR: Final = 8
"""A request may keep KEPT_BYTES and KEPT_FACTOR times its size: stored records, topics and members are no leak."""
JVM: Final = "java"

Kind = tuple[int, str]
"""API key, and `closed`, `silent`, `error` or `ok`."""


def outcome_class(outcome: tuple[int, ...] | str) -> str:
    """Return the class of a response by its error codes, or the outcome without a response."""
    if isinstance(outcome, str):
        return outcome
    return "error" if any(outcome) else "ok"


class LeakSuspicion(NamedTuple):
    """Cases of one kind, and the bytes by which memory grew for each of them, according to the run."""

    kind: Kind
    cases: list[Case]
    bytes_per_request: float


class LeakWatch:
    """Memory over the requests of a run. `reason` says why it is not covered; empty if it is."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.requests = self.confirmations = 0
        self._growth_mb = GROWTH_MB
        self.restarted()

    def restarted(self) -> None:
        """Start again after the process was restarted."""
        self._turn: Counter[Kind] = Counter()
        self._cases: dict[Kind, deque[Case]] = {}
        self._samples: deque[int] = deque(maxlen=RECENT)
        self._started: float | None = None
        self._base: int | None = None
        self._previous = 0
        self._products: dict[Kind, Counter[Kind]] = {}
        self._growths: Counter[Kind] = Counter()

    def note(self, case: Case, outcome: tuple[int, ...] | str) -> None:
        kind = case.key, outcome_class(outcome)
        self._turn[kind] += 1
        if kind not in self._cases:
            self._cases[kind] = deque(maxlen=CASES_OF_KIND)
        self._cases[kind].append(case)

    def sample(self, memory: int, now: float) -> list[LeakSuspicion]:
        """Note the memory after a turn; return the suspects, the likeliest first, if it grew too much."""
        if self.reason or not memory:
            return []
        counts, self._turn = self._turn, Counter()
        self._started = now if self._started is None else self._started
        self._samples.append(memory)
        self.requests += counts.total()
        if now - self._started < WARM_UP_S or len(self._samples) < RECENT:
            self._previous = memory
            return []
        self._learn(counts, memory - self._previous)
        self._previous = memory
        least = min(self._samples)
        self._base = least if self._base is None else min(self._base, least)
        if least - self._base < self._growth_mb * MEGABYTE:
            return []
        self._base, self._growth_mb = least, 2 * self._growth_mb
        return self._suspicions()

    @property
    def slopes(self) -> int:
        """The number of kinds for which there are enough requests for a slope."""
        return len(self._products)

    def report(self) -> str:
        if self.reason:
            return f"not covered: {self.reason}"
        return f"slopes of {self.slopes} kinds over {self.requests:,} requests, {self.confirmations} kinds sent alone"

    def _learn(self, counts: Counter[Kind], growth: int) -> None:
        for kind, count in counts.items():
            self._growths[kind] += count * growth
            row = self._products.setdefault(kind, Counter())
            for other, other_count in counts.items():
                row[other] += count * other_count

    def _suspicions(self) -> list[LeakSuspicion]:
        slopes = least_squares(self._products, self._growths)
        shares = {kind: slope * self._products[kind][kind] ** 0.5 for kind, slope in slopes.items() if slope > 0}
        most = sorted(shares, key=lambda kind: -shares[kind])[:SUSPECT_KINDS]
        return [LeakSuspicion(kind, list(self._cases[kind]), slopes[kind]) for kind in most if kind in self._cases]


def least_squares(products: dict[Kind, Counter[Kind]], growths: Counter[Kind]) -> dict[Kind, float]:
    """Solve the normal equations by Gaussian elimination; O(kinds³), some 10⁵ to 10⁶ steps once per suspicion."""
    kinds = list(products)
    rows = [
        [float(products[kind][other]) + (RIDGE if kind == other else 0.0) for other in kinds] + [float(growths[kind])]
        for kind in kinds
    ]
    for at, row in enumerate(rows):
        for below in rows[at + 1 :]:
            factor = below[at] / row[at]
            if factor:
                below[at:] = [value - factor * upper for value, upper in zip(below[at:], row[at:], strict=True)]
    solution = [0.0] * len(kinds)
    for at in reversed(range(len(kinds))):
        known = sum(value * solution[n] for n, value in enumerate(rows[at][at + 1 : -1], at + 1))
        solution[at] = (rows[at][-1] - known) / rows[at][at]
    return dict(zip(kinds, solution, strict=True))


def slope(memory: Callable[[], int], send: Callable[[list[Case]], object], cases: list[Case]) -> float | None:
    """Send only these cases, in blocks; return the bytes kept for each request if every block kept too much."""
    allowed = KEPT_BYTES + KEPT_FACTOR * max(len(frame) for case in cases for frame in case.frames)
    slopes = []
    for block in range(BLOCKS):
        slopes.append(_block(memory, send, cases))
        if block >= WARM_UP_BLOCKS and slopes[-1] < allowed / 2:
            return None
    kept = sum(slopes[WARM_UP_BLOCKS:]) / (BLOCKS - WARM_UP_BLOCKS)
    return kept if kept > allowed else None


def _block(memory: Callable[[], int], send: Callable[[list[Case]], object], cases: list[Case]) -> float:
    """Return the growth for each request; a block ends early once it grew by BLOCK_MB, to spare the machine."""
    before, growth, repeated = memory(), 0, cycle(cases)
    for number in range(0, BLOCK_REQUESTS, MEASURED_EVERY):
        send(list(islice(repeated, MEASURED_EVERY)))
        growth = memory() - before
        if growth > BLOCK_MB * MEGABYTE:
            return growth / (number + MEASURED_EVERY)
    return growth / BLOCK_REQUESTS

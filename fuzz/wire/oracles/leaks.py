"""Detect memory that is kept for every request of some kind, from the slope over the whole run.

Theory of operation
-------------------
After each turn the resident memory and the number of requests are noted. The minimum of the last samples is compared
with the minimum after the warm-up: garbage collection and compaction only make single samples larger. Once that grows
by `GROWTH_MB`, least squares over all turns rank the APIs by their share of it, and `slope` decides kind by kind (API
and class of outcomes): it sends only these requests, in blocks, and the memory must grow in every block after the
warm-up. Brokers legally keep records, topics and members; then no kind keeps too much, and all are sent alone.

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
SUSPECT_KINDS: Final = 2
RIDGE: Final = 1.0
"""Added to the diagonal: kinds that always occur together share their slope."""
BLOCKS, WARM_UP_BLOCKS, BLOCK_REQUESTS, BLOCK_MB = 6, 2, 60, 32
MEASURED_EVERY: Final = 10
KEPT_BYTES: Final = 16 * 1024
KEPT_FACTOR: Final = 8
"""A request may keep KEPT_BYTES and KEPT_FACTOR times its size: stored records, topics and members are no leak."""
JVM: Final = "java"
ANSWERED: Final = ("ok", "error")
"""Outcomes of requests that were carried out or refused by their handler, whose kinds are sent alone first."""

Kind = tuple[int, str]
"""API key, and `closed`, `silent`, `error` or `ok`."""


def outcome_class(outcome: tuple[int, ...] | str) -> str:
    """Return the class of a response by its error codes, or the outcome without a response."""
    if isinstance(outcome, str):
        return outcome
    return "error" if any(outcome) else "ok"


class LeakSuspicion(NamedTuple):
    """Cases of one kind to send alone, and the growth of the run that they may explain."""

    cases: list[Case]
    growth_mb: int


class LeakWatch:
    """Memory over the requests of a run. `reason` says why it is not covered; empty if it is."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.requests = 0
        self._sent_alone: Counter[Kind] = Counter()
        self.restarted()

    def restarted(self) -> None:
        """Start again after the process was restarted."""
        self._turn: Counter[Kind] = Counter()
        self._cases: dict[Kind, deque[Case]] = {}
        self._samples: deque[int] = deque(maxlen=RECENT)
        self._started: float | None = None
        self._base: int | None = None
        self._previous = 0
        self._products: dict[int, Counter[int]] = {}
        self._growths: Counter[int] = Counter()
        self._growth_mb = 0

    def note(self, case: Case, outcome: tuple[int, ...] | str) -> None:
        kind = case.key, outcome_class(outcome)
        self._turn[kind] += 1
        if kind not in self._cases:
            self._cases[kind] = deque(maxlen=CASES_OF_KIND)
        self._cases[kind].append(case)

    def sample(self, memory: int, now: float, *, is_idle: bool) -> list[LeakSuspicion]:
        """Note the memory after a turn; return kinds to send alone, if it grew too much and none is sent now."""
        if self.reason or not memory:
            return []
        counts, self._turn = self._turn, Counter()
        self._started = now if self._started is None else self._started
        self._samples.append(memory)
        self.requests += counts.total()
        is_warm = now - self._started > WARM_UP_S and len(self._samples) == RECENT
        if is_warm:
            self._learn(counts, memory - self._previous)
            least = min(self._samples)
            self._base = least if self._base is None else min(self._base, least)
            if least - self._base > GROWTH_MB * MEGABYTE:
                self._growth_mb, self._base = (least - self._base) // MEGABYTE, least
        self._previous = memory
        return self._suspicions() if self._growth_mb and is_idle else []

    def report(self) -> str:
        if self.reason:
            return f"not covered: {self.reason}"
        kinds = len(self._cases)
        return f"slopes over {self.requests:,} requests, {len(self._sent_alone)} of {kinds} kinds sent alone"

    def _learn(self, counts: Counter[Kind], growth: int) -> None:
        by_key: Counter[int] = Counter()
        for (key, _), number in counts.items():
            by_key[key] += number
        for key, number in by_key.items():
            self._growths[key] += number * growth
            row = self._products.setdefault(key, Counter())
            for other, other_number in by_key.items():
                row[other] += number * other_number

    def _suspicions(self) -> list[LeakSuspicion]:
        slopes = least_squares(self._products, self._growths)
        shares = {key: slope * self._products[key][key] ** 0.5 for key, slope in slopes.items()}

        def rank(kind: Kind) -> tuple[int, bool, float]:
            key, outcome = kind
            return self._sent_alone[kind], outcome not in ANSWERED, -shares.get(key, 0.0)

        order = sorted(self._cases, key=rank)
        most, rounds = order[:SUSPECT_KINDS], min(self._sent_alone[kind] for kind in self._cases)
        growth_mb = self._growth_mb
        self._sent_alone.update(most)
        if min(self._sent_alone[kind] for kind in self._cases) > rounds:
            self._growth_mb = 0  # each kind was sent alone: the growth is legal, or comes from something else
        return [LeakSuspicion(list(self._cases[kind]), growth_mb) for kind in most]


def least_squares(products: dict[int, Counter[int]], growths: Counter[int]) -> dict[int, float]:
    """Solve the normal equations by Gaussian elimination; O(keys³), some 10⁵ steps."""
    keys = list(products)
    rows = [
        [float(products[key][other]) + (RIDGE if key == other else 0.0) for other in keys] + [float(growths[key])]
        for key in keys
    ]
    for at, row in enumerate(rows):
        for below in rows[at + 1 :]:
            factor = below[at] / row[at]
            if factor:
                below[at:] = [value - factor * upper for value, upper in zip(below[at:], row[at:], strict=True)]
    solution = [0.0] * len(keys)
    for at in reversed(range(len(keys))):
        known = sum(value * solution[n] for n, value in enumerate(rows[at][at + 1 : -1], at + 1))
        solution[at] = (rows[at][-1] - known) / rows[at][at]
    return dict(zip(keys, solution, strict=True))


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

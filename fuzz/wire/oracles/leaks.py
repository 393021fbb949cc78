"""Detect memory that is kept for every request of some kind.

Theory of operation
-------------------
All the time, a group of kinds of request (API and class of outcomes) is sent to the second instance, in blocks. If
`slope` says that the memory grew in every block after the warm-up, each kind of the group is sent alone, and must grow
it in every block, too. A broker that keeps nothing grows by some hundred bytes for each request then, so 40 kB of one
kind in four show. Brokers legally keep records, topics and members: some times the size of a request is allowed.

After each turn the resident memory of the first instance is noted. The minimum of the last samples is compared with the
minimum after the warm-up: garbage collection and compaction only make single samples larger. Once that grows by
`GROWTH_MB`, groups follow each other without a pause until all kinds were sent.

Not covered: a JVM, whose heap grows up to its limit whatever is sent, and a process whose memory cannot be read.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import cycle, islice
from typing import Final

from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.process import MEGABYTE

GROWTH_MB: Final = 24
WARM_UP_S: Final = 2.0
RECENT: Final = 6
"""Samples of which the smallest counts."""
CASES_OF_KIND: Final = 6
GROUP_KINDS: Final = 4
GROUP_EVERY_S: Final = 1.0
"""A group takes about a third of a second of processor time; so all of some 200 kinds are sent within a minute."""
BLOCKS, WARM_UP_BLOCKS, BLOCK_MB = 6, 2, 32
BLOCK_REQUESTS: Final = 60
BLOCK_REQUESTS_OF_GROUP: Final = 200
"""So many that what a kind keeps does not fit into memory that the process has freed but not given back."""
MEASURED_EVERY: Final = 10
KEPT_BYTES: Final = 16 * 1024
KEPT_FACTOR: Final = 8
"""A request may keep KEPT_BYTES and KEPT_FACTOR times its size: stored records, topics and members are no leak."""
JVM: Final = "java"
ANSWERED: Final = ("ok", "error")
"""Outcomes of requests that were carried out or refused by their handler, whose kinds are sent first."""

LeakKind = tuple[int, str]
"""API key, and `closed`, `silent`, `error` or `ok`."""


def outcome_class(outcome: tuple[int, ...] | str) -> str:
    """Return the class of a response by its error codes, or the outcome without a response."""
    if isinstance(outcome, str):
        return outcome
    return "error" if any(outcome) else "ok"


class LeakWatch:
    """Memory over the requests of a run. `reason` says why it is not covered; empty if it is."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.requests = 0
        self.grown_mb = 0
        self._sent: Counter[LeakKind] = Counter()
        self._urgent_round = 0
        self._next_group = 0.0
        self.restarted()

    def restarted(self) -> None:
        """Start again after the process was restarted."""
        self._cases: dict[LeakKind, deque[Case]] = {}
        self._samples: deque[int] = deque(maxlen=RECENT)
        self._started: float | None = None
        self._base: int | None = None

    def note(self, case: Case, outcome: tuple[int, ...] | str) -> None:
        self.requests += 1
        kind = case.key, outcome_class(outcome)
        if kind not in self._cases:
            self._cases[kind] = deque(maxlen=CASES_OF_KIND)
        self._cases[kind].append(case)

    def sample(self, memory: int, now: float) -> None:
        """Note the memory (bytes) of the first instance after a turn."""
        if self.reason or not memory:
            return
        self._started = now if self._started is None else self._started
        self._samples.append(memory)
        if now - self._started <= WARM_UP_S or len(self._samples) < RECENT:
            return
        least = min(self._samples)
        self._base = least if self._base is None else min(self._base, least)
        grown_mb = (least - self._base) // MEGABYTE
        if grown_mb > GROWTH_MB:
            self.grown_mb += grown_mb
            self._base, self._urgent_round = least, self._round() + 1

    def _round(self) -> int:
        """Return how often all kinds were sent in a group."""
        return min((self._sent[kind] for kind in self._cases), default=0)

    def next_group(self, now: float) -> dict[LeakKind, list[Case]]:
        """Return cases of the kinds that were sent least often; none soon after the last ones, unless memory grew."""
        is_urgent = self._round() < self._urgent_round
        if self.reason or self._base is None or (now < self._next_group and not is_urgent):
            return {}
        self._next_group = now + GROUP_EVERY_S
        group = sorted(self._cases, key=lambda kind: (self._sent[kind], kind[1] not in ANSWERED))[:GROUP_KINDS]
        return {kind: list(self._cases[kind]) for kind in group}

    def sent(self, kinds: Iterable[LeakKind]) -> None:
        """Count a group, once it was sent to its end: one that a run has no time for is not covered."""
        self._sent.update(list(kinds))  # a mapping would add its values

    def report(self) -> str:
        if self.reason:
            return f"not covered: {self.reason}"
        sent, kinds = sum(self._sent[kind] > 0 for kind in self._cases), len(self._cases)
        return f"grew by {self.grown_mb} MB in {self.requests:,} requests, {sent} of {kinds} kinds sent in small groups"


def slope(
    memory: Callable[[], int], send: Callable[[list[Case]], object], cases: list[Case], kinds: int = 1
) -> float | None:
    """Send only these cases, in blocks; return the bytes kept for each request if every block kept too much.

    With several kinds, less is too much, since one of them may be what keeps it all; each is then sent alone.
    """
    sizes = [sum(map(len, case.frames)) for case in cases]
    allowed = KEPT_BYTES + KEPT_FACTOR * max(sizes) if kinds == 1 else KEPT_BYTES / kinds + sum(sizes) / len(sizes)
    requests = BLOCK_REQUESTS if kinds == 1 else BLOCK_REQUESTS_OF_GROUP
    slopes = []
    for block in range(BLOCKS):
        slopes.append(_block(memory, send, cases, requests))
        if block >= WARM_UP_BLOCKS and slopes[-1] < allowed / 2:
            return None
    kept = sum(slopes[WARM_UP_BLOCKS:]) / (BLOCKS - WARM_UP_BLOCKS)
    return kept if kept > allowed else None


def _block(memory: Callable[[], int], send: Callable[[list[Case]], object], cases: list[Case], requests: int) -> float:
    """Return the growth for each request; a block ends early once it grew by BLOCK_MB, to spare the machine."""
    before, growth, repeated = memory(), 0, cycle(cases)
    for number in range(0, requests, MEASURED_EVERY):
        send(list(islice(repeated, MEASURED_EVERY)))
        growth = memory() - before
        if growth > BLOCK_MB * MEGABYTE:
            return growth / (number + MEASURED_EVERY)
    return growth / requests

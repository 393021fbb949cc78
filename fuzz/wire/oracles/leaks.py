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

A request that only reads may keep nothing, however often it is repeated. So cases of such requests are also sent alone,
on the second instance, once it has used up the memory that it had freed (`freed_memory`). `seems_to_keep` sends a case
some hundred times; if the memory grows by READ_BYTES for each, `slope_of_read` repeats it more often than a cache has
entries (a broker remembers 1,000 fetch sessions of 1.4 kB) and requires every block to grow. The blocks become longer,
since a runtime with a garbage collector grows, too, until it collects for the first time.

Not covered: a JVM, whose heap grows up to its limit whatever is sent, and a process whose memory cannot be read.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain, count, cycle, islice, zip_longest
from typing import Any, Final

from highwater.fuzz.wire.generate.cases import Case, Ends, is_whole, renumbered
from highwater.fuzz.wire.oracles.responses import read_request
from highwater.fuzz.wire.oracles.states import MAY_CREATE, READS
from highwater.fuzz.wire.process import MEGABYTE
from highwater.reference.wire.errors import WireError

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
FETCH, HEARTBEAT, INIT_PRODUCER_ID = 1, 12, 22
OF_SIZE: Final = -1
"""Instead of an API key."""
REPEATABLE: Final = READS | MAY_CREATE | {HEARTBEAT}
"""API keys of requests that keep nothing when they are repeated; what a Metadata creates exists the second time."""
READS_FIRST_S, READS_PAUSE_S, READS_SHARE = 4.0, 8.0, 4
"""The first time, and the pause between reads that are sent alone: they take at most 1/READS_SHARE of the time."""
READS_AT_ONCE: Final = 40
READ_CASES: Final = 8
READ_BYTES: Final = 512
READ_FIRST, READ_REQUESTS = 40, 200
READ_WARM_UP: Final = 2_000
READ_BLOCKS: Final = (500, 500, 1_000, 2_000, 4_000)
NUMBERS: Final = count(1 << 16)
HEADER_BYTES: Final = 12
"""Of a frame up to its correlation id."""
JVM: Final = "java"
ANSWERED: Final = ("ok", "error")
"""Outcomes of requests that were carried out or refused by their handler, whose kinds are sent first."""

APART: Final[Mapping[int, tuple[str, Callable[[Any], bool]]]] = {
    FETCH: ("new session", lambda request: request.session_id == 0 and request.session_epoch == 0),  # KIP-227
    INIT_PRODUCER_ID: ("no transactional id", lambda request: request.transactional_id is None),
}
"""By API key: a rare form of a request that is a kind of its own, since the other forms would hide what it keeps."""

LeakKind = tuple[int, str]
"""API key, and `closed`, `silent`, `error` or `ok`; with what is apart behind a comma."""


def outcome_class(outcome: tuple[int, ...] | str) -> str:
    """Return the class of a response by its error codes, or the outcome without a response."""
    if isinstance(outcome, str):
        return outcome
    return "error" if any(outcome) else "ok"


def kind_of(case: Case, outcome: tuple[int, ...] | str) -> LeakKind:
    """Return the kind of a case; of a frame with a wrong size the target sees no API before it closes."""
    key = case.key if all(map(is_whole, case.frames)) else OF_SIZE
    name = outcome_class(outcome)
    return key, f"{name}, {APART[key][0]}" if name in ANSWERED and key in APART and _is_apart(case) else name


def kind_of_read(case: Case, outcome: tuple[int, ...] | str) -> LeakKind | None:
    """Return the kind of a case that only reads, was answered and leaves its connection open; otherwise None."""
    is_plain = len(case.frames) == 1 and not case.cuts and case.ends is Ends.OPEN
    is_read = case.key in REPEATABLE and outcome_class(outcome) in ANSWERED and is_plain
    return kind_of(case, outcome) if is_read else None


def _is_apart(case: Case) -> bool:
    if len(case.frames) > 1:
        return False
    try:
        _, request = read_request(case.frames[0][4:])
    except WireError:
        return False
    return APART[case.key][1](request)


class LeakWatch:
    """Memory over the requests of a run. `reason` says why it is not covered; empty if it is."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.requests = 0
        self.grown_mb = 0
        self._sent: Counter[LeakKind] = Counter()
        self._urgent_round = 0
        self._next_group = 0.0
        self._reads: dict[LeakKind, deque[Case]] = {}
        self._sent_alone: Counter[LeakKind] = Counter()
        self._next_reads: float | None = None
        self.restarted()

    def restarted(self) -> None:
        """Start again after the process was restarted."""
        self._cases: dict[LeakKind, deque[Case]] = {}
        self._samples: deque[int] = deque(maxlen=RECENT)
        self._started: float | None = None
        self._base: int | None = None

    def note(self, case: Case, outcome: tuple[int, ...] | str) -> None:
        self.requests += 1
        kind = kind_of(case, outcome)
        if kind not in self._cases:
            self._cases[kind] = deque(maxlen=CASES_OF_KIND)
        self._cases[kind].append(case)
        if (read := kind_of_read(case, outcome)) is not None:
            self._reads.setdefault(read, deque(maxlen=READ_CASES)).append(case)

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
        group = sorted(self._cases, key=self._rank)[:GROUP_KINDS]
        return {kind: list(self._cases[kind]) for kind in group}

    def _rank(self, kind: LeakKind) -> tuple[int, bool, int]:
        """Return the order of a kind in groups; those that were sent alone, where less shows, come later.

        What is carried out comes before what is refused, and that before what closes its connection.
        """
        of_frames = kind[0] == OF_SIZE  # one kind for all APIs
        name = kind[1].partition(",")[0]
        outcome = ANSWERED.index(name) if name in ANSWERED else len(ANSWERED)
        return self._sent[kind], kind in self._sent_alone, 0 if of_frames else outcome

    def sent(self, kinds: Iterable[LeakKind]) -> None:
        """Count a group, once it was sent to its end: one that a run has no time for is not covered."""
        self._sent.update(list(kinds))  # a mapping would add its values

    def next_reads(self, now: float) -> dict[LeakKind, list[Case]]:
        """Return cases that only read, to be sent alone: of the kinds that were sent least often; none too often."""
        if self._next_reads is None:
            self._next_reads = now + READS_FIRST_S
        if self.reason or now < self._next_reads or not self._reads:
            return {}
        self._next_reads = now + READS_PAUSE_S
        kinds = sorted(self._reads, key=lambda kind: self._sent_alone[kind])
        rows = zip_longest(*([(kind, case) for case in reversed(self._reads[kind])] for kind in kinds))
        chosen: dict[LeakKind, list[Case]] = {}
        for kind, case in islice(filter(None, chain.from_iterable(rows)), READS_AT_ONCE):
            chosen.setdefault(kind, []).append(case)
        return chosen

    def sent_alone(self, reads: Mapping[LeakKind, list[Case]], started: float, now: float) -> None:
        """Count cases that only read, once all of them were sent."""
        self._next_reads = now + max(READS_PAUSE_S, (READS_SHARE - 1) * (now - started))
        self._sent_alone.update({kind: len(cases) for kind, cases in reads.items()})

    def report(self) -> str:
        if self.reason:
            return f"not covered: {self.reason}"
        sent, kinds = sum(self._sent[kind] > 0 for kind in self._cases), len(self._cases)
        return (
            f"the target's memory grew by {self.grown_mb} MB in {self.requests:,} requests; repeated in groups: {sent} "
            f"of {kinds} kinds of requests; repeated alone: {len(self._sent_alone)} of {len(self._reads)} kinds that "
            f"only read"
        )


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


def _with_number(case: Case, correlation_id: int) -> Case:
    """Return the case with another correlation id in its last frame, as a client sends it, unless bytes are cut."""
    *before, last = case.frames
    if case.is_transport_mutation or len(last) < HEADER_BYTES or not is_whole(last):
        return case
    return replace(case, frames=(*before, renumbered(last, correlation_id)))


def _block(memory: Callable[[], int], send: Callable[[list[Case]], object], cases: list[Case], requests: int) -> float:
    """Return the growth for each request; a block ends early once it grew by BLOCK_MB, to spare the machine."""
    before, growth, repeated = memory(), 0, map(_with_number, cycle(cases), NUMBERS)
    for number in range(0, requests, MEASURED_EVERY):
        send(list(islice(repeated, MEASURED_EVERY)))
        growth = memory() - before
        if growth > BLOCK_MB * MEGABYTE:
            return growth / (number + MEASURED_EVERY)
    return growth / requests


def seems_to_keep(memory: Callable[[], int], send: Callable[[list[Case]], object], case: Case) -> bool:
    """Repeat a request that only reads some hundred times; return True if the memory still grows with each."""
    _block(memory, send, [case], READ_FIRST)
    _block(memory, send, [case], READ_REQUESTS)
    return _block(memory, send, [case], READ_REQUESTS) >= READ_BYTES


def slope_of_read(memory: Callable[[], int], send: Callable[[list[Case]], object], cases: list[Case]) -> float | None:
    """Repeat requests that only read; return the bytes kept for each if every block kept READ_BYTES or more."""
    _block(memory, send, cases, READ_WARM_UP)
    slopes = []
    for requests in READ_BLOCKS:
        slopes.append(_block(memory, send, cases, requests))
        if slopes[-1] < READ_BYTES:
            return None
    return sum(slopes) / len(slopes)

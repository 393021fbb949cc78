"""What a session has noticed: handed to the confirmation by name, and kept if the run ends before it is examined."""

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final

from highwater.fuzz.wire.examination import searches
from highwater.fuzz.wire.examination.confirmation import Confirmation, Confirmed, Draft
from highwater.fuzz.wire.examination.triage import FATAL, WATCHED, Triage
from highwater.fuzz.wire.findings import Finding
from highwater.fuzz.wire.generate.cases import Case, Kind
from highwater.fuzz.wire.generate.long_arrays import LongArrays
from highwater.fuzz.wire.oracles.leaks import LeakKind, LeakWatch
from highwater.fuzz.wire.oracles.responses import Failure, Oracle
from highwater.fuzz.wire.run_state import Totals

LONG: Final = "long requests"
LONG_FIRST_S, LONG_AT_ONCE, LONG_SHARE = 4.0, 8, 4
"""When requests with a long array are sent for the first time (a short run has better uses for its time), how many
together, and for which share of the time, once all were sent: at most 1/LONG_SHARE.
"""


class Suspicions:
    """Hands failures to the confirmation. `against` is the address of the other target, if there are two.

    The first finding that counts (of the oracle `counted`, of any if that is empty) sets in `totals` when it was
    noticed; `frames` returns how many frames were sent until then.
    """

    def __init__(
        self, triage: Triage, totals: Totals, pause: Callable[[], AbstractContextManager[None]], *,
        frames: Callable[[], int], counted: str, against: str,
    ) -> None:  # fmt: skip
        self._triage, self._target, self._totals = triage, triage.target, totals
        self._frames, self._counted, self._against = frames, counted, against
        self._confirmation = Confirmation(triage, pause)
        self._failed_long: deque[tuple[Failure, list[Case]]] = deque()
        self.begin()

    def begin(self) -> None:
        """Count the time until the first finding from now on."""
        self._started, self._processor = time.monotonic(), time.process_time()
        self._next_long = self._started + LONG_FIRST_S

    # -- what was noticed --------------------------------------------------------------------------

    def failure(self, failure: Failure, suspects: list[Case], name: str = "", log: str = "") -> None:
        """Hand over a failure; `suspects` are in the order in which they were sent.

        `log` is what the target logged, if that is not what it logs now.
        """
        number, log = self._totals.cases, log or (self._target.log_text() if failure.oracle in FATAL else "")
        draft = partial(self._triage.draft, failure, suspects, number, log) if suspects else None
        self._submit(name or failure.oracle, lambda triage: triage.confirm(failure, suspects, number, log), draft)

    def unexamined_failure(self, finding: Finding) -> None:
        """Hand over what an earlier run has seen and not examined."""
        failure, name = Failure(finding.oracle, finding.message), _name_of(finding)
        if finding.oracle is Oracle.AGREEMENT and not self._against:
            self.leave(finding)  # there is no other target to ask
        else:
            *before, last = finding.cases()
            last = replace(last, mutation=finding.mutation, field=finding.field)
            if finding.oracle is Oracle.AGREEMENT:
                self.disagreement(failure, last)
            else:
                self.failure(failure, [*before, last], name, finding.log)

    def slow(self, case: Case, deadline_s: float) -> None:
        """Have a case sent alone, which seemed slow."""
        number = self._totals.cases
        self._submit(_slow(case.kind), lambda triage: searches.examine_slow(triage, case, deadline_s, number))

    def disagreement(self, failure: Failure, case: Case) -> None:
        """Have both targets compared once more."""
        number, other = self._totals.cases, self._against
        draft = partial(self._triage.draft, failure, [case], number, "")
        self._submit(failure.message, lambda triage: triage.confirm_disagreement(failure, case, other, number), draft)

    # -- memory ------------------------------------------------------------------------------------

    def search_leaks(self, leaks: LeakWatch) -> None:
        """Have the next kinds of requests sent alone or in a group, if it is time for that."""
        if self.is_waiting(Oracle.LEAK):
            return
        number, now = self._totals.cases, time.monotonic()
        is_free = self._target.has_twin and self._confirmation.is_idle  # failures that were seen come first
        if is_free and (reads := leaks.next_reads(now)):
            self._submit(Oracle.LEAK, lambda triage: _search_leaking_read(triage, leaks, reads, number))
        elif kinds := leaks.next_group(now):
            self._submit(Oracle.LEAK, lambda triage: _search_leak(triage, leaks, kinds, number))

    # -- long requests -----------------------------------------------------------------------------

    def search_long(self, long: LongArrays) -> None:
        """Have the next requests with a long array sent, if it is time for that; each alone, if one of them failed."""
        self._examine_long()
        if self.is_waiting(LONG) or time.monotonic() < self._next_long:
            return
        cases = [case for _ in range(LONG_AT_ONCE) if (case := long.draw()) is not None]
        if cases:
            self._confirmation.submit(LONG, lambda triage: self._send_long(triage, long, cases))

    def _send_long(self, triage: Triage, long: LongArrays, cases: list[Case]) -> None:
        started = time.monotonic()
        failure = searches.send_long(triage, cases)
        if failure is None:
            long.sent(len(cases))
        else:  # those behind the one that failed were not sent
            self._failed_long.append((failure, cases))
        now = time.monotonic()
        pause_s = (LONG_SHARE - 1) * (now - started)
        self._next_long = now + (pause_s if long.are_all_sent else pause_s / 6)

    def _examine_long(self) -> None:
        number = self._totals.cases
        while self._failed_long:
            failure, cases = self._failed_long.popleft()
            draft = partial(self._triage.draft, failure, cases, number, "")
            job = partial(searches.search_long, cases=cases, number=number)
            self._submit(f"{failure.oracle} by {LONG}", job, draft)

    # -- the confirmation --------------------------------------------------------------------------

    def is_waiting(self, name: str) -> bool:
        """Return True if failures of that name wait, or are being confirmed now."""
        return self._confirmation.is_waiting(name)

    def is_slow_waiting(self, kind: Kind) -> bool:
        """Return True if it is not known yet whether cases of a kind are slow."""
        return self._confirmation.is_waiting(_slow(kind))

    def results(self) -> list[Confirmed]:
        """Take what was found out since the last call."""
        return self._confirmation.results()

    def leave(self, finding: Finding) -> None:
        """Keep a failure of an earlier run that is not examined in this one either."""
        self._confirmation.leave(_name_of(finding), lambda: finding)

    def leave_failure(self, failure: Failure, suspects: list[Case], name: str) -> None:
        """Keep a failure that is not handed over any more, since the run has ended, unless a finding has it."""
        if suspects and not self._triage.is_reported(failure, suspects[-1]):
            self._confirmation.leave(name, partial(self._triage.draft, failure, suspects, self._totals.cases, ""))

    def close(self, seconds: float) -> None:
        """Examine what waits within that time, and keep the rest."""
        if seconds:
            self._examine_long()
        self._confirmation.close(seconds)
        while self._failed_long:
            failure, cases = self._failed_long.popleft()
            self.leave_failure(failure, cases, f"{failure.oracle} by {LONG}")

    def unexamined(self) -> dict[str, Draft]:
        """Return by name the failures of which none was examined."""
        return self._confirmation.unexamined()

    def _submit(self, name: str, job: Callable[[Triage], Finding | None], draft: Draft | None = None) -> None:
        """Record wall-clock time, processor time and frames until the failure whose finding is the first."""
        hit_s, hit_frames = time.monotonic() - self._started, self._frames()
        processor_s = time.process_time() - self._processor

        def confirm(triage: Triage) -> None:
            finding, totals = job(triage), self._totals
            if finding is not None and self._counted in ("", finding.oracle) and not totals.hit_s:
                totals.hit_s, totals.hit_frames, totals.hit_processor_s = hit_s, hit_frames, processor_s

        self._confirmation.submit(name, confirm, draft)


def _search_leaking_read(
    triage: Triage, leaks: LeakWatch, reads: dict[LeakKind, list[Case]], number: int
) -> Finding | None:
    started = time.monotonic()
    finding = searches.search_leaking_read(triage, chain.from_iterable(reads.values()), number)
    leaks.sent_alone(reads, started, time.monotonic())
    return finding


def _search_leak(triage: Triage, leaks: LeakWatch, kinds: dict[LeakKind, list[Case]], number: int) -> Finding | None:
    finding = searches.search_leak(triage, list(kinds.values()), number)
    leaks.sent(kinds)
    return finding


def _slow(kind: Kind) -> str:
    return f"slow {kind}"


def name_of(failure: Failure, api: str, version: int) -> str:
    """Return what a failure of a response has in common with its repetitions."""
    api_and_version, message = f"{api} v{version}: ", failure.message
    return f"{failure.oracle}: {message if message.startswith(api_and_version) else api_and_version + message}"


def _name_of(finding: Finding) -> str:
    """Return what a failure of an earlier run has in common with its repetitions."""
    if finding.oracle in FATAL | WATCHED:
        return finding.oracle
    return name_of(Failure(finding.oracle, finding.message), finding.api, finding.version)

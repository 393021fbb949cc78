"""Triage: from a failed oracle to a finding with its cause, a minimal reproducer, and duplicates removed."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Final

from highwater.fuzz.wire.connection import SILENT
from highwater.fuzz.wire.engine import ANSWERED_SUSPECTS, LIKELY_SUSPECTS, SLOW_S
from highwater.fuzz.wire.examination.agreement import disagreement
from highwater.fuzz.wire.examination.shrink import Breaks, shrink
from highwater.fuzz.wire.findings import EXPECTED, Finding, api_name, environment, new_id, steps_of, write_finding
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.oracles.responses import Failure, Oracle, key_and_version, read_request
from highwater.fuzz.wire.process import place_of
from highwater.fuzz.wire.replay import LATE_S, RESPONSE_ORACLES, Replay, prepare
from highwater.fuzz.wire.target import FuzzTarget
from highwater.reference.wire.errors import WireError
from highwater.reference.wire.registry import APIS

SHRINK_S: Final = 4.0
DEADLINE_AGAIN_S: Final = 1.5
"""Deadline of a replay; the target has already been silent for longer than this."""
SUSPECTS_MAX: Final = LIKELY_SUSPECTS
LATE_MAX: Final = LIKELY_SUSPECTS + ANSWERED_SUSPECTS
LATE_PART: Final = 25
"""Suspects of a crash after its response that are sent together."""
PARKED_AGAIN_S: Final = 0.02
CRASH_DEADLINE_S: Final = 0.3
"""Deadline of each frame if the failure is one of the process, so the reply itself does not matter."""
FAILED_SEARCHES_MAX: Final = 3
"""Limit on searches through all cases of a turn that find no cause; each takes seconds."""
LOG_KEPT: Final = 4_000
NO_START: Final = "; it does not start again with its data"
NOT_SENT_AGAIN: Final = (
    "The target stayed dead, and was not started by this command, so nothing could be sent to it again. The steps are "
    "what it received before it stopped answering, in this order; one of them may be the cause."
)
NOT_EXAMINED: Final = (
    "The run ended before this failure was examined. The steps are what the target received before, in this order."
)
DIGITS: Final = re.compile(r"0x[0-9a-f]+|[0-9a-f]*\d[0-9a-f]*")
KILLS_MAX: Final = 4
"""Crashes at one place of the target, after which the API version that reaches it is no longer sent."""
REASON: Final = re.compile(r" in position \d+: .*")
"""The position in a UTF-8 decoding error, and the reason, which differs from input to input."""
ALIKE_MAX: Final = 2
"""Findings that differ only in API and version; further ones are only counted."""
FATAL: Final = frozenset({Oracle.ALIVE, Oracle.STACK, Oracle.MEMORY, Oracle.DESCRIPTORS})
"""Failures of the process, which any earlier case may have caused, not only the last one."""
WATCHED: Final = frozenset({Oracle.LEAK, Oracle.STALL, Oracle.STATE})
"""Failures that are only reported once the suspects alone cause them again; the API identifies them."""
AVOIDED: Final = FATAL | {Oracle.DEADLINE, Oracle.STALL, Oracle.LEAK}
"""Failures after which the kind of case is no longer sent: it would end or slow down the rest of the run."""
PLACED: Final = frozenset({Oracle.ALIVE, Oracle.STACK})
"""Failures whose place in the source appears in the target's log."""
RESTARTS: Final = FATAL - {Oracle.STACK, Oracle.MEMORY} | {Oracle.DEADLINE}
"""Failures after which the target is restarted. A hanging request may keep using CPU; memory is mostly freed."""


class RunEndedError(Exception):
    """The time of the run is over, so this failure is not examined further."""


class TargetGoneError(RunEndedError):
    """The target is dead and cannot be started again: every replay would fail, whatever it sends."""


@dataclass
class Triage:
    """Confirm failures of one target and write the findings to `folder` as soon as they are known.

    `signatures` identify known findings by oracle, API, version and place.
    """

    target: FuzzTarget
    folder: Path
    seed: int
    target_name: str
    signatures: set[tuple[str, ...]] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    fatal_cases: list[Case] = field(default_factory=list)
    fatal_versions: set[tuple[int, int]] = field(default_factory=set)
    """API keys and versions that crash the target too often to be sent again."""
    unconfirmed: int = 0
    shrink_s: float = SHRINK_S
    alike: int = 0
    deadline_s: float = DEADLINE_AGAIN_S
    ended: Event = field(default_factory=Event)
    """Set at the end of the run: the next replay raises RunEndedError."""
    _kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    _kills: dict[str, Counter[int]] = field(default_factory=dict)
    """By place: how often a request of each API key caused the crash."""
    _failed_searches: Counter[Oracle] = field(default_factory=Counter)
    """By oracle: how often replaying all suspects did not reproduce the failure."""
    _settle_s: float = 0.0
    """How long replays wait for a crash, if the one that is examined comes after the response."""
    is_poisoned: bool = False
    """Whether the failure that is examined leaves data with which the target does not start."""
    is_gone: bool = False
    """Whether the target was dead when it was last needed, and could not be started again."""
    is_fresh: bool = False
    """Whether the target was restarted before the last replay."""
    tries: int = 0
    last_log: str = ""
    last_failure: Failure | None = None

    def is_known_hang(self, case: Case) -> bool:
        """Return True if a finding states that this API version hangs."""
        return (Oracle.DEADLINE.value, api_name(case.key), str(case.version), "") in self.signatures

    def is_reported(self, failure: Failure, case: Case) -> bool:
        """Return True if a finding has this failure. Checks wrong replies only, since that needs no replay."""
        return failure.oracle not in FATAL and self._signature(failure, case, "") in self.signatures

    def has_enough(self, oracle: Oracle, kind: str) -> bool:
        """Return True if further findings of that kind would only be counted."""
        return self._kinds[oracle.value, kind] >= ALIKE_MAX

    def confirm(self, failure: Failure, suspects: list[Case], number: int, log: str | None = None) -> Finding | None:
        """Find the cause of a failure, shrink it and write a finding.

        Returns None if the failure is known, or is a wrong reply that a replay does not reproduce. `suspects` are in
        the order in which they were sent. `log` is what the target logged, if that is not the one that replays. Sets
        `fatal_cases` to the case that crashed or blocked the target.
        Raises TargetGoneError if the target is dead for good, unless its death is the failure.
        """
        self.fatal_cases, self._settle_s, self.is_poisoned, self.is_fresh = [], 0.0, False, False
        is_fatal = failure.oracle in FATAL
        log = (self.target.log_text() if log is None else log) if is_fatal else ""
        if not suspects or self.is_reported(failure, suspects[-1]) or self._cause_is_known(failure, suspects, log):
            return None
        self.ensure_alive()
        was_gone = self.is_gone
        if was_gone and failure.oracle is not Oracle.ALIVE:
            raise TargetGoneError
        culprits = [] if was_gone else self._find_cause(failure.oracle, suspects)
        if not culprits and not is_fatal:
            self.unconfirmed += 1
            return None
        log = self.last_log if culprits else log
        if culprits and self.last_failure is not None and {failure.oracle, self.last_failure.oracle} & WATCHED:
            failure = self.last_failure  # what the suspects alone cause, not what the whole run showed
        last = (culprits or suspects)[-1]
        self.fatal_cases = culprits[-1:] if failure.oracle in AVOIDED else []
        if culprits and self.is_poisoned:
            failure = replace(failure, message=failure.message + NO_START)
            self.fatal_versions |= _versions_of(last)  # each version would cost a start with empty data
        self._count_kill(failure, log)
        signature = self._signature(failure, last, log)
        if signature in self.signatures:
            return None
        self.signatures |= {signature, self._signature(failure, last, log, with_message=True)}
        if self._is_alike(failure, self._kind(failure, last) if culprits else None, log):
            return None
        try:
            if culprits:
                culprits = shrink(culprits, self.same_failure(culprits, failure.oracle, log), self.shrink_s)
                self.fatal_cases = self.fatal_cases and culprits[-1:]
            reproduced = bool(culprits) and self._breaks_after_restart(culprits, failure.oracle)
            self.ensure_alive()
        except KeyboardInterrupt:  # its signature is recorded, so a later run would not report it
            self._write(failure, culprits or suspects, last, number, log=log, reproduced=bool(culprits))
            raise
        except RunEndedError:
            return self._write(failure, culprits or suspects, last, number, log=log, reproduced=bool(culprits))
        # A timer has changed the state (members expire), or a cache was filled.
        if failure.oracle in (Oracle.STATE, Oracle.LEAK) and not reproduced:
            self.unconfirmed += 1
            self.signatures.discard(signature)
            return None
        if culprits and not reproduced and self._is_alike(failure, None, log):
            return None
        note = NOT_SENT_AGAIN if was_gone else ""
        return self._write(failure, culprits or suspects, last, number, log=log, reproduced=reproduced, note=note)

    def _cause_is_known(self, failure: Failure, suspects: list[Case], log: str) -> bool:
        """Return True if only one API has crashed the target at this place, so that no replay is needed."""
        keys = self._kills.get(_place_of_kill(failure, log), Counter())
        self.fatal_cases = [case for case in suspects if case.key in keys][-1:] if len(keys) == 1 else []
        self._count_kill(failure, log)
        return bool(self.fatal_cases)

    def _count_kill(self, failure: Failure, log: str) -> None:
        place = _place_of_kill(failure, log)
        for case in self.fatal_cases if place else ():
            kills = self._kills.setdefault(place, Counter())
            kills[case.key] += 1
            if failure.oracle is Oracle.ALIVE and kills[case.key] > KILLS_MAX:
                self.fatal_versions.add((case.key, case.version))

    def confirm_disagreement(self, failure: Failure, case: Case, other: str, number: int) -> Finding | None:
        """Compare both targets once more, and write a finding if they differ in the same way."""
        if self.is_reported(failure, case):
            return None
        repeated = disagreement(case, self.target.address, other)
        if repeated != failure:
            self.unconfirmed += 1
            return None
        self.signatures.add(self._signature(failure, case, ""))
        if self._is_alike(failure, self._kind(failure, case), ""):
            return None
        return self._write(failure, [case], case, number, log="", reproduced=True)

    def _is_alike(self, failure: Failure, kind: str | None, log: str) -> bool:
        """Return True if enough findings of that kind exist in other APIs and versions.

        `kind` None: the failure was not reproduced on a freshly started target. Such failures take many forms
        with one cause, so one is reported, or one for each place in the log.
        """
        most = 1 if kind is None else ALIKE_MAX
        known = (failure.oracle.value, place_of(log) if kind is None else kind)
        self._kinds[known] += 1
        self.alike += (is_alike := self._kinds[known] > most)
        return is_alike

    def _kind(self, failure: Failure, case: Case) -> str:
        """Return what is wrong with the reply, else with the request, else the transport mutation, else the API."""
        what = failure.message.partition(": ")[2]
        if failure.oracle in (Oracle.LEAK, Oracle.STALL):
            return api_name(case.key)
        if failure.oracle not in RESPONSE_ORACLES or not what:
            return decode_error_of(case) or (case.mutation if case.is_transport_mutation else api_name(case.key))
        if failure.oracle is Oracle.REFUSE:
            return what.rpartition(" in ")[0] or what  # one reader has the flaw in all fields
        return DIGITS.sub("#", REASON.sub("", what.partition(" version ")[2] or what))

    def _signature(self, failure: Failure, case: Case, log: str, *, with_message: bool = False) -> tuple[str, ...]:
        """Return what identifies a finding: the place of a crash, otherwise the API and version, for some with message.

        Wrong replies to a valid request share one signature. `with_message`: include the message in any case.
        """
        place = place_of(log)
        if failure.oracle in PLACED and place:
            return (failure.oracle.value, place)
        if failure.oracle in WATCHED or failure.oracle is Oracle.REFUSE:
            what = "" if failure.oracle in (Oracle.LEAK, Oracle.STALL) else failure.message.partition(": ")[2]
            return (failure.oracle.value, api_name(case.key), what)
        by_message = failure.oracle in (Oracle.ERROR_CODE, Oracle.AGREEMENT) or (
            failure.oracle is Oracle.DECODE and (with_message or decode_error_of(case) != "")
        )
        what = DIGITS.sub("#", failure.message) if by_message else ""
        return (failure.oracle.value, api_name(case.key), str(case.version), what)

    def _find_cause(self, oracle: Oracle, suspects: list[Case]) -> list[Case]:
        """Return the cases that reproduce the failure: one, the latest first, or several; empty if none does.

        Cases are tried one after another without a restart, which costs as much as a thousand frames.
        """
        if oracle is Oracle.LEAK:
            return suspects if self.breaks(suspects, oracle) else []
        if oracle is Oracle.MEMORY:
            return self._bisect(oracle, suspects)
        tried = suspects[: -SUSPECTS_MAX - 1 : -1] if oracle in PLACED or oracle is Oracle.STALL else suspects[-1:]
        for number, case in enumerate(tried):
            started = time.monotonic()
            if self.breaks([case], oracle):
                return self._confirm_crash(tried[: number + 1]) if oracle is Oracle.ALIVE else [case]
            is_slow = oracle is Oracle.ALIVE and time.monotonic() - started >= SLOW_S
            if is_slow and self.breaks([case], Oracle.STALL):
                return [case]  # several of its kind seemed to hang the target
        is_first = not self._failed_searches[oracle]  # a search for a late crash that finds none takes 15 s
        if oracle is Oracle.ALIVE and is_first and (late := self._find_late_crash(suspects)):
            return late
        return self._bisect(oracle, suspects) if len(suspects) > 1 else []

    def _confirm_crash(self, tried: list[Case]) -> list[Case]:
        """Return the cases that crash the target: the last one, unless one before it does so after its response.

        A hang begins with its cause, and to wait for it again would take seconds.
        """
        if self.is_gone:
            return tried  # no other try is possible
        hangs = self.last_failure is not None and SILENT in self.last_failure.message
        if len(tried) == 1 or hangs or self.breaks(tried[-1:], Oracle.ALIVE):
            return tried[-1:]
        return self._find_late_crash(tried) or tried[-1:]

    def _find_late_crash(self, suspects: list[Case]) -> list[Case]:
        """Return the case that crashes the target some time after its response, or several; empty if none does.

        Suspects are sent in parts, the latest first, and then alone: a bisection would crash the target more often,
        which costs ten times as much as to wait for a crash that does not come.
        """
        self._settle_s = LATE_S
        part = next((part for part in _parts(suspects[-LATE_MAX:], LATE_PART) if self.breaks(part, Oracle.ALIVE)), [])
        parts = _parts(part if not self.is_gone else [], 1)
        alone = next((case for case in parts if self.breaks(case, Oracle.ALIVE)), [])
        self._settle_s = LATE_S if part else 0.0
        return alone or part

    def _bisect(self, oracle: Oracle, suspects: list[Case]) -> list[Case]:
        """Return a minimal part of the suspects by bisection, trying the later half first."""
        is_hopeless = self._failed_searches[oracle] >= FAILED_SEARCHES_MAX and oracle not in WATCHED
        if is_hopeless or not self.breaks(suspects, oracle):
            self._failed_searches[oracle] += 1
            return []
        while len(suspects) > 1 and not self.is_gone:
            middle = len(suspects) // 2
            half = next((part for part in (suspects[middle:], suspects[:middle]) if self.breaks(part, oracle)), None)
            if half is None:
                break
            suspects = half
        return suspects

    def same_failure(self, cases: list[Case], oracle: Oracle, log: str) -> Breaks:
        """Return a predicate for shrinking: the candidate must cause the same failure, and no other.

        The last request must have the same API, version and decode error, and a crash must be at the same place.
        """
        place = place_of(log) if oracle in PLACED else ""
        last_api, wrong = _last_key_and_version(cases), decode_error_of(cases[-1])

        def same(candidate: list[Case]) -> bool:
            if not candidate or (_last_key_and_version(candidate), decode_error_of(candidate[-1])) != (last_api, wrong):
                return False
            if self.is_gone:
                return False
            if not self.breaks(candidate, oracle):
                return False
            return oracle not in PLACED or place_of(self.last_log) == place

        return same

    def breaks(self, cases: list[Case], oracle: Oracle) -> bool:
        self.tries += 1
        is_of_process = oracle in FATAL or oracle in WATCHED
        deadline_s = min(self.deadline_s, CRASH_DEADLINE_S) if is_of_process else self.deadline_s
        if self.ended.is_set():
            raise RunEndedError
        if self.is_gone:
            raise TargetGoneError
        failure = Replay(self.target, deadline_s, PARKED_AGAIN_S, self._settle_s).run(cases, oracle)
        self.last_failure = failure
        self.last_log = self.target.log_text() if failure is not None and failure.oracle in FATAL else ""
        if failure is not None and (failure.oracle in RESTARTS or self.target.holds_excess_memory):
            self.restart_after_failure()
        if failure is None:
            return False
        is_endless_stall = oracle is Oracle.STALL and failure.oracle is Oracle.ALIVE
        return failure.oracle is oracle or is_endless_stall

    def restart_after_failure(self) -> None:
        """Restart the target, with empty data once it is known that it does not start with what the failure left."""
        renewals = self.target.renewals
        self.target.restart(empty=self.is_poisoned)
        self.ensure_alive()
        self.is_poisoned |= self.target.renewals > renewals
        if self.is_poisoned:
            prepare(self.target.address)  # the next suspects need them

    def _breaks_after_restart(self, cases: list[Case], oracle: Oracle) -> bool:
        """Return True if the cases also fail on a freshly started target, as for a user who replays the finding.

        Also True if the target cannot be restarted: `is_fresh` says so.
        """
        self.is_fresh = self.target.restart()
        if not self.is_fresh:
            return True
        prepare(self.target.address)
        return self.breaks(cases, oracle)

    def ensure_alive(self) -> None:
        """Start the target again if it is dead; `is_gone` says that it stays dead."""
        self.is_gone = self.target.why_dead() is not None and not self.target.restart() and not self.target.revive()

    def draft(self, failure: Failure, suspects: list[Case], number: int, log: str) -> Finding:
        """Return a failure as the run saw it, before any replay."""
        return self._finding(failure, suspects, suspects[-1], number, log=log, note=NOT_EXAMINED)

    def _write(
        self, failure: Failure, cases: list[Case], last: Case, number: int, *, log: str, reproduced: bool,
        note: str = "",
    ) -> Finding:  # fmt: skip
        finding = self._finding(
            failure, cases, last, number, log=log, reproduced=reproduced, restarted=self.is_fresh, note=note
        )
        write_finding(self.folder, finding)
        self.findings.append(finding)
        return finding

    def _finding(
        self, failure: Failure, cases: list[Case], last: Case, number: int, *, log: str, note: str,
        reproduced: bool = False, restarted: bool = False,
    ) -> Finding:  # fmt: skip
        api, version = api_name(last.key), last.version
        return Finding(
            id=new_id(self.folder, failure.oracle, api, version), oracle=failure.oracle, api=api, version=version,
            mutation=last.mutation, field=last.field, place=place_of(log), message=failure.message,
            expected=EXPECTED[failure.oracle], target=self.target_name, seed=self.seed, case=number,
            reproduced=reproduced, restarted=restarted, note=note,
            steps=steps_of(cases), log=log[-LOG_KEPT:], environment=environment(self.target.version),
        )  # fmt: skip


def _place_of_kill(failure: Failure, log: str) -> str:
    """Return the place of a crash or exception in the source, the same for all hangs, and empty if not known."""
    if failure.oracle not in PLACED:
        return ""
    return place_of(log) or (SILENT if SILENT in failure.message else "")


def _parts(cases: list[Case], size: int) -> Iterator[list[Case]]:
    """Yield parts of that size, the last one first; the first one may be smaller."""
    for end in range(len(cases), 0, -size):
        yield cases[max(0, end - size) : end]


def _versions_of(case: Case) -> set[tuple[int, int]]:
    """Return the API key of a case with each version of the API; with its own if the API is not known."""
    api = APIS.get(case.key)
    versions = range(api.min_version, api.max_version + 1) if api is not None else (case.version,)
    return {(case.key, version) for version in versions}


def decode_error_of(case: Case) -> str:
    """Return the decode error of the last frame, without API name and numbers; empty for a valid request."""
    try:
        read_request(case.frames[-1][4:])
    except WireError as error:
        with_message = str(error)
        return DIGITS.sub(
            "#", REASON.sub("", with_message.partition(" version ")[2].partition(": ")[2] or with_message)
        )
    return ""


def _last_key_and_version(cases: list[Case]) -> tuple[int, int]:
    return key_and_version(cases[-1].frames[-1]) if cases and cases[-1].frames else (-1, -1)

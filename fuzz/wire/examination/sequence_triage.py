"""Confirm what a sequence has shown: a reply that its model does not allow, or the death of the target."""

import time
from collections.abc import Collection, Sequence

import msgspec

from highwater.fuzz.wire.connection import advertised
from highwater.fuzz.wire.examination.shrink import minimise_list
from highwater.fuzz.wire.examination.triage import (
    DIGITS,
    NO_START,
    NOT_EXAMINED,
    RunEndedError,
    TargetGoneError,
    Triage,
)
from highwater.fuzz.wire.findings import EXPECTED, Finding, environment, new_id, write_finding
from highwater.fuzz.wire.oracles.responses import Failure, Oracle
from highwater.fuzz.wire.replay import LATE_S, stall_in_sequence
from highwater.fuzz.wire.sequences.run import SequenceResult, replay_sequence, run_sequence, version_ranges
from highwater.fuzz.wire.sequences.violation import SequenceViolation


class SequenceTriage:
    """Confirms failures of sequences with the target, the known findings and the folder of a `Triage`."""

    def __init__(self, triage: Triage) -> None:
        self._triage = triage

    def confirm_sequence(self, name: str, result: SequenceResult, number: int) -> Finding | None:
        """Replay a sequence that violated the model, leave out unneeded steps, and write a finding.

        Raises TargetGoneError if the target is dead for good.
        """
        violation = result.violation
        assert violation is not None
        api, version, failure = violation.api.name, violation.version, violation.failure
        signature = (failure.oracle.value, api, name.partition(":")[0], DIGITS.sub("#", failure.message))
        if signature in self._triage.signatures:
            return None
        self._require_alive()
        if self.replay_violation(name, failure, ()) is None:
            self._triage.unconfirmed += 1
            return None
        without = self.unneeded_steps(name, failure, result.steps)
        violation = self.replay_violation(name, failure, without) or violation
        self._triage.is_fresh = self._triage.target.restart()
        reproduced = not self._triage.is_fresh or self.replay_violation(name, failure, without) is not None
        self._triage.signatures.add(signature)
        return self._write(name, violation.failure, (api, version), violation.transcript, number, without, reproduced)

    def confirm_again(self, name: str, number: int) -> Finding | None:
        """Confirm what a sequence showed in an earlier run, which ended before that was examined."""
        self._require_alive()
        address = self._triage.target.address
        result = run_sequence(name, address, version_ranges(advertised(address)))
        return None if result.violation is None else self.confirm_sequence(name, result, number)

    def draft(self, name: str, violation: SequenceViolation, number: int) -> Finding:
        """Return what a sequence showed, before any replay."""
        place = violation.api.name, violation.version
        return self._finding(name, violation.failure, place, violation.transcript, number, note=NOT_EXAMINED)

    def _require_alive(self) -> None:
        self._triage.ensure_alive()
        if self._triage.is_gone:
            raise TargetGoneError

    def confirm_death(self, names: Sequence[str], number: int) -> Finding | None:
        """Replay sequences that ran when the target died or hung, the latest first; report the one that does it.

        The target may die late, in the sequence after the one that is the cause. So those that were replayed are
        replayed once more, with time for a late crash after each.
        """
        self._triage.is_poisoned, latest_first = False, names[::-1]
        for index, name in enumerate(latest_first):
            found = self._dies_of(name)
            if found is None:
                continue
            again = ((one, late) for one in latest_first[index::-1] if (late := self._dies_of(one, LATE_S)) is not None)
            can_repeat = index > 0 and not self._triage.is_gone
            cause, found = next(again, (name, found)) if can_repeat else (name, found)
            self._triage.explained.add(number)
            signature = (Oracle.ALIVE.value, "sequence", cause.partition(":")[0])
            is_known = signature in self._triage.signatures
            self._triage.signatures.add(signature)
            return None if is_known else self._write_death(cause, *found, number)
        return None

    def confirm_stall(self, names: Sequence[str], number: int) -> Finding | None:
        """Replay sequences during which a healthy connection had to wait, the latest first; report the cause.

        It must do so twice, on a freshly started target, too: a busy machine makes single requests slow.
        """
        for name in names[::-1]:
            if self._stall_in(name) is None:
                continue
            self._triage.is_fresh = self._triage.target.restart()
            failure, kind = self._stall_in(name), name.partition(":")[0]
            signature = (Oracle.STALL.value, "sequence", kind)
            self._triage.unconfirmed += failure is None
            if failure is None or signature in self._triage.signatures:
                return None
            self._triage.signatures.add(signature)
            return self._write(name, failure, (kind, 0), [], number, [], reproduced=True)
        return None

    def _stall_in(self, name: str) -> Failure | None:
        if self._triage.ended.is_set():
            raise RunEndedError
        self._require_alive()
        return stall_in_sequence(self._triage.target, name)

    def _dies_of(self, name: str, settle_s: float = 0.0) -> tuple[Failure, SequenceViolation | None] | None:
        """Return the failure if the target dies or hangs in a sequence, and the violation if the sequence saw it.

        The target is restarted then.
        """
        if self._triage.ended.is_set():
            raise RunEndedError
        self._require_alive()
        violation, dead = (
            replay_sequence(name, self._triage.target.address),
            self._triage.target.why_dead_within(settle_s),
        )
        hangs = violation is not None and violation.failure.oracle is Oracle.DEADLINE
        if dead is None and not hangs:
            return None
        self._triage.restart_after_failure()
        if violation is not None and hangs:
            return violation.failure, violation
        return Failure(Oracle.ALIVE, f"the target {dead}" + (NO_START if self._triage.is_poisoned else "")), violation

    def _write_death(self, name: str, failure: Failure, violation: SequenceViolation | None, number: int) -> Finding:
        reproduced = self._dies_again(name)
        if violation is None:
            return self._write(name, failure, (name.partition(":")[0], 0), [], number, [], reproduced)
        place = violation.api.name, violation.version
        return self._write(name, failure, place, violation.transcript, number, [], reproduced)

    def _dies_again(self, name: str) -> bool:
        """Return whether the target dies of a sequence again; True if that cannot be tried, since it did once."""
        self._triage.is_fresh = False
        if self._triage.is_gone:
            return True
        self._triage.is_fresh = self._triage.target.is_launched
        return self._dies_of(name, LATE_S) is not None

    def _write(
        self, name: str, failure: Failure, place: tuple[str, int], said: list[str], number: int, without: list[int],
        reproduced: bool,
    ) -> Finding:  # fmt: skip
        triage = self._triage
        finding = msgspec.structs.replace(
            self._finding(name, failure, place, said, number), without=without, reproduced=reproduced,
            restarted=triage.is_fresh,
        )  # fmt: skip
        write_finding(triage.folder, finding)
        triage.findings.append(finding)
        return finding

    def _finding(
        self, name: str, failure: Failure, place: tuple[str, int], said: list[str], number: int, *, note: str = ""
    ) -> Finding:
        triage, (api, version) = self._triage, place
        return Finding(
            id=new_id(triage.folder, failure.oracle, api, version), oracle=failure.oracle, api=api, version=version,
            mutation="sequence", field="", place="", message=failure.message, expected=EXPECTED[failure.oracle],
            target=triage.target_name, seed=triage.seed, case=number, reproduced=False, restarted=False, steps=[],
            sequence=name, said=said, note=note, environment=environment(triage.target.version),
        )  # fmt: skip

    def replay_violation(self, name: str, failure: Failure, without: Collection[int]) -> SequenceViolation | None:
        """Replay a sequence; return its violation if oracle and message are the same, apart from numbers."""
        found = replay_sequence(name, self._triage.target.address, without)
        if found is None or found.failure.oracle is not failure.oracle:
            return None
        return found if _differ_in_numbers_only(found.failure.message, failure.message) else None

    def unneeded_steps(self, name: str, failure: Failure, steps: int) -> list[int]:
        """Return the numbers of the steps without which the sequence still fails."""
        end, numbers = time.monotonic() + self._triage.shrink_s, list(range(steps))

        def breaks(remaining: list[int]) -> bool:
            left_out = set(numbers) - set(remaining)
            is_over = time.monotonic() >= end or self._triage.ended.is_set()
            return not is_over and self.replay_violation(name, failure, left_out) is not None

        needed = minimise_list(numbers, breaks)
        return sorted(set(numbers) - set(needed))


def _differ_in_numbers_only(one: str, other: str) -> bool:
    return DIGITS.sub("#", one) == DIGITS.sub("#", other)

"""From something that broke to a finding: what did it, how little of it is enough, and is it known already?"""

import re
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from highwater.fuzz.wire.agreement import disagreement
from highwater.fuzz.wire.findings import EXPECTED, Finding, api_name, environment, new_id, steps_of, write_finding
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.oracles import Broken, Oracle, asked, read_request
from highwater.fuzz.wire.process import place_of
from highwater.fuzz.wire.replay import OF_AN_ANSWER, Replay, make_topics
from highwater.fuzz.wire.sequences.context import Violation
from highwater.fuzz.wire.sequences.run import Played, replay_sequence
from highwater.fuzz.wire.shrink import Breaks, fewest, shrink
from highwater.fuzz.wire.target import Lab
from highwater.reference.wire.errors import WireError

SHRINK_S: Final = 4.0
DEADLINE_AGAIN_S: Final = 1.5
"""Of a replay, when the target is known to have been silent for longer."""
SUSPECTS_MAX: Final = 60
PARKED_AGAIN_S: Final = 0.02
IMPATIENCE_S: Final = 0.3
"""With each frame, when it is the process that counts."""
VAIN_MAX: Final = 3
"""Searches among all that was sent, for what needs the target's past: they take seconds."""
LOG_KEPT: Final = 4_000
DIGITS: Final = re.compile(r"0x[0-9a-f]+|[0-9a-f]*\d[0-9a-f]*")
KILLS_MAX: Final = 4
"""At one place of the target; then a version that gets there is left alone, whatever is wrong with the request."""
REASON: Final = re.compile(r" in position \d+: .*")
"""Of a decoder of texts: there are three words for bytes that are none."""
ALIKE_MAX: Final = 2
"""Findings that differ in API and version only; more of them are counted."""
FATAL: Final = frozenset({Oracle.ALIVE, Oracle.STACK, Oracle.MEMORY, Oracle.DESCRIPTORS})
"""Seen on the process: broken by any of the cases before, not only by the last."""
PLACED: Final = frozenset({Oracle.ALIVE, Oracle.STACK})
"""Where that was, its log tells."""
RESTARTS: Final = FATAL - {Oracle.STACK, Oracle.MEMORY} | {Oracle.DEADLINE}
"""What hangs may go on to eat a core; what took memory has mostly given it back."""


@dataclass
class Inquest:
    """Findings go to `folder` at once. `seen` are those known, by oracle, API, version and place."""

    lab: Lab
    folder: Path
    seed: int
    target: str
    seen: set[tuple[str, ...]] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    convicted: list[Case] = field(default_factory=list)
    condemned: set[tuple[int, int]] = field(default_factory=set)
    """Keys and versions that kill too often to be asked again."""
    unconfirmed: int = 0
    shrink_s: float = SHRINK_S
    alike: int = 0
    deadline_s: float = DEADLINE_AGAIN_S
    _kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    _kills: dict[str, Counter[int]] = field(default_factory=dict)
    """By place: how often a request of each key was to blame."""
    _vain: Counter[Oracle] = field(default_factory=Counter)
    """How often all suspects together did not do it again."""
    tries: int = 0
    last_log: str = ""

    def is_known(self, case: Case) -> bool:
        """It is known to hang."""
        return (Oracle.DEADLINE.value, api_name(case.key), str(case.version), "") in self.seen

    def is_seen(self, broken: Broken, case: Case) -> bool:
        """There is a finding of it; cheap, and for wrong answers only."""
        return broken.oracle not in FATAL and self._signature(broken, case, "") in self.seen

    def hold(self, broken: Broken, suspects: list[Case], number: int) -> Finding | None:
        """Find who did it, shrink it, write it; None if it is known, or an answer that was not given again.

        Suspects come in the order in which they were sent. `convicted` are the cases of which the target dies.
        """
        self.convicted = []
        is_fatal = broken.oracle in FATAL
        log = self.lab.said() if is_fatal else ""
        if not suspects or self.is_seen(broken, suspects[-1]) or self._knows_killer(broken, suspects, log):
            return None
        self._ensure_alive()
        culprits = self._culprits(broken.oracle, suspects)
        if not culprits and not is_fatal:
            self.unconfirmed += 1
            return None
        log = self.last_log if culprits else log
        last = (culprits or suspects)[-1]
        self.convicted = culprits[-1:] if is_fatal or broken.oracle is Oracle.DEADLINE else []
        self._count_kill(broken, log)
        signature = self._signature(broken, last, log)
        if signature in self.seen:
            return None
        self.seen |= {signature, self._signature(broken, last, log, told=True)}
        if self._is_alike(broken, self._kind(broken, last) if culprits else None, log):
            return None
        try:
            if culprits:
                culprits = shrink(culprits, self.like(culprits, broken.oracle, log), self.shrink_s)
                self.convicted = self.convicted and culprits[-1:]
            reproduced = bool(culprits) and self._breaks_anew(culprits, broken.oracle)
        except KeyboardInterrupt:  # it is known from now on, so that it must be told
            self._write(broken, culprits or suspects, last, number, log=log, reproduced=bool(culprits))
            raise
        self._ensure_alive()
        if culprits and not reproduced and self._is_alike(broken, None, log):
            return None
        return self._write(broken, culprits or suspects, last, number, log=log, reproduced=reproduced)

    def _knows_killer(self, broken: Broken, suspects: list[Case], log: str) -> bool:
        """It died at a place where one API alone has killed it before: no replay tells more."""
        killers = self._kills.get(place_of(log), Counter()) if broken.oracle in PLACED else Counter[int]()
        self.convicted = [case for case in suspects if case.key in killers][-1:] if len(killers) == 1 else []
        self._count_kill(broken, log)
        return bool(self.convicted)

    def _count_kill(self, broken: Broken, log: str) -> None:
        place = place_of(log)
        if broken.oracle not in PLACED or not place:
            return
        for case in self.convicted:
            kills = self._kills.setdefault(place, Counter())
            kills[case.key] += 1
            if broken.oracle is Oracle.ALIVE and kills[case.key] > KILLS_MAX:
                self.condemned.add((case.key, case.version))

    def hold_disagreement(self, broken: Broken, case: Case, other: str, number: int) -> Finding | None:
        """Two targets that answer one request differently, twice."""
        if self.is_seen(broken, case):
            return None
        again = disagreement(case, self.lab.address, other)
        if again != broken:
            self.unconfirmed += 1
            return None
        self.seen.add(self._signature(broken, case, ""))
        if self._is_alike(broken, self._kind(broken, case), ""):
            return None
        return self._write(broken, [case], case, number, log="", reproduced=True)

    def hold_sequence(self, name: str, played: Played, number: int) -> Finding | None:
        """A conversation that the model contradicts: played again, in fewer steps, and written with what was said."""
        violation = played.violation
        assert violation is not None
        api, version, broken = violation.api.name, violation.version, violation.broken
        signature = (broken.oracle.value, api, name.partition(":")[0], DIGITS.sub("#", broken.message))
        if signature in self.seen:
            return None
        if self.again(name, broken, ()) is None:
            self.unconfirmed += 1
            return None
        without = self.needless(name, broken, played.steps)
        violation = self.again(name, broken, without) or violation
        reproduced = not self.lab.restart() or self.again(name, broken, without) is not None
        finding = Finding(
            id=new_id(self.folder, broken.oracle, api, version), oracle=broken.oracle, api=api, version=version,
            mutation="sequence", field="", place="", message=violation.broken.message, expected=EXPECTED[broken.oracle],
            target=self.target, seed=self.seed, case=number, reproduced=reproduced, steps=[], sequence=name,
            without=without, said=violation.said, environment=environment(self.lab.version),
        )  # fmt: skip
        self.seen.add(signature)
        write_finding(self.folder, finding)
        self.findings.append(finding)
        return finding

    def again(self, name: str, broken: Broken, without: Collection[int]) -> Violation | None:
        """The same oracle breaks by the same words, but for numbers."""
        found = replay_sequence(name, self.lab.address, without)
        if found is None or found.broken.oracle is not broken.oracle:
            return None
        return found if _alike(found.broken.message, broken.message) else None

    def needless(self, name: str, broken: Broken, steps: int) -> list[int]:
        """Steps that it breaks without."""
        end, numbers = time.monotonic() + self.shrink_s, list(range(steps))

        def breaks(kept: list[int]) -> bool:
            left_out = set(numbers) - set(kept)
            return time.monotonic() < end and self.again(name, broken, left_out) is not None

        needed = fewest(numbers, breaks)
        return sorted(set(numbers) - set(needed))

    def _is_alike(self, broken: Broken, kind: str | None, log: str) -> bool:
        """There are findings enough of that kind, in other APIs and versions.

        What a target that knows nothing yet does not do (None) has many forms and may have one cause: it is told once,
        or once for each place in the log.
        """
        most = 1 if kind is None else ALIKE_MAX
        known = (broken.oracle.value, place_of(log) if kind is None else kind)
        self._kinds[known] += 1
        self.alike += (is_alike := self._kinds[known] > most)
        return is_alike

    def _kind(self, broken: Broken, case: Case) -> str:
        """What is wrong with the answer, or else with the request, or how its bytes come, or else who is asked."""
        what = broken.message.partition(": ")[2]
        if broken.oracle not in OF_AN_ANSWER or not what:
            return what_is_wrong(case) or (case.mutation if case.comes_unsound else api_name(case.key))
        return DIGITS.sub("#", REASON.sub("", what.partition(" version ")[2] or what))

    def _signature(self, broken: Broken, case: Case, log: str, *, told: bool = False) -> tuple[str, ...]:
        """A stack is a place of its own, whatever the request; otherwise there is one for each API and version.

        Answers to a sound request that are wrong are so in one way, however that reads, unless it is to be `told`.
        """
        place = place_of(log)
        if broken.oracle in PLACED and place:
            return (broken.oracle.value, place)
        by_message = broken.oracle in (Oracle.ERROR_CODE, Oracle.AGREEMENT) or (
            broken.oracle is Oracle.DECODE and (told or what_is_wrong(case) != "")
        )
        what = DIGITS.sub("#", broken.message) if by_message else ""
        return (broken.oracle.value, api_name(case.key), str(case.version), what)

    def _culprits(self, oracle: Oracle, suspects: list[Case]) -> list[Case]:
        """One alone, the latest first, or some together; nothing if it does not happen again.

        One after the other against one living target: a restart costs as much as a thousand frames.
        """
        if oracle is Oracle.MEMORY:
            return self._together(oracle, suspects)
        for case in suspects[: -SUSPECTS_MAX - 1 : -1] if oracle in PLACED else suspects[-1:]:
            if self.breaks([case], oracle):
                return [case]
        return self._together(oracle, suspects) if len(suspects) > 1 else []

    def _together(self, oracle: Oracle, suspects: list[Case]) -> list[Case]:
        """The later half for as long as it is enough, or else the earlier."""
        if self._vain[oracle] >= VAIN_MAX or not self.breaks(suspects, oracle):
            self._vain[oracle] += 1
            return []
        while len(suspects) > 1:
            middle = len(suspects) // 2
            half = next((each for each in (suspects[middle:], suspects[:middle]) if self.breaks(each, oracle)), None)
            if half is None:
                break
            suspects = half
        return suspects

    def alone(self, case: Case, deadline_s: float) -> Broken | None:
        """What it breaks by itself."""
        return Replay(self.lab, deadline_s, PARKED_AGAIN_S).run([case])

    def like(self, cases: list[Case], oracle: Oracle, log: str) -> Breaks:
        """Does a candidate break the same, and not something else on the way to being small?

        The same API and version is asked in the end, as wrongly as before, and what dies dies at the same place.
        """
        place = place_of(log) if oracle in PLACED else ""
        asked_last, wrong = _asked_last(cases), what_is_wrong(cases[-1])

        def same(candidate: list[Case]) -> bool:
            if not candidate or (_asked_last(candidate), what_is_wrong(candidate[-1])) != (asked_last, wrong):
                return False
            if not self.breaks(candidate, oracle):
                return False
            return oracle not in PLACED or place_of(self.last_log) == place

        return same

    def breaks(self, cases: list[Case], oracle: Oracle) -> bool:
        self.tries += 1
        deadline_s = min(self.deadline_s, IMPATIENCE_S) if oracle in FATAL else self.deadline_s
        broken = Replay(self.lab, deadline_s, PARKED_AGAIN_S).run(cases, oracle)
        self.last_log = self.lab.said() if broken is not None and broken.oracle in FATAL else ""
        if broken is not None and (broken.oracle in RESTARTS or self.lab.is_swollen):
            self.lab.restart()
            self._ensure_alive()
        return broken is not None and broken.oracle is oracle

    def _breaks_anew(self, cases: list[Case], oracle: Oracle) -> bool:
        """Also on a target without a past, as who replays the file will have it."""
        if not self.lab.restart():
            return True
        make_topics(self.lab.address)
        return self.breaks(cases, oracle)

    def _ensure_alive(self) -> None:
        if self.lab.why_dead() is not None:
            self.lab.revive()

    def _write(
        self, broken: Broken, cases: list[Case], last: Case, number: int, *, log: str, reproduced: bool
    ) -> Finding:
        api, version = api_name(last.key), last.version
        finding = Finding(
            id=new_id(self.folder, broken.oracle, api, version), oracle=broken.oracle, api=api, version=version,
            mutation=last.mutation, field=last.field, place=place_of(log), message=broken.message,
            expected=EXPECTED[broken.oracle], target=self.target, seed=self.seed, case=number, reproduced=reproduced,
            steps=steps_of(cases), log=log[-LOG_KEPT:], environment=environment(self.lab.version),
        )  # fmt: skip
        write_finding(self.folder, finding)
        self.findings.append(finding)
        return finding


def _alike(one: str, other: str) -> bool:
    return DIGITS.sub("#", one) == DIGITS.sub("#", other)


def what_is_wrong(case: Case) -> str:
    """With its last frame, as our own reader says it of any API; nothing with a sound one."""
    try:
        read_request(case.frames[-1][4:])
    except WireError as error:
        told = str(error)
        return DIGITS.sub("#", REASON.sub("", told.partition(" version ")[2].partition(": ")[2] or told))
    return ""


def _asked_last(cases: list[Case]) -> tuple[int, int]:
    return asked(cases[-1].frames[-1]) if cases and cases[-1].frames else (-1, -1)

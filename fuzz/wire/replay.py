"""A finding again: the same steps, and whether the same oracle breaks."""

import random
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from highwater.fuzz.wire.connection import advertised, connect
from highwater.fuzz.wire.findings import Finding
from highwater.fuzz.wire.generate.cases import Case, Ends
from highwater.fuzz.wire.generate.requests import TOPICS
from highwater.fuzz.wire.oracles import DEADLINE_S, PARKED_S, Broken, Oracle, judge, patience
from highwater.fuzz.wire.sequences.context import LATEST, NOT_NOW, Abandoned, Stage, Violation
from highwater.fuzz.wire.sequences.run import replay_sequence, spoken
from highwater.fuzz.wire.target import Lab
from highwater.reference.client.connection import Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import FrameSizeError

SEGMENT_S: Final = 0.01
"""Between segments, so that the target reads them one by one."""
LEAK_TURNS: Final = 150
"""A leak shows only in numbers: the steps are sent that often."""
LOOKS_MAX: Final = 400
OF_AN_ANSWER: Final = frozenset({Oracle.DECODE, Oracle.CORRELATION, Oracle.ERROR_CODE})
"""What the process is like needs no look."""


def make_topics(address: str) -> None:
    """Those that cases name: without them a target that knows nothing yet would refuse what another takes up."""
    with suppress(OSError, Violation, Abandoned):
        stage = Stage(address, spoken(advertised(address)), random.Random(0))
        try:
            if stage.speaks(2, 19):
                line = stage.line()
                for name in TOPICS:
                    stage.topic(line, name)
                    any(stage.listed(line, name, LATEST).error_code not in NOT_NOW for _ in range(LOOKS_MAX))
        finally:
            stage.close()


def replay_finding(lab: Lab, finding: Finding, deadline_s: float = DEADLINE_S) -> Broken | None:
    """What breaks now."""
    make_topics(lab.address)
    if finding.sequence:
        violation = replay_sequence(finding.sequence, lab.address, finding.without)
        return violation.broken if violation is not None else None
    return Replay(lab, deadline_s).run(finding.cases(), finding.oracle)


@dataclass
class Replay:
    """Sends steps in order, on one connection for as long as that stays open."""

    lab: Lab
    deadline_s: float = DEADLINE_S
    parked_s: float = PARKED_S

    def run(self, cases: list[Case], oracle: Oracle | None = None) -> Broken | None:
        """The first oracle that breaks. `oracle` is the one expected: a leak is looked for only then."""
        self.lab.begin()
        broken = None
        for _ in range(LEAK_TURNS if oracle is Oracle.DESCRIPTORS else 1):
            broken = broken or self._steps(cases)
        if broken is not None and broken.oracle is oracle in OF_AN_ANSWER:
            return broken
        dead = self.lab.why_dead()
        if dead is not None:
            return Broken(Oracle.ALIVE, f"the target {dead}")
        if (stack := self.lab.broke_off()) is not None:
            return Broken(Oracle.STACK, f"a handler broke off at {stack}")
        if oracle is Oracle.DESCRIPTORS and (leaked := self.lab.leaked(0)) is not None:
            return Broken(Oracle.DESCRIPTORS, leaked)
        grown = self.lab.grown()
        if grown is not None and (broken is None or oracle is Oracle.MEMORY):
            return Broken(Oracle.MEMORY, grown)
        return broken

    def _steps(self, cases: list[Case]) -> Broken | None:
        line: Connection | None = None
        half_open: list[Connection] = []
        try:
            for case in cases:
                line = line or connect(self.lab.address, self.deadline_s)
                broken, stays = self._step(line, case)
                if broken is not None:
                    return broken
                if case.ends is Ends.LEAVE:
                    half_open.append(line)
                elif not stays:
                    line.close()
                if not stays:
                    line = None
        except OSError as error:
            return Broken(Oracle.ALIVE, f"the target refuses connections ({error.strerror or error})")
        finally:
            for each in (line, *half_open):
                if each is not None:
                    each.close()
        return None

    def _step(self, line: Connection, case: Case) -> tuple[Broken | None, bool]:
        """What it broke, and whether the connection can go on."""
        try:
            for number, segment in enumerate(case.segments()):
                if number:
                    time.sleep(SEGMENT_S)
                line.send_bytes(segment)
            if case.ends is Ends.FINISH:
                line.finish_sending()
            if case.ends in (Ends.LEAVE, Ends.RESET):
                return None, False
            for frame in case.frames:
                broken, stays = self._answer(line, frame)
                if broken is not None or not stays:
                    return broken, False
        except ConnectionClosedError:
            return None, False
        except FrameSizeError as error:
            return Broken(Oracle.DECODE, f"an answer that is none: {error}"), False
        except ReplyTimeoutError:
            return Broken(Oracle.DEADLINE, "does not read"), False
        return None, case.ends is Ends.OPEN

    def _answer(self, line: Connection, frame: bytes) -> tuple[Broken | None, bool]:
        allowed = patience(frame, self.deadline_s)
        wait_s = min(allowed.wait_s, self.parked_s) if allowed.silent_ok else allowed.wait_s
        try:
            return judge(frame, line.receive_frame(wait_s))[0], True
        except ReplyTimeoutError:
            if allowed.silent_ok:
                return None, not allowed.blocks
            return Broken(Oracle.DEADLINE, f"neither answered nor closed within {allowed.wait_s:g} s"), False

"""A finding with less in it that breaks the same."""

from pathlib import Path

import msgspec

from highwater.errors import UsageError
from highwater.fuzz.wire.connection import advertised
from highwater.fuzz.wire.findings import Finding, steps_of, write_finding
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.oracles import Broken, Oracle
from highwater.fuzz.wire.replay import make_topics
from highwater.fuzz.wire.sequences.run import perform, spoken
from highwater.fuzz.wire.shrink import shrink
from highwater.fuzz.wire.target import Lab
from highwater.fuzz.wire.triage import Inquest


def minimised(lab: Lab, finding: Finding, folder: Path, seconds: float) -> tuple[Path, str] | None:
    """The path of a smaller finding beside the old one, and how much smaller it is; None if it does not break."""
    if finding.oracle is Oracle.AGREEMENT:
        hint = "it is one sound request already"
        raise UsageError("a finding of two targets that disagree", where=finding.id, hint=hint)
    inquest = Inquest(lab, folder, finding.seed, finding.target, shrink_s=seconds)
    least = _fewer_steps(inquest, finding) if finding.sequence else _fewer_bytes(inquest, finding)
    if least is None:
        return None
    smaller, told = least
    return write_finding(folder, msgspec.structs.replace(smaller, id=f"{finding.id}.min")), told


def _fewer_steps(inquest: Inquest, finding: Finding) -> tuple[Finding, str] | None:
    """Of a conversation."""
    broken, address = Broken(finding.oracle, finding.message), inquest.lab.address
    steps = perform(finding.sequence, address, spoken(advertised(address))).steps
    violation = inquest.again(finding.sequence, broken, finding.without)
    if violation is None:
        return None
    without = sorted({*finding.without, *inquest.needless(finding.sequence, broken, steps)})
    violation = inquest.again(finding.sequence, broken, without) or violation
    told = f"{steps - len(finding.without)} to {steps - len(without)} steps"
    return msgspec.structs.replace(finding, without=without, said=violation.said), told


def _fewer_bytes(inquest: Inquest, finding: Finding) -> tuple[Finding, str] | None:
    cases = finding.cases()
    make_topics(inquest.lab.address)
    if not inquest.breaks(cases, finding.oracle):
        return None
    least = shrink(cases, inquest.like(cases, finding.oracle, inquest.last_log), inquest.shrink_s)
    told = f"{_bytes(cases)} to {_bytes(least)} bytes"
    return msgspec.structs.replace(finding, steps=steps_of(least)), told


def _bytes(cases: list[Case]) -> int:
    return sum(len(frame) for case in cases for frame in case.frames)

"""Minimise a finding: a smaller one that fails in the same way."""

from pathlib import Path

import msgspec

from highwater.errors import UsageError
from highwater.fuzz.wire.examination.shrink import shrink
from highwater.fuzz.wire.examination.triage import Triage
from highwater.fuzz.wire.findings import Finding, steps_of, write_finding
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.oracles.responses import Oracle
from highwater.fuzz.wire.replay import prepare
from highwater.fuzz.wire.target import FuzzTarget


def minimise_finding(
    fuzz_target: FuzzTarget, finding: Finding, folder: Path, seconds: float
) -> tuple[Path, str] | None:
    """Write a smaller finding beside the old one; return its path and the change, or None if it does not reproduce."""
    if finding.oracle is Oracle.AGREEMENT:
        hint = "its only step is one valid request, so nothing can be left out"
        raise UsageError("a finding of two targets that disagree", where=finding.id, hint=hint)
    triage = Triage(fuzz_target, folder, finding.seed, finding.target, shrink_s=seconds)
    smallest = _minimise_frames(triage, finding)
    if smallest is None:
        return None
    smaller, change = smallest
    smaller = msgspec.structs.replace(smaller, id=f"{finding.id}.min", reproduced=True, restarted=False, note="")
    return write_finding(folder, smaller), change


def _minimise_frames(triage: Triage, finding: Finding) -> tuple[Finding, str] | None:
    cases = finding.cases()
    prepare(triage.target.address)
    if not triage.breaks(cases, finding.oracle):
        return None
    if triage.is_gone:
        hint = "give a target that highwater launches, or a TOML file with the commands that start and stop it"
        raise UsageError("the target died of the finding and cannot be restarted", where=finding.id, hint=hint)
    smallest = shrink(cases, triage.same_failure(cases, finding.oracle, triage.last_log), triage.shrink_s)
    change = f"{_bytes(cases)} to {_bytes(smallest)} bytes"
    return msgspec.structs.replace(finding, steps=steps_of(smallest)), change


def _bytes(cases: list[Case]) -> int:
    return sum(len(frame) for case in cases for frame in case.frames)

"""Describe a finding in steps: the witness operations, the time between them, and the conclusion."""

from dataclasses import dataclass

from highwater.reports.page.conclusions import conclusions
from highwater.reports.page.interests import Interests
from highwater.reports.page.lanes import Window
from highwater.reports.verdicts import Evidence, Finding, Witness

FAULTS_NAMED = 4


@dataclass(frozen=True, slots=True)
class Step:
    """One witness. Times in seconds; `end_s` is None if it never returned, `start_s` if not in the history."""

    role: str
    words: str
    process: str
    start_s: float | None
    end_s: float | None
    error: str


@dataclass(frozen=True, slots=True)
class FindingNarrative:
    """A finding as the page describes it; the timeline refers to it by `number`."""

    number: int
    name: str
    severity: str
    place: str
    steps: tuple[Step, ...]
    between: str
    conclusion: str
    faults: str
    start_s: float
    end_s: float
    indices: tuple[int, ...]


def narrate(
    number: int, finding: Finding, evidence: Evidence, interests: Interests, windows: list[Window]
) -> FindingNarrative:
    steps = [_step(witness, interests) for witness in evidence.operations]
    steps.sort(key=lambda step: (step.start_s is None, step.start_s))
    times = [second for step in steps for second in (step.start_s, step.end_s) if second is not None] or [0.0]
    return FindingNarrative(
        number=number,
        name=finding.name,
        severity=finding.severity,
        place=conclusions().place(finding.rule, evidence.partition, evidence.offset),
        steps=tuple(steps),
        between=_between(steps) if len({witness.invoked for witness in evidence.operations}) > 1 else "",
        conclusion=conclusions().conclude(finding.rule, evidence.partition, evidence.offset),
        faults=_faults([window for window in windows if window.overlaps(min(times), max(times))]),
        start_s=min(times),
        end_s=max(times),
        indices=tuple(witness.invoked for witness in evidence.operations),
    )


def _step(witness: Witness, interests: Interests) -> Step:
    begun = interests.events.get(witness.invoked)
    ended = interests.events.get(witness.returned) if witness.returned is not None else None
    process, error = str(witness.process), ""
    if begun is not None:
        client = begun[0].client
        process = f"{begun[0].process} ({client})" if client else str(begun[0].process)
    if ended is not None and ended[0].error:
        error = ended[0].error
    return Step(witness.role, witness.words, process, begun and begun[1], ended and ended[1], error)


def _between(steps: list[Step]) -> str:
    """Describe how the two witnesses are ordered in time."""
    if len(steps) < 2 or steps[1].start_s is None or steps[0].start_s is None:
        return ""
    first_end, second_start = steps[0].end_s, steps[1].start_s
    if first_end is None:
        return "The first never returned, so it is unknown when it took effect."
    if first_end <= second_start:
        return f"The first was over {duration(second_start - first_end)} before the second began."
    return "The two overlapped in time."


def _faults(mine: list[Window]) -> str:
    words = [f"{window.words} ({window.start_s:.2f} to {window.end_s:.2f} s)" for window in mine[:FAULTS_NAMED]]
    more = len(mine) - len(words)
    return "; ".join([*words, *([f"{more} more"] if more else [])])


def duration(seconds: float) -> str:
    """Format a duration with a suitable unit."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"

"""The result of an audit, as `--json` prints it."""

from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from highwater.errors import Verdict
from highwater.reports.anomalies import Severity
from highwater.reports.importers.quarantine import Quarantine
from highwater.results import write_json
from highwater.spec.formats.history import Config

WITNESSES_SHOWN: Final = 8


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """One operation: event indices of its invocation and completion, and a description."""

    role: str
    invoked: int
    returned: int | None
    process: int
    words: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    partition: str
    offset: int
    operations: list[Witness]


class OffsetRange(msgspec.Struct, frozen=True, kw_only=True):
    """Findings at consecutive offsets of a partition, as one truncation causes them."""

    partition: str
    first: int
    last: int
    count: int

    @property
    def words(self) -> str:
        if self.count == 1:
            return f"{self.partition}, offset {self.first:,}"
        return f"{self.partition}, {self.count:,} records at offsets {self.first:,} to {self.last:,}"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of one rule with one severity: `count` of blamed operations, `rows` of pairs that show them."""

    rule: int
    name: str
    severity: Severity
    sentence: str
    expected: bool
    count: int
    rows: int
    witnesses: list[Evidence]
    ranges: list[OffsetRange] = []
    """All offsets of the findings, folded, if each is about a record."""


class RuleVerdict(StrEnum):
    """Verdict on one rule: `NOT_JUDGED` if the history lacks the data without which the rule finds nothing."""

    HELD = "held"
    VIOLATED = "violated"
    UNDECIDED = "undecided"
    NOT_JUDGED = "not judged"


class RuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of an audit: `why` says what would decide it, or which data are missing; `counts` are by severity."""

    rule: int
    name: str
    sentence: str
    verdict: RuleVerdict
    why: str
    counts: dict[Severity, int]


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict covers. Sends are counted by outcome; `lost` and `unread` are acknowledged ones.

    A send of unknown outcome that a reader proved is among `lost` and `unread` too.
    """

    acknowledged: int = 0
    lost: int = 0
    unread: int = 0
    refused: int = 0
    unknown: int = 0
    reads: int = 0
    records_read: int = 0
    partitions: int = 0
    ends_reached: int = 0
    """Partitions in which a read reached the end of what was acknowledged."""
    faults: int = 0
    faults_met: int = 0
    """Faults during which an operation was open."""
    trailer: bool = False
    """The last line of the history says that it is complete."""

    def lines(self) -> list[str]:
        """Return the coverage as sentences for the console and the page."""
        unread = f"{self.unread:,} never read" if self.unread else "none unread"
        lines = [
            f"Acknowledged sends: {self.acknowledged:,}, of which {self.lost:,} lost and {unread}. Refused: "
            f"{self.refused:,}. Unknown outcome: {self.unknown:,}.",
            f"Reads: {self.reads:,}, with {self.records_read:,} records. They reached the end of "
            f"{self.ends_reached:,} of {self.partitions:,} partitions.",
        ]
        if self.faults:
            lines.append(f"Faults: {self.faults:,}, of which {self.faults_met:,} met an open operation.")
        no_fault = "no fault that met an operation" if self.faults else "no fault"
        at_stake = {"no acknowledged send": self.acknowledged, no_fault: self.faults_met}
        if missing := [name for name, count in at_stake.items() if not count]:
            lines.append(f"Little was at stake: this history has {' and '.join(missing)}.")
        if not self.trailer:
            lines.append("The history has no trailer, so its end may be missing.")
        return lines


class AuditResult(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Verdict
    operations: int
    history: str
    format: str
    config: Config
    quarantine: Quarantine
    coverage: Coverage | None = None
    """None for the objects of a register, set or counter."""
    rules: list[RuleRow]
    findings: list[Finding]
    faults: list[str] = []
    """Kinds of the injected faults."""


class Violation(NamedTuple):
    """A violation in one line, and where it is."""

    text: str
    partition: str
    offset: int


def first_violation(result: AuditResult) -> Violation | None:
    """Return the first violation with both of its operations, for callers that show one line; None if it has none."""
    found = next((finding for finding in result.findings if finding.severity is Severity.VIOLATION), None)
    if result.verdict is not Verdict.INVALID or found is None:
        return None
    seen = found.witnesses[0]
    shown = "; ".join(f"{witness.role}: {witness.words}" for witness in seen.operations)
    return Violation(f"{found.name} in {seen.partition} at offset {seen.offset}: {shown}", seen.partition, seen.offset)


def write_verdict(folder: Path, result: AuditResult) -> Path:
    """Write `verdict.json` into the folder atomically, and return its path."""
    write_json(folder / "verdict.json", result)
    return folder / "verdict.json"

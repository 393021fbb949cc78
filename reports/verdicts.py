"""The result of an audit, as `--json` prints it."""

from pathlib import Path
from typing import Any, Final

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


class AuditResult(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Verdict
    operations: int
    history: str
    format: str
    config: Config
    quarantine: Quarantine
    rules: list[dict[str, Any]]
    findings: list[Finding]
    faults: list[str] = []
    """Kinds of the injected faults."""


def write_verdict(folder: Path, result: AuditResult) -> Path:
    """Write `verdict.json` into the folder atomically, and return its path."""
    write_json(folder / "verdict.json", result)
    return folder / "verdict.json"

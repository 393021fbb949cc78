"""Audit many histories: print one line for each, and return the worst verdict."""

from collections.abc import Callable
from typing import Any

import msgspec
import typer

from highwater.errors import UsageError, Verdict, worst
from highwater.reports.verdicts import AuditResult


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """The result for a history that cannot be read, when several are audited."""

    verdict: Verdict
    history: str
    error: str


def audit_runs(
    paths: list[str],
    audit_one: Callable[[str], AuditResult],
    note: Callable[[AuditResult | Unreadable], None],
    *,
    json: bool,
) -> Verdict:
    """Print a line per history once it is audited, or one JSON object with all results; return the worst verdict."""
    verdicts: list[Verdict] = []
    encoded: list[msgspec.Raw] = []
    if not json:
        typer.echo(f"{'verdict':8} {'operations':>11} {'unused':>7}  history: findings")
    for path in paths:
        try:
            result: AuditResult | Unreadable = audit_one(path)
        except UsageError as error:
            result = Unreadable(verdict=Verdict.UNKNOWN, history=path, error=str(error))
        note(result)
        verdicts.append(result.verdict)
        if json:
            encoded.append(msgspec.Raw(msgspec.json.encode(result)))
        else:
            typer.echo(_line(result))
    verdict = worst(verdicts)
    if json:
        results: dict[str, Any] = {"verdict": verdict, "histories": encoded}
        typer.echo(msgspec.json.encode(results).decode())
    else:
        counts = ", ".join(f"{verdicts.count(value):,} {value}" for value in Verdict if value in verdicts)
        typer.echo(f"\n{len(paths):,} histories: {counts}")
    return verdict


def _line(result: AuditResult | Unreadable) -> str:
    if isinstance(result, Unreadable):
        return f"{result.verdict:8} {'-':>11} {'all':>7}  {result.error}"
    findings = ", ".join(
        f"{finding.name} {finding.count} {finding.severity}"
        for finding in result.findings
        if finding.severity != "information"
    )
    return f"{result.verdict:8} {result.operations:>11,} {result.quarantine.count:>7,}  {result.history}" + (
        f": {findings}" if findings else ""
    )

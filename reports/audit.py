"""Histories to verdicts: ingest, the kernel on every partition, findings with two witnesses in words."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from highwater.errors import Verdict, worst
from highwater.reports.anomalies import Anomaly, Severity, anomalies
from highwater.reports.columns import NEVER, UNKNOWN, Ints, Kind, Operations, Status
from highwater.reports.dataset.schema import MANIFEST
from highwater.reports.execution.checkpoints import going_on
from highwater.reports.execution.engines import Pool
from highwater.reports.execution.partitions import Engine
from highwater.reports.execution.reading import read
from highwater.reports.execution.spark import Spark
from highwater.reports.importers.formats import open_history
from highwater.reports.ingest.history import Ingested
from highwater.reports.objects import audit_objects
from highwater.reports.rules.findings import NOBODY, Found, Promise
from highwater.reports.rules.run import check_run
from highwater.reports.rules.step_findings import Told
from highwater.reports.tables import Step
from highwater.reports.verdicts import WITNESSES_SHOWN, AuditResult, Evidence, Finding, Witness
from highwater.spec.formats.history import kinds_of_faults

PLACES_SHOWN: Final = 4
"""Where one read has a value, if it has it more than once."""
IN_MEMORY_BYTES: Final = 256 << 20
"""Of NDJSON: some million operations, which take as much again."""
PACKED: Final = 12  # how much smaller a compressed history is
KIND_WORDS = {
    Kind.SEND: "send", Kind.READ: "read", Kind.LIST_OFFSETS: "list offsets", Kind.DUMP: "dump of a replica",
    Kind.DELETE: "delete records", Kind.FORMER: "send to the deleted topic",
}  # fmt: skip
STATUS_WORDS = {Status.OK: "ok", Status.FAIL: "fail", Status.INFO: "unknown outcome"}


def audit(
    where: Path | str,
    *,
    overrides: dict[str, Any] | None = None,
    engine: Engine | None = None,
    format_: str | None = None,
    out: Path | None = None,
) -> AuditResult:
    """Audit one history, in the format that is named or that it shows; UsageError when nothing of it can be read.

    With `out` it is kept there as a dataset.
    """
    opened = None
    if not (Path(where) / MANIFEST).exists():
        opened = open_history(str(where), format_)
        if opened.config.workload != "log":
            return audit_objects(opened, str(where))
    with _place(where, out, isinstance(engine, Spark)) as folder:
        return audit_history(read(where, overrides, format_, folder, opened), str(where), engine)


@contextmanager
def _place(where: Path | str, out: Path | None, shared: bool) -> Iterator[Path | None]:
    """Where its dataset is to be: nowhere if memory will do, and for as long as it takes if nobody wants to keep it."""
    path = Path(where)
    large = path.is_file() and path.stat().st_size * (PACKED if path.suffix == ".gz" else 1) >= IN_MEMORY_BYTES
    if out is not None or not (large or shared):
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="highwater-audit-") as folder:
        yield Path(folder) / "dataset"


def audit_history(history: Ingested, name: str, engine: Engine | None = None) -> AuditResult:
    """Audit what was read already, here unless another engine is given."""
    with going_on(engine or Pool(), history) as over:
        found, told = check_run(over, history.tables, Promise.of(history.config))
    findings = []
    for rule, anomaly in anomalies().items():
        for severity in Severity:
            parts = [(key, f) for key, f in found if f.rule == rule and _severity(anomaly, f, history) is severity]
            steps = [t for t in told if t.rule == rule and _severity(anomaly, t, history) is severity]
            if parts or steps:
                findings.append(_finding(anomaly, severity, parts, steps, history))
    findings.sort(key=lambda finding: (list(Severity).index(finding.severity), finding.rule))
    rules = [_rule_row(anomaly, findings) for anomaly in anomalies().values()]
    return AuditResult(
        verdict=_verdict(rules, history),
        operations=history.operations,
        history=name,
        format=history.format,
        config=history.config,
        quarantine=history.quarantine,
        rules=rules,
        findings=findings,
        faults=kinds_of_faults(history.faults),
    )


def _verdict(rules: list[dict[str, Any]], history: Ingested) -> Verdict:
    """Nothing to check, or something that could not be read, is never valid."""
    verdicts = [Verdict(row["verdict"]) for row in rules]
    if not history.operations or history.quarantine.mattering:
        verdicts.append(Verdict.UNKNOWN)
    return worst(verdicts)


def _severity(anomaly: Anomaly, found: Found | Told, history: Ingested) -> Severity:
    severity = Severity.INFORMATION if found.information else anomaly.judge(history.config)
    if severity is Severity.VIOLATION and history.quarantine.leaves_open(anomaly.rule):
        return Severity.UNDECIDED
    return severity


VERDICT_OF_SEVERITY = {Severity.VIOLATION: Verdict.INVALID, Severity.UNDECIDED: Verdict.UNKNOWN}


def _rule_row(anomaly: Anomaly, findings: list[Finding]) -> dict[str, Any]:
    mine = [finding for finding in findings if finding.rule == anomaly.rule]
    verdict = worst([VERDICT_OF_SEVERITY.get(finding.severity, Verdict.VALID) for finding in mine])
    return {
        "rule": anomaly.rule,
        "name": anomaly.name,
        "sentence": anomaly.sentence,
        "verdict": verdict,
        "counts": {finding.severity: finding.count for finding in mine},
    }


def _finding(
    anomaly: Anomaly, severity: Severity, parts: list[tuple[str, Found]], told: list[Told], history: Ingested
) -> Finding:
    """Group by culprit: many pairs may share the one operation that is to blame."""
    evidence = [_evidence(anomaly, each) for each in told[:WITNESSES_SHOWN]]
    count = rows = len(told)
    for key, found in parts:
        rows += len(found.first)
        shown = _culprits(found)
        count += len(shown)
        for slot in shown[: max(0, WITNESSES_SHOWN - len(evidence))]:
            pair = (int(found.first[slot]), int(found.second[slot]))
            evidence.append(
                Evidence(
                    partition=key,
                    offset=int(found.offset[slot]),
                    operations=[
                        _witness(role, history.row(key, row), int(found.offset[slot]), history)
                        for role, row in zip(anomaly.witnesses, pair, strict=True)
                        if row != NOBODY
                    ],
                )
            )
    return Finding(
        rule=anomaly.rule,
        name=anomaly.name,
        severity=severity,
        sentence=anomaly.sentence,
        expected=severity is Severity.EXPECTED,
        count=count,
        rows=rows,
        witnesses=evidence,
    )


def _evidence(anomaly: Anomaly, told: Told) -> Evidence:
    roles = zip(anomaly.witnesses, (told.first, told.second), strict=True)
    return Evidence(
        partition=told.subject, offset=told.number, operations=[_step_witness(role, step) for role, step in roles]
    )


def _step_witness(role: str, step: Step) -> Witness:
    returned = step.returned if step.returned < NEVER else None
    return Witness(role=role, invoked=step.invoked, returned=returned, process=step.process, words=step.words)


REAL_TIME = {13, 14, 15, 16}


def _culprits(found: Found) -> Ints:
    """Slots of one finding for each culprit. In real time one wrong bound makes every later row a pair with it."""
    if found.rule not in REAL_TIME:
        return np.arange(len(found.first))
    fewer = min((found.first, found.second), key=lambda rows: len(np.unique(rows)))
    _, slots = np.unique(fewer, return_index=True)
    return np.sort(slots)


def _witness(role: str, ops: Operations, offset: int, history: Ingested) -> Witness:
    """`ops` is one operation."""
    returned = int(ops.returned[0])
    kind, status = Kind(int(ops.kind[0])), Status(int(ops.status[0]))
    words = [f"{KIND_WORDS[kind]}"]
    if kind in {Kind.SEND, Kind.FORMER}:
        words.append(f"of value {history.values.text(int(ops.value[0]))}")
        if ops.txn[0] != UNKNOWN:
            words.append(f"in transaction {history.tables.transactions.name(int(ops.txn[0]))}")
        if ops.offset[0] != UNKNOWN:
            words.append(f"acknowledged at offset {ops.offset[0]}")
    elif ops.record_count[0]:
        words.append(f"of offsets {ops.record_offset[0]} to {ops.record_offset[-1]}")
        words += _value_at(ops, offset, history)
    elif ops.position[0] != UNKNOWN:
        words.append(f"from {ops.position[0]}, which found nothing")
    if ops.high_watermark[0] != UNKNOWN:
        words.append(f"reported end {ops.high_watermark[0]}")
    if ops.leader_epoch[0] != UNKNOWN:
        words.append(f"leader epoch {ops.leader_epoch[0]}")
    if status is not Status.OK:
        words.append(STATUS_WORDS[status])
    return Witness(
        role=role,
        invoked=int(ops.invoked[0]),
        returned=returned if returned < NEVER else None,
        process=int(ops.process[0]),
        words=", ".join([" ".join(words[:2]), *words[2:]]),
    )


def _value_at(ops: Operations, offset: int, history: Ingested) -> list[str]:
    here = np.flatnonzero(ops.record_offset == offset)
    if not len(here):
        return []
    value = ops.record_value[here[0]]
    places = ops.record_offset[ops.record_value == value][:PLACES_SHOWN].tolist()
    where = f"offset {offset}" if len(places) == 1 else f"offsets {' and '.join(map(str, places))}"
    return [f"value {history.values.text(int(value))} at {where}"]

"""Describe findings for the result of an audit: witness operations in words, and the offsets that they concern."""

from typing import Final

import numpy as np

from highwater.reports.anomalies import Anomaly, Severity
from highwater.reports.columns import NEVER, UNKNOWN, Ints, Kind, Operations, Status, process_of
from highwater.reports.ingest.history import Ingested
from highwater.reports.rules.findings import NO_ROW, RuleFindings, distinct
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.step_findings import StepFinding
from highwater.reports.tables import Step
from highwater.reports.verdicts import WITNESSES_SHOWN, Evidence, Finding, OffsetRange, Witness

PLACES_SHOWN: Final = 4
"""Offsets listed in a witness if one read has a value several times."""
MARKER: Final = 2
"""Distance of two records with the marker of a transaction between them."""
KIND_WORDS = {
    Kind.SEND: "send", Kind.READ: "read", Kind.LIST_OFFSETS: "list offsets", Kind.DUMP: "dump of a replica",
    Kind.DELETE: "delete records", Kind.FORMER: "send to the deleted topic",
}  # fmt: skip
STATUS_WORDS = {Status.OK: "ok", Status.FAIL: "fail", Status.INFO: "unknown outcome"}
REAL_TIME: Final = {
    Rule.APPEND_INVERSION, Rule.STALE_READ, Rule.FUTURE_READ, Rule.HIGH_WATERMARK_REGRESSION, Rule.EPOCH_SAFETY,
}  # fmt: skip
AT_RECORDS: Final = {
    Rule.INCONSISTENT_OFFSETS, Rule.PHANTOM_READ, Rule.LOST_WRITE, Rule.UNSEEN, Rule.TRUNCATED_AFTER_READ,
    Rule.TORN_TRANSACTION, Rule.REPLICA_DIVERGENCE, Rule.REJECTED_RECORD_READ,
}  # fmt: skip
"""Rules with one finding for each record: one truncation causes findings at consecutive offsets."""


def describe(
    anomaly: Anomaly,
    severity: Severity,
    parts: list[tuple[str, RuleFindings]],
    step_findings: list[StepFinding],
    history: Ingested,
) -> Finding:
    """Build one finding of the result; `count` groups pairs that share the operation to blame."""
    evidence = [_evidence(anomaly, finding) for finding in step_findings[:WITNESSES_SHOWN]]
    count = rows = len(step_findings)
    ranges: list[OffsetRange] = []
    for key, findings in parts:
        rows += len(findings.first)
        shown = _culprits(findings)
        count += len(shown)
        if anomaly.rule in AT_RECORDS:
            ranges += _ranges(key, findings.offset)
            shown = _one_for_each_range(findings.offset)
        for slot in shown[: max(0, WITNESSES_SHOWN - len(evidence))]:
            pair = (int(findings.first[slot]), int(findings.second[slot]))
            evidence.append(
                Evidence(
                    partition=key,
                    offset=int(findings.offset[slot]),
                    operations=[
                        _witness(role, key, history.row(key, row), int(findings.offset[slot]), history)
                        for role, row in zip(anomaly.witnesses, pair, strict=True)
                        if row != NO_ROW
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
        ranges=ranges,
    )


def _ranges(key: str, offsets: Ints) -> list[OffsetRange]:
    """Fold offsets into ranges; the marker of a transaction does not end one."""
    known = distinct(offsets[offsets != UNKNOWN])
    parts = np.split(known, np.flatnonzero(np.diff(known) > MARKER) + 1) if len(known) else []
    return [OffsetRange(partition=key, first=int(part[0]), last=int(part[-1]), count=len(part)) for part in parts]


def _one_for_each_range(offsets: Ints) -> Ints:
    """Return the positions of all offsets, of which those that begin a range come first."""
    order = np.argsort(offsets, kind="stable")
    begins = np.append(True, np.diff(offsets[order]) > MARKER)[: len(order)]
    return np.concatenate([order[begins], order[~begins]])


def _evidence(anomaly: Anomaly, finding: StepFinding) -> Evidence:
    steps = [finding.first] if finding.second == finding.first else [finding.first, finding.second]
    roles = zip(anomaly.witnesses, steps, strict=False)
    return Evidence(
        partition=finding.subject,
        offset=finding.number,
        operations=[_step_witness(role, step) for role, step in roles],
    )


def _step_witness(role: str, step: Step) -> Witness:
    returned = step.returned if step.returned < NEVER else None
    return Witness(
        role=role, invoked=step.invoked, returned=returned, process=process_of(step.process), words=step.words
    )


def _culprits(findings: RuleFindings) -> Ints:
    """Return one position per blamed operation: in real-time rules one wrong bound pairs with every later row."""
    if findings.rule not in REAL_TIME:
        return np.arange(len(findings.first))
    fewer = min((findings.first, findings.second), key=lambda rows: len(np.unique(rows)))
    _, slots = np.unique(fewer, return_index=True)
    return np.sort(slots)


def _witness(role: str, key: str, ops: Operations, offset: int, history: Ingested) -> Witness:
    """Describe `ops`, which is one operation on the partition."""
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
    elif kind is Kind.SEND and status is Status.OK:
        words += _epoch_from_metadata(key, int(ops.invoked[0]), returned, history)
    if status is not Status.OK:
        words.append(STATUS_WORDS[status])
    return Witness(
        role=role,
        invoked=int(ops.invoked[0]),
        returned=returned if returned < NEVER else None,
        process=process_of(int(ops.process[0])),
        words=", ".join([" ".join(words[:2]), *words[2:]]),
    )


def _epoch_from_metadata(key: str, invoked: int, returned: int, history: Ingested) -> list[str]:
    """Return the leader epoch that acknowledged a record, as far as metadata before and after it shows."""
    steps = [step for step in history.tables.of("metadata") if step.subject == key and step.status is Status.OK]
    before = max((step.epoch for step in steps if step.returned < invoked), default=UNKNOWN)
    after = min((step.epoch for step in steps if step.invoked > returned), default=UNKNOWN)
    if before == UNKNOWN or after < before:
        return []
    return [f"leader epoch {before}" if before == after else f"leader epoch {before} to {after}"]


def _value_at(ops: Operations, offset: int, history: Ingested) -> list[str]:
    here = np.flatnonzero(ops.record_offset == offset)
    if not len(here):
        return []
    value = ops.record_value[here[0]]
    places = ops.record_offset[ops.record_value == value][:PLACES_SHOWN].tolist()
    where = f"offset {offset}" if len(places) == 1 else f"offsets {' and '.join(map(str, places))}"
    return [f"value {history.values.text(int(value))} at {where}"]

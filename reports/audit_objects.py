"""The audit of registers, sets and counters: one rule, and one finding for all objects that break it."""

from typing import Final

from reports.anomalies import Severity
from reports.columns import UNKNOWN
from reports.importers.formats import History
from reports.objects import NEVER, Judged, Op, judge
from reports.verdicts import WITNESSES_SHOWN, AuditResult, Evidence, Finding, Witness
from spec.formats.verdict import Verdict, worst

NAMES: Final = {"register": "not-linearizable", "set": "set-lost-or-invented", "counter": "counter-out-of-bounds"}


def audit_objects(history: History, where: str) -> AuditResult:
    """Every object is judged by itself; one of unknown outcome, or a line that was set aside, leaves all unknown."""
    workload = history.config.workload
    judged = judge(history.config, history.events)
    broken = {key: each for key, each in judged.items() if each.verdict is Verdict.INVALID}
    verdicts = [each.verdict for each in judged.values()]
    if not judged or history.quarantine.mattering:
        verdicts.append(Verdict.UNKNOWN)
    sentence = f"No {workload} gives all these answers."
    finding = Finding(
        rule=0,
        name=NAMES[workload],
        severity=Severity.VIOLATION,
        sentence=sentence,
        expected=False,
        count=len(broken),
        rows=len(broken),
        witnesses=[_evidence(key, broken[key]) for key in list(broken)[:WITNESSES_SHOWN]],
    )
    counts = {Severity.VIOLATION: len(broken)} if broken else {}
    row = {"rule": 0, "name": NAMES[workload], "sentence": sentence, "verdict": worst(verdicts), "counts": counts}
    return AuditResult(
        verdict=worst(verdicts),
        operations=sum(each.operations for each in judged.values()),
        history=where,
        format=history.format,
        config=history.config,
        quarantine=history.quarantine,
        rules=[row],
        findings=[finding] if broken else [],
    )


def _evidence(key: str, judged: Judged) -> Evidence:
    roles = (judged.what, "against this")
    return Evidence(
        partition="the one object" if key == str(None) else f"key {key}",
        offset=UNKNOWN,
        operations=[_witness(*each) for each in zip(roles, judged.ops, strict=False)],
    )


def _witness(role: str, op: Op) -> Witness:
    returned = op.returned if op.returned < NEVER else None
    process = op.process if isinstance(op.process, int) else UNKNOWN
    return Witness(role=role, invoked=op.invoked, returned=returned, process=process, words=f"{op.f} {op.value!r}")

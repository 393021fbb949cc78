"""Judge what the clients of a simulated run saw by the rules of the auditor."""

from highwater.errors import Verdict
from highwater.fuzz.simulator.invariants.violations import About
from highwater.fuzz.simulator.search import Audited
from highwater.reports.anomalies import Severity
from highwater.reports.audit import audit_events
from highwater.spec.formats.history import Config, Event


def audit_run(config: Config, events: list[Event]) -> Audited:
    """Return how many operations the audit read, and its first violation with both witnesses, if there is one."""
    result = audit_events(config, events, "a simulated run")
    if result.verdict is not Verdict.INVALID:
        return Audited(result.operations)
    found = next(finding for finding in result.findings if finding.severity is Severity.VIOLATION)
    witnesses = found.witnesses[0]
    shown = "; ".join(f"{witness.role}: {witness.words}" for witness in witnesses.operations)
    message = f"{found.name} in {witnesses.partition} at offset {witnesses.offset}: {shown}"
    return Audited(result.operations, message, About(witnesses.partition, witnesses.offset))

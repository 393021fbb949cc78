"""Judge what the clients of a simulated run saw by the rules of the auditor."""

from highwater.fuzz.simulator.invariants.violations import About
from highwater.fuzz.simulator.search import Audited
from highwater.reports.audit import audit_events
from highwater.reports.verdicts import first_violation
from highwater.spec.formats.history import Config, Event


def audit_run(config: Config, events: list[Event]) -> Audited:
    """Return how many operations the audit read, and its first violation with both witnesses, if there is one."""
    result = audit_events(config, events, "a simulated run")
    found = first_violation(result)
    if found is None:
        return Audited(result.operations)
    return Audited(result.operations, found.text, About(found.partition, found.offset))

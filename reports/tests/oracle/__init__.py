"""A second implementation of the rules of one partition, written from the definitions only.

`find_culprits` returns for each rule and weight what is wrong, as `docs/audit/rules.md` and the sentences of
`spec/anomalies.toml` define it. It does not share code or ideas with `reports/rules`: plain loops over the operations.

`history.py` has the operations as objects, `log_start.py` what explains an absent record; `values.py`, `reads.py`,
`order.py`, `transactions.py` and `entries.py` have a function for each rule. `witnesses.py` decides whether the
operations that a finding names show it. Random histories are from `histories.py`, with `simulation.py`, and from
`mixtures.py`, with `scripts.py`; `situations.py` has what they must contain often.
"""

from highwater.reports.columns import Operations
from highwater.reports.rules.findings import Promise
from highwater.reports.tests.oracle import entries, order, reads, transactions, values
from highwater.reports.tests.oracle.findings import Culprits, Findings
from highwater.reports.tests.oracle.history import History

RULES = (*values.RULES, *reads.RULES, *order.RULES, *transactions.RULES, *entries.RULES)


def find_culprits(ops: Operations, promise: Promise) -> Culprits:
    """Return the culprits of each rule and weight that has any."""
    history, found = History(ops, promise), Findings()
    for rule in RULES:
        rule(history, found)
    return found.culprits()

"""Findings of a partition as an Arrow table with the columns of `FINDINGS`, and back."""

from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from highwater.reports.dataset.schema import FINDINGS
from highwater.reports.rules.findings import RuleFindings, Weight
from highwater.reports.rules.rule import Rule

COLUMNS: Final = ("first", "second", "offset")


def findings_table(findings: list[RuleFindings]) -> Any:
    """Return findings as a table; empty `RuleFindings` have no rows in it."""
    sizes = [len(finding.first) for finding in findings]
    columns = {
        "place": np.repeat(np.arange(len(findings)), sizes),
        "rule": np.repeat([finding.rule for finding in findings], sizes),
        "weight": np.repeat([finding.weight for finding in findings], sizes),
    } | {name: np.concatenate([*(getattr(finding, name) for finding in findings), []]) for name in COLUMNS}
    return pa.table(
        {name: pa.array(columns[name], FINDINGS.field(name).type) for name in FINDINGS.names}, schema=FINDINGS
    )


def findings_of(table: Any) -> list[RuleFindings]:
    """Return the findings in a table whose rows of one `place` are adjacent."""
    place, rule, weight, first, second, offset = (
        table[name].to_numpy() for name in ("place", "rule", "weight", *COLUMNS)
    )
    starts = np.append(np.flatnonzero(np.diff(place, prepend=-1)), len(place)).tolist()
    return [
        RuleFindings(Rule(rule[start]), first[start:end], second[start:end], offset[start:end], Weight(weight[start]))
        for start, end in pairwise(starts)
    ]

"""All cases of the suite, collected once in each process: a dry run takes three seconds of processor time."""

from functools import cache
from typing import Any, Final

import pytest

from highwater.conformance.runner import Options, run_suite
from highwater.conformance.running.choice import Choice
from highwater.spec.clauses import find_clause

TOGETHER: Final = pytest.mark.xdist_group("listed_cases")
"""For tests that use `every_case`: one process runs all of them."""


def dry_run(**options: Any) -> dict[str, Any]:
    """Return the report of the target, with the cases that these options of a run select."""
    (target,) = run_suite(["reference"], Options(dry_run=True, **options))["targets"]
    return dict(target)


def cases_of(target: dict[str, Any]) -> frozenset[str]:
    return frozenset(case["case"] for case in target["cases"])


@cache
def every_case() -> dict[str, str]:
    """Return the clause of every case, long ones included."""
    return {case["case"]: case["clause"] for case in dry_run(long=True)["cases"]}


def chosen(**choice: Any) -> frozenset[str]:
    """Return the cases within the limits of a `Choice`, long ones included."""
    limits = Choice(**choice)
    return frozenset(case for case, clause in every_case().items() if limits.has_case(case, find_clause(clause)))

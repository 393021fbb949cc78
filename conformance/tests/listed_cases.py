"""All cases of the suite, collected once in each process, which takes three seconds; and runs of other cases."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from highwater.conformance.runner import SUITE_INI, Options, environment, run_suite
from highwater.conformance.running.choice import Choice
from highwater.processes import python_command
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


def run_case(folder: Path, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run a case that is written to a folder, as the suite runs its own."""
    path = folder / "test_case.py"
    path.write_text(text)
    command = python_command(
        "-m", "pytest", "-c", str(SUITE_INI), f"--rootdir={folder}", str(path), "-p", "highwater.conformance.plugin",
        "-p", "pytest_timeout", *options,
    )  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)

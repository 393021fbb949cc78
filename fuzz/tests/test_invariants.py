"""The table of invariants: every one is looked at, and its operator stands in the modules that it names."""

import re
from pathlib import Path

import pytest

from highwater.fuzz.simulator.invariants.violations import OPERATORS, Violation

FUZZ = Path(__file__).parents[1]
SIMULATOR = FUZZ / "simulator"
SPEC = FUZZ.parent / "spec"
FOLDERS = {
    "IsrCommit": "isr_commit",
    "HwTruncation": "hw_truncation",
    "ControllerFailover": "controller_failover",
    "EagerRebalance": "eager_rebalance",
    "CooperativeRebalance": "cooperative_rebalance",
}


def test_every_invariant_of_the_table_is_looked_at_and_no_other() -> None:
    sources = [*SIMULATOR.glob("invariants/*.py"), SIMULATOR / "progress.py", SIMULATOR / "search.py"]
    code = "".join(path.read_text() for path in sources if path.name != "violations.py")
    raised = set(re.findall(r'(?:violated\(\s*|Violation\(|_match\(last, |if |else )"([A-Z]\w+)"', code))
    assert raised == OPERATORS.keys()


@pytest.mark.parametrize("name", [name for name, where in OPERATORS.items() if not where.startswith("no module")])
def test_the_operator_is_in_each_module(name: str) -> None:
    for module in re.split(r"[,;] ", OPERATORS[name].split(":")[0].partition("; ")[0]):
        if module in FOLDERS:
            folder = SPEC / FOLDERS[module]
            texts = "".join(path.read_text() for path in folder.glob("*.tla"))
            assert re.search(rf"^{name}\b.*==", texts, re.MULTILINE), f"{name} is not in {folder.name}"


def test_a_violation_tells_where_and_by_which_operator() -> None:
    violation = Violation("HwNeverFalls", 12, 7, "broker:2", "from 5 to 4")
    assert str(violation) == "HwNeverFalls at 12 ms, event 7, broker:2: from 5 to 4"
    assert violation.operator == "HwNeverFalls (IsrCommit)"

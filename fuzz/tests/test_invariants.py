"""The table of invariants: the simulator checks each of them, and each operator is in the TLA+ modules it names."""

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


def test_the_simulator_checks_exactly_the_invariants_of_the_table() -> None:
    sources = [path for path in SIMULATOR.rglob("*.py") if path.name not in {"violations.py", "findings.py"}]
    code = "".join(path.read_text() for path in sources)
    raised = set(re.findall(r'(?:violated\(\s*|Violation\()"([A-Z]\w+)"', code))
    assert raised <= OPERATORS.keys(), "raised, but not in the table"
    named = set(re.findall(r'"([A-Z]\w+)"', code))
    assert OPERATORS.keys() <= named, "in the table, but no module can raise it"


@pytest.mark.parametrize("name", [name for name, where in OPERATORS.items() if not where.startswith("no module")])
def test_each_named_module_defines_the_operator(name: str) -> None:
    for module in re.split(r"[,;] ", OPERATORS[name].split(":")[0].partition("; ")[0]):
        if module in FOLDERS:
            folder = SPEC / FOLDERS[module]
            texts = "".join(path.read_text() for path in folder.glob("*.tla"))
            assert re.search(rf"^{name}\b.*==", texts, re.MULTILINE), f"{name} is not in {folder.name}"


def test_a_violation_states_time_event_node_and_operator() -> None:
    violation = Violation("HwNeverFalls", 12, 7, "broker:2", "from 5 to 4")
    assert str(violation) == "HwNeverFalls at 12 ms, event 7, broker:2: from 5 to 4"
    assert violation.operator == "HwNeverFalls (IsrCommit)"

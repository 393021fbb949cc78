"""The markers of cases, as a plugin: a pytest that imports cases from elsewhere needs them."""

from typing import Final

import pytest

MARKERS: Final = (
    "clause(id, variant): the clause that a case checks",
    "defect(planted, ...): broker defects that the case detects",
    "era(since, until): the Kafka versions to which a case applies",
    "cluster_fault: the case stops or pauses nodes",
    "settings(**names): broker settings that a repeatable target has in this case",
    "slow: the case waits longer than a second",
    "long: the case sends tens of thousands of requests",
)


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)

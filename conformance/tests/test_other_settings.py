"""A correct broker with other settings fails no case: a case reads what it needs from the broker or its file."""

import pytest

from highwater.conformance.runner import Options, run_suite
from highwater.conformance.running.verdicts import BROKEN, UNDECIDED
from highwater.conformance.targets.reference import ReferenceCluster

SETTINGS = {
    "fewer liberties": {
        "group_min_session_timeout_ms": 1_500,
        "auto_create_topics_enable": False,
        "offset_metadata_max_bytes": 100,
    },
    "small limits": {
        "group_max_session_timeout_ms": 20_000,
        "transaction_max_timeout_ms": 30_000,
        "group_max_size": 20,
    },
}
CASES = ("GRP-14", "GRP-1*", "MD-3", "MD-13", "ADM-23*", "ADM-31*", "PRD-35*", "IDM-10*", "FET-19", "OFF-*", "TXN-1*")


@pytest.mark.soak
@pytest.mark.parametrize("name", SETTINGS)
def test_a_correct_broker_with_other_settings_fails_no_case(name: str) -> None:
    with ReferenceCluster(1, settings=dict(SETTINGS[name])) as cluster:
        (target,) = run_suite([cluster.bootstrap.partition(",")[0]], Options(clauses=CASES))["targets"]
    broken = [case for case in target["cases"] if case["verdict"] in BROKEN | UNDECIDED]
    assert [(case["case"], case["message"]) for case in broken] == []
    assert target["verdicts"]["pass"] > 60

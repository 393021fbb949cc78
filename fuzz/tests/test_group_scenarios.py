"""Group scenarios print their golden output; only those without a rule end with two owners of one partition."""

from pathlib import Path

import pytest

from highwater.fuzz.scenarios.group_runner import files, run_file

NONE = "> quarrels\n  none\n"


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_a_scenario_prints_its_golden_output(path: Path) -> None:
    got, golden = run_file(path)
    assert golden, f"{path.name} has no golden part; write it with: python -m highwater.fuzz.scenarios --rewrite"
    assert got == golden
    assert "did not happen" not in got
    assert "not settled" not in got


@pytest.mark.parametrize("issue", ["kafka_8500", "kafka_12984", "kafka_14639"])
def test_only_without_the_rule_two_members_own_one_partition(issue: str) -> None:
    outcomes = {path.stem: run_file(path)[0] for path in files() if path.stem.startswith(issue)}
    assert outcomes[issue].endswith(NONE)
    assert not outcomes[f"{issue}_without"].endswith(NONE)


def test_mixed_protocols_lead_to_two_owners_and_the_two_bounce_upgrade_does_not() -> None:
    outcomes = {path.stem: run_file(path)[0] for path in files() if path.stem.startswith("two_bounce")}
    assert outcomes["two_bounce_upgrade"].endswith(NONE)
    assert not outcomes["two_bounce_eager_members_revoke_all"].endswith(NONE)
    assert "A Unjoined" in outcomes["two_bounce_skipped"]
    assert "A Stable in 4: nothing" in outcomes["two_bounce_skipped_one_protocol_for_all"]

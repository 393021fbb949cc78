"""The stories of groups print what they should, and those without a rule end in a quarrel that the rule prevents."""

from pathlib import Path

import pytest

from highwater.fuzz.scenarios.group_runner import files, run_file

NONE = "> quarrels\n  none\n"


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_a_scenario_prints_what_it_should(path: Path) -> None:
    got, golden = run_file(path)
    assert golden, f"{path.name} has no golden part; write it with: python -m highwater.fuzz.scenarios --rewrite"
    assert got == golden
    assert "did not happen" not in got
    assert "not settled" not in got


@pytest.mark.parametrize("story", ["kafka_8500", "kafka_12984", "kafka_14639"])
def test_only_without_the_rule_two_members_have_one_partition(story: str) -> None:
    outcomes = {path.stem: run_file(path)[0] for path in files() if path.stem.startswith(story)}
    assert outcomes[story].endswith(NONE)
    assert not outcomes[f"{story}_without"].endswith(NONE)


def test_mixing_is_dangerous_and_the_two_bounces_are_not() -> None:
    outcomes = {path.stem: run_file(path)[0] for path in files() if path.stem.startswith("two_bounce")}
    assert outcomes["two_bounce_upgrade"].endswith(NONE)
    assert not outcomes["two_bounce_eager_members_revoke_all"].endswith(NONE)
    assert "A Unjoined" in outcomes["two_bounce_skipped"]
    assert "A Stable in 3: nothing" in outcomes["two_bounce_skipped_one_protocol_for_all"]

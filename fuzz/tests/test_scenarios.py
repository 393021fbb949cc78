from pathlib import Path

import pytest

from highwater.fuzz.scenarios.runner import files, run_file
from highwater.spec.guards import load_guards


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_a_scenario_prints_what_it_should(path: Path) -> None:
    got, golden = run_file(path)
    assert golden, f"{path.name} has no golden part; write it with: python -m highwater.fuzz.scenarios --rewrite"
    assert got == golden


def test_the_high_watermark_rule_loses_what_the_epoch_rule_keeps() -> None:
    outcomes = {path.stem: run_file(path)[0].splitlines()[-1] for path in files() if "first_story" in path.stem}
    assert outcomes["kip101_first_story_high_watermark"].endswith("[m1]")
    assert outcomes["kip101_first_story_kip320"].endswith("[m1 m2]")


def test_whoever_is_said_to_tell_of_a_guard_names_it() -> None:
    """`tested by FILE` in spec/guards.toml: the file is there, and is about that guard."""
    told = {
        guard.id: guard.witnesses.simulator.partition("tested by ")[2]
        for guard in load_guards().values()
        if "tested by " in guard.witnesses.simulator
    }
    assert "AwaitTargetInSync" in told
    for guard, file in told.items():
        assert guard in Path(file).read_text(), f"{file} does not name {guard}"

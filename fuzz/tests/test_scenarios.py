"""Scenarios print their golden output."""

from pathlib import Path

import pytest

from highwater.fuzz.scenarios.runner import files, run_file
from highwater.spec.guards import load_guards


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_a_scenario_prints_its_golden_output(path: Path) -> None:
    got, golden = run_file(path)
    assert golden, f"{path.name} has no golden part; write it with: python -m highwater.fuzz.scenarios --rewrite"
    assert got == golden


def test_high_watermark_truncation_loses_a_record_that_epoch_truncation_keeps() -> None:
    outcomes = {path.stem: run_file(path)[0].splitlines()[-1] for path in files() if "first_story" in path.stem}
    assert outcomes["kip101_first_story_high_watermark"].endswith("[m1]")
    assert outcomes["kip101_first_story_kip320"].endswith("[m1 m2]")


def test_the_file_that_tests_a_guard_names_the_guard() -> None:
    """For every `tested by FILE` in spec/guards.toml the file exists and contains the id of the guard."""
    tested_by = {
        guard.id: guard.witnesses.simulator.partition("tested by ")[2]
        for guard in load_guards().values()
        if "tested by " in guard.witnesses.simulator
    }
    assert "AwaitTargetInSync" in tested_by
    for guard, file in tested_by.items():
        assert guard in Path(file).read_text(), f"{file} does not name {guard}"

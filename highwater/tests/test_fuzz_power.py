"""The wrong brokers that an author wrote who had not read the fuzzer."""

from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.soak.compiled.build import copy_sources
from highwater.soak.fuzz_power.__main__ import CONTROL, TABLE, Reported, defects, plant, runs

SECONDS = 20


@pytest.mark.parametrize("table", sorted(TABLE.parent.glob("*.toml")), ids=lambda table: table.stem)
def test_each_defect_changes_one_text_of_the_reference(table: Path) -> None:
    for defect in defects(table):
        text = (Path(__file__).parents[2] / defect.file).read_text()
        assert text.count(defect.old) == 1, defect.name
        assert text.replace(defect.old, defect.new) != text, defect.name
    assert len({defect.name for defect in defects(table)}) == len(defects(table))


def test_a_defect_is_planted_in_the_copy_only(tmp_path: Path) -> None:
    copy_sources(tmp_path)
    defect = defects()[0]
    plant(tmp_path, defect)
    assert defect.new in (tmp_path / "highwater" / defect.file).read_text()
    with pytest.raises(UsageError, match="occurs 0 times"):
        plant(tmp_path, defect)


def test_what_the_control_shows_counts_for_no_defect() -> None:
    control = Reported(["refuse-DescribeAcls-v1-1: accepted"], [])
    run = Reported(["refuse-DescribeAcls-v3-2: accepted", "alive-Fetch-v4-1: silent"], ["not examined: stall"])
    assert run.besides(control) == ["alive-Fetch-v4-1: silent"]


def test_an_unknown_defect_is_an_error() -> None:
    with pytest.raises(UsageError, match="no such defects: dance"):
        next(runs(TABLE, ["dance"], 5, 1))


@pytest.mark.long
def test_a_wrong_broker_is_found_and_the_correct_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (control, clean), (name, reported) = runs(TABLE, ["one-result-for-all-acls"], SECONDS, 1)
    assert (control, clean.findings) == (CONTROL, [])
    assert reported.besides(clean), name

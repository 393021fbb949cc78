"""Expectations name existing clauses and cases, and fail a run when they no longer hold."""

from pathlib import Path

import pytest

from highwater.conformance.patterns import covers
from highwater.conformance.running.verdicts import (
    BROKEN,
    EXPECTATIONS,
    CaseVerdict,
    Expectation,
    expectations_text,
    expected_by,
    known_expectations,
    read_expectations,
    unexpected,
)
from highwater.conformance.tests.listed_cases import TOGETHER, every_case
from highwater.conformance.tests.sample_reports import failed, passed, result
from highwater.errors import UsageError
from highwater.spec.clauses import load_clauses

FILES = sorted(EXPECTATIONS.glob("*.toml"))


def listed(folder: Path, name: str, *entries: str) -> Path:
    """Return a folder with an expectation file; each argument is a clause with further lines."""
    lines = [f'[[expectation]]\nverdict = "fail"\nreason = "known"\n{entry}\n' for entry in entries]
    (folder / f"{name}.toml").write_text("\n".join(lines))
    return folder


@TOGETHER
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_committed_expectation_names_a_known_clause_or_case(path: Path) -> None:
    expectations = read_expectations(path)
    assert expectations
    names = [expectation.clause for expectation in expectations]
    assert len(names) == len(set(names))
    assert set(names) <= every_case().keys() | load_clauses().keys()
    for expectation in expectations:
        assert expectation.verdict in BROKEN | {CaseVerdict.FLAKY}
        assert expectation.reason
        assert expectation.link.startswith("https://")


@pytest.mark.parametrize("name", ["PRD-999", "PRD-999[Produce v3]", "produce", "NONE-*"])
def test_an_unknown_clause_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no clause") as refused:
        known_expectations("kfake:3", listed(tmp_path, "kfake", f'clause = "{name}"'))
    assert name.partition("[")[0] in str(refused.value)


@pytest.mark.parametrize(
    ("target", "counts"),
    [("apache-kafka", True), ("apache-kafka:3", True), ("apache-kafka:4.0.0:3", True), ("apache-kafka:3.9.1", False)],
)
def test_an_expectation_may_begin_with_a_release(tmp_path: Path, target: str, counts: bool) -> None:
    folder = listed(tmp_path, "apache-kafka", 'clause = "GRP-53"\nsince = "4.0.0"')
    assert bool(known_expectations(target, folder)) == counts


def test_an_expectation_for_one_case_does_not_apply_to_others(tmp_path: Path) -> None:
    known = known_expectations("kfake", listed(tmp_path, "kfake", 'clause = "PRD-4[Produce v3]"'))
    assert unexpected([failed("PRD-4[Produce v3]")], known) == []
    (line,) = unexpected([failed("PRD-4[Produce v3]"), failed("PRD-4[Produce v4]")], known)
    assert line.startswith("PRD-4[Produce v4]: fail")


def test_an_expectation_that_no_longer_holds_is_reported(tmp_path: Path) -> None:
    known = known_expectations("kfake", listed(tmp_path, "kfake", 'clause = "PRD-7"'))
    assert unexpected([], known) == []
    assert unexpected([failed("PRD-7")], known) == []
    (line,) = unexpected([passed("PRD-7")], known)
    assert line == "PRD-7: passes, but fail was expected: known"


def test_a_flaky_expectation_accepts_every_verdict() -> None:
    known = [Expectation(clause="LST-15", verdict=CaseVerdict.FLAKY, reason="known")]
    for case_result in (failed("LST-15"), passed("LST-15"), result("LST-15", CaseVerdict.FLAKY)):
        assert unexpected([case_result], known) == []
    assert expected_by(result("LST-15", CaseVerdict.FLAKY), known) == known[0]
    assert expected_by(result("LST-15", CaseVerdict.ERROR), known) is None
    assert unexpected([failed("LST-14[-1]")], known)


def test_a_pattern_covers_cases_and_brackets_stand_for_themselves() -> None:
    assert covers("PRD-4*", "PRD-4[Produce v3]", "PRD-4")
    assert covers("PRD-4[Produce v?]", "PRD-4[Produce v3]", "PRD-4")
    assert covers("TXN-*", "TXN-12", "TXN-12")
    assert not covers("PRD-4[Produce v3]", "PRD-4", "PRD-4")
    assert not covers("PRD-?", "PRD-42", "PRD-42")


def test_a_written_file_excuses_the_deviations_of_its_run_and_no_others(tmp_path: Path) -> None:
    run = [failed("PRD-4[Produce v3]"), passed("PRD-7"), result("MD-2", CaseVerdict.NON_STRICT)]
    path = tmp_path / "known.toml"
    kept = [Expectation(clause="SEC-*", verdict=CaseVerdict.FAIL, reason='no "SASL"')]
    path.write_text(expectations_text(run, kept, kept))
    read = read_expectations(path)
    assert [expectation.clause for expectation in read] == ["SEC-*", "PRD-4[Produce v3]", "MD-2"]
    assert read[0].reason == 'no "SASL"'
    assert unexpected(run, read, strict=True) == []
    assert unexpected([failed("PRD-7")], read)
    assert unexpected([passed("PRD-4[Produce v3]")], read), "an entry that no longer holds is reported"


@pytest.mark.parametrize("content", ["expectation = 1", "[[expectation]]\nclause = 'PRD-7'", "=", "\xff"])
def test_a_file_that_is_no_list_of_expectations_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "known.toml"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError, match="not a list of expectations") as refused:
        read_expectations(path)
    assert str(path) in str(refused.value)

"""Synthetic histories have exactly the planted anomalies."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from highwater.command_line import application
from highwater.errors import UsageError
from highwater.reports.anomalies import anomalies
from highwater.reports.audit import audit
from highwater.reports.synth.plants import PLANTS, SETTINGS
from highwater.reports.synth.tiles import synth_tiles
from highwater.reports.synth.write import synth, synth_dataset
from highwater.reports.verdicts import AuditResult

OPERATIONS = 400
STALE_TOO = {39, 40}
"""Rules whose violation contradicts an earlier proof of the end, so that the reply is a stale read (14) too."""


def audited(folder: Path, planted: dict[int, int], *, operations: int = OPERATIONS, seed: int = 1) -> AuditResult:
    path = folder / "history.ndjson"
    synth(path, operations=operations, seed=seed, planted=planted)
    return audit(path)


def found(result: AuditResult) -> dict[int, int]:
    """Return the number of findings by rule, without stale reads of a new leader."""
    return {f.rule: f.count for f in result.findings if (f.rule, f.severity) != (14, "information")}


def test_there_is_a_plant_for_every_rule() -> None:
    assert sorted(PLANTS) == sorted(anomalies()) == list(range(1, 43))


@pytest.mark.parametrize("rule", PLANTS)
def test_exactly_the_planted_anomalies_are_found(tmp_path: Path, rule: int) -> None:
    result = audited(tmp_path, {rule: 2}, seed=rule)
    assert found(result) == {rule: 2}
    finding, *others = result.findings
    assert bool(others) == (rule in STALE_TOO)
    assert finding.severity == anomalies()[rule].severity
    assert finding.name == anomalies()[rule].name


@pytest.mark.parametrize("rule", PLANTS)
def test_each_finding_has_the_witnesses_of_its_rule(tmp_path: Path, rule: int) -> None:
    finding = audited(tmp_path, {rule: 1}, seed=rule).findings[0]
    roles = [role for role in anomalies()[rule].witnesses if role]
    for evidence in finding.witnesses:
        assert [witness.role for witness in evidence.operations] == roles
        assert all(witness.words for witness in evidence.operations)


@pytest.mark.parametrize("seed", range(4))
def test_a_healthy_history_has_no_findings(tmp_path: Path, seed: int) -> None:
    result = audited(tmp_path, {}, operations=6_000, seed=seed)
    assert result.verdict == "valid"
    assert found(result) == {}
    assert result.operations >= 6_000


def test_all_anomalies_in_one_history_are_found(tmp_path: Path) -> None:
    rules = {rule: 1 for rule in PLANTS if rule not in SETTINGS}
    assert found(audited(tmp_path, rules, operations=3_000)) == rules


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        synth(tmp_path / name, operations=500, seed=7, planted={4: 1})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_dataset_has_the_same_findings_as_the_file(tmp_path: Path) -> None:
    planted = dict.fromkeys((4, 17, 20, 22, 25, 27, 29, 38), 1)
    synth(tmp_path / "history.ndjson", operations=800, seed=5, planted=planted)
    synth_dataset(tmp_path / "buckets", operations=800, seed=5, planted=planted)
    from_file, from_buckets = audit(tmp_path / "history.ndjson"), audit(tmp_path / "buckets")
    assert found(from_buckets) == planted
    assert from_buckets.findings == from_file.findings
    assert from_buckets.operations == from_file.operations


def test_the_command_plants_by_name_and_number(tmp_path: Path) -> None:
    path = tmp_path / "history.ndjson"
    printed = CliRunner().invoke(
        application("synth"), ["synth", "--ops", "300", "--plant", "lost-write:2", "--plant", "27", "--out", str(path)]
    )
    assert printed.exit_code == 0
    assert found(audit(path)) == {4: 2, 27: 1}


def test_an_unknown_rule_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no rule 43"):
        synth(tmp_path / "history.ndjson", operations=10, seed=1, planted={43: 1})


def test_tiles_are_healthy_side_by_side_and_one_after_the_other(tmp_path: Path) -> None:
    count = synth_tiles(tmp_path / "tiles", operations=40_000, tile=1_000)
    result = audit(tmp_path / "tiles")
    assert result.operations == count
    assert 30_000 < count < 50_000
    assert found(result) == {}

"""Verdicts by configuration, errors with their line, exit codes, and the same findings on Spark."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from highwater.errors import UsageError, Verdict
from highwater.reports.anomalies import anomalies
from highwater.reports.audit import audit
from highwater.reports.tests.histories import PROMISED, History
from highwater.reports.tests.test_kernel import PLANTED, healthy, lost
from highwater.reports.verdicts import write_verdict
from highwater.spec.formats.history import Config


def broken(config: Config = PROMISED) -> History:
    history = healthy()
    history.events[0] = History(config).events[0]
    lost(history)
    history.kill()
    return history


def test_a_lost_write_is_invalid_with_two_witnesses(tmp_path: Path) -> None:
    result = audit(broken().write(tmp_path / "history.ndjson"))
    assert result.verdict is Verdict.INVALID
    (finding,) = [finding for finding in result.findings if finding.rule == 4]
    assert (finding.name, finding.count, finding.severity) == ("lost-write", 1, "violation")
    acknowledged, passed = finding.witnesses[0].operations
    assert "value 4, acknowledged at offset 3" in acknowledged.words
    assert "offsets 4 to 4" in passed.words


@pytest.mark.parametrize(
    ("config", "verdict", "severity"),
    [
        (Config(acks="1", unclean_election=False), Verdict.VALID, "expected"),
        (Config(acks="all", unclean_election=True), Verdict.VALID, "expected"),
        (Config(), Verdict.UNKNOWN, "undecided"),
    ],
)
def test_the_configuration_decides_what_a_lost_write_means(
    tmp_path: Path, config: Config, verdict: Verdict, severity: str
) -> None:
    result = audit(broken(config).write(tmp_path / "history.ndjson"))
    assert result.verdict is verdict
    assert {finding.severity for finding in result.findings if finding.rule == 4} == {severity}


def test_an_override_sets_what_the_header_omits(tmp_path: Path) -> None:
    path = broken(Config()).write(tmp_path / "history.ndjson")
    overrides = {"acks": "all", "unclean_election": False}
    assert audit(path, overrides=overrides).verdict is Verdict.INVALID


def test_an_empty_history_is_unknown_never_valid(tmp_path: Path) -> None:
    assert audit(History().write(tmp_path / "history.ndjson")).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (lambda data: data[:-20], "the line is cut"),
        (lambda data: data.replace(b'"type":"ok"', b'"type":"okay"', 1), "okay"),
        (lambda data: b"\n".join(data.split(b"\n")[1:]), "missing: 1 event"),
        (lambda data: data.replace(b"\n", b"\ngarbage\n", 1), "no event"),
        (lambda data: b"\n".join([*data.split(b"\n")[:3], *data.split(b"\n")[4:]]), "missing: 1 event"),
    ],
    ids=["truncated", "unknown type", "no header", "garbage", "a line is missing"],
)
def test_unreadable_lines_are_reported_and_make_the_verdict_unknown(
    tmp_path: Path, corrupt: object, message: str
) -> None:
    path = healthy().write(tmp_path / "history.ndjson")
    path.write_bytes(corrupt(path.read_bytes()))  # type: ignore[operator]
    result = audit(path)
    assert result.verdict is Verdict.UNKNOWN
    assert any(message in bad.reason for bad in result.quarantine.lines)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "highwater", "audit", *arguments], capture_output=True, text=True, check=False
    )


def test_exit_codes_and_json(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.ndjson", tmp_path / "bad.ndjson"
    healthy().write(good)
    broken().write(bad)
    assert run(str(good), "--engine", "local").returncode == 0
    outcome = run(str(bad), "--json")
    assert outcome.returncode == 1
    printed = json.loads(outcome.stdout)
    assert printed["verdict"] == "invalid"
    assert printed["operations"] == len(broken().operations())
    assert {"rule", "name", "severity", "expected", "count", "witnesses"} <= set(printed["findings"][0])
    missing = run(str(tmp_path / "nowhere.ndjson"))
    assert missing.returncode == 2
    assert len(missing.stderr.strip().splitlines()) == 1
    assert run(str(good), "--config", "colour=red").returncode == 2


def test_the_catalogue_names_every_rule_of_the_kernel() -> None:
    assert {rule for rule, _ in PLANTED} <= set(anomalies())
    assert all(len(anomaly.witnesses) == 2 for anomaly in anomalies().values())


def planted_everywhere() -> History:
    history = healthy()
    for _, plant in PLANTED:
        plant(history)
    return history


def test_a_verdict_is_written_and_no_temporary_file_remains(tmp_path: Path) -> None:
    result = audit(broken().write(tmp_path / "history.ndjson"))
    assert json.loads(write_verdict(tmp_path, result).read_text())["verdict"] == "invalid"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history.ndjson", "verdict.json"]


@pytest.mark.parametrize("overrides", [{"acks": "7"}, {"foo": 1}, ["acks=all"]])
def test_wrong_settings_of_the_python_api_are_usage_errors(tmp_path: Path, overrides: Any) -> None:
    h = History()
    h.send(1, 0)
    with pytest.raises(UsageError, match=r"no such setting|Invalid enum value"):
        audit(h.write(tmp_path / "history.ndjson"), overrides=overrides)

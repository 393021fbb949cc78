"""`highwater simulate`: its output, and the options that it refuses."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from highwater.commands.simulate import simulate_command
from highwater.errors import ExitCode, UsageError
from highwater.fuzz.simulator.kept_seeds import read_kept_seed

app = typer.Typer()
app.command()(simulate_command)


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def simulate(*options: str) -> Result:
    return CliRunner().invoke(app, list(options))


def test_the_violation_of_a_guard_that_is_off_is_printed_and_kept(tmp_path: Path) -> None:
    result = simulate("--seeds", "0:5", "--guard-off", "AckAfterCommit", "--jobs", "1", "--keep", str(tmp_path))
    assert result.exit_code == ExitCode.VIOLATED
    lines = result.output.splitlines()
    assert lines[0].startswith("CommittedOnEligible (IsrCommit; ")
    again = lines[1].split("highwater simulate ")[1].split()
    assert read_kept_seed(tmp_path / "AckAfterCommit.json").invariant == "CommittedOnEligible"
    assert simulate(*again).output.splitlines()[0] == lines[0], "the printed command reproduces the violation"


def test_a_clean_seed_prints_its_situations() -> None:
    summary = json.loads(simulate("--seeds", "0:1", "--jobs", "1", "--json").output)
    assert (summary["seeds"], summary["findings"]) == (1, [])
    assert summary["seen"]["first leader"] == 1
    assert summary["events"] > 1_000


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--guard-off", "NoSuchRule"), "no guard 'NoSuchRule'"),
        (("--guard-off", "AckAfterComit"), "did you mean AckAfterCommit"),
        (("--seeds", "5:5"), "empty range"),
        (("--truncation", "kip101s"), "unknown rule 'kip101s'; one of: "),
        (("--keep", "seeds"), "--keep without --guard-off"),
        (("--trace", "run.ndjson", "--out", "sweep"), "--out with --trace"),
        (("--schedule", "missing.json"), "missing.json: not a fault schedule"),
        (("--schedule", "s.json"), "s.json: fault 0: unknown fault 'meteor'; known: kill"),
    ],
)
def test_bad_input_is_named(options: tuple[str, ...], what: str) -> None:
    Path("s.json").write_text('{"duration_ms": 10, "faults": [{"at_ms": 1, "kind": "meteor", "nodes": ["1"]}]}')
    refused = simulate(*options).exception
    assert isinstance(refused, UsageError)
    assert what in str(refused)


def test_an_unknown_node_is_named() -> None:
    Path("s.json").write_text('{"duration_ms": 10, "faults": [{"at_ms": 1, "kind": "kill", "nodes": ["9"]}]}')
    refused = simulate("--schedule", "s.json", "--jobs", "1").exception
    assert isinstance(refused, UsageError)
    assert "fault 0: unknown node '9'" in str(refused)

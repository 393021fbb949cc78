"""The documentation: links lead to files, commands and options exist, and the Python example runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from highwater.command_line import BY_NAME, application
from highwater.reference.wire.errors import RETRIABLE, ErrorCode

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")])
EXAMPLE_FILES = {"app.py", "audit_job.py", "broker.toml", "cluster.toml", "sender.py", "test_walk.py"}
PYTEST_OPTIONS = {"--pyargs", "--junitxml"}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert missing == []


def test_modules_named_in_text_exist() -> None:
    """A module that is renamed must also be renamed in READMEs and docstrings."""
    folders = ("spec", "reference", "conformance", "fuzz", "reports", "highwater", "docs")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    names = {path.name for path in [*ROOT.iterdir(), *paths]} | EXAMPLE_FILES
    missing = {
        (str(path.relative_to(ROOT)), name)
        for path in paths
        if path.suffix in {".py", ".md", ".tla"} and "tests" not in path.parts
        for name in re.findall(r"`(?:[\w]+/)*([a-z]\w*\.(?:py|toml|tla|j2))`", path.read_text())
        if name not in names
    }
    assert missing == set()


def options_of(name: str) -> set[str]:
    """Return the options of a command and of its subcommands."""
    from typer.main import get_command

    command = get_command(application(name)).commands[name]  # type: ignore[attr-defined]
    commands = [command, *getattr(command, "commands", {}).values()]
    return {option for each in commands for parameter in each.params for option in parameter.opts} | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_their_options_exist(page: Path) -> None:
    used = re.findall(r"^ *(?:\$ |\.venv/bin/)?highwater ([a-z-]+)((?:\\\n|[^\n#|])*)", page.read_text(), re.MULTILINE)
    for name, rest in used:
        assert name in BY_NAME, f"highwater {name}"
        options = set(re.findall(r"(?<!\S)(--[a-z][a-z-]*)", rest.partition("'")[0]))
        assert options <= options_of(name) | PYTEST_OPTIONS, f"highwater {name}{rest}"


def test_the_python_example_runs() -> None:
    example = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "reference.md").read_text(), re.DOTALL)
    assert example
    ended = subprocess.run([sys.executable, "-c", example[1]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("invalid ['inconsistent-offsets', 'lost-write'")
    assert lines[1].endswith("events, no violation")
    assert lines[3] == "1 broker"


def test_the_page_of_errors_lists_every_code_and_what_clients_retry() -> None:
    page = (ROOT / "docs" / "conformance" / "errors.md").read_text()
    rows = {
        int(code): (name, kind) for code, name, kind in re.findall(r"^\| (-?\d+) \| (\w+) \| ([^|]+) \|$", page, re.M)
    }
    others = {int(code) for code in re.findall(r"-?\d+", page.rpartition("request again:")[2])}
    assert rows.keys() | others == {code.value for code in ErrorCode if code is not ErrorCode.NONE}
    assert not rows.keys() & others
    assert all(name == ErrorCode(code).name for code, (name, _) in rows.items())
    assert {code for code, (_, kind) in rows.items() if kind.endswith("retry")} == {code.value for code in RETRIABLE}


EVENTS = ROOT / "docs" / "audit" / "events.md"


def test_the_sample_history_is_valid(tmp_path: Path) -> None:
    from highwater.reports.audit import audit

    sample = re.search(r"```\n(\{.*?)```", EVENTS.read_text(), re.DOTALL)
    assert sample
    path = tmp_path / "history.ndjson"
    path.write_text(sample[1])
    result = audit(path)
    assert result.coverage is not None
    assert (result.verdict, result.quarantine.lines, result.coverage.faults) == ("valid", [], 1)


def test_the_tables_of_events_list_every_operation_field_and_setting() -> None:
    from highwater.spec.formats.history import OPERATIONS, Config, Event

    text = EVENTS.read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([^|]*)", text.partition("## Records")[2], re.M)
    first = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    objects = {name for row in rows[-4:] for name in re.findall(r"`(\w+)`:", row[1])}
    assert (first | objects) >= OPERATIONS - {"header"}
    mentioned = set(re.findall(r"`(\w+)`", text))
    assert mentioned >= {name for kind in (Event, Config) for name in kind.__struct_fields__}

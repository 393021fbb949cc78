"""The commands of the tutorial and of the how-tos: each is run and compared with the page, or the page says why not.

An HTML comment before a block of commands says what is not run: `<!-- not run: it needs a broker of yours -->`, or
`<!-- not run 2, 4-6: ... -->` for some of its commands. `<!-- soak: why -->` runs them only in `make soak`. A block
without a language that follows commands is what the last of them prints, or a part of it: `...` stands for lines that
are left out. Numbers of the output may differ, unless the comment `<!-- exact -->` precedes it, and the comment
`<!-- not compared: why -->` excepts a block. The exit code is 0, or what `# exit code 1` behind a command says.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    "tutorial.md", "chaos.md", "proxy.md", "simulation.md", "fuzzing.md", "measurements/fuzzing.md", "exploring.md",
    "measurements/simulation.md",
    "foreign-traces.md",
    "experiments.md", "audit/formats.md", "audit/page.md", "audit/spark.md", "conformance/README.md",
    "conformance/adding-a-case.md",
)  # fmt: skip
COMMAND: Final = re.compile(
    r"(?:\$ )?((?:highwater|python|pip|pytest|make|tcpdump|\S+=\S+ spark-submit|kafka-\S+\.sh) .*)"
)
NOTE: Final = re.compile(
    r"<!-- (?P<kind>not run|not compared|soak|exact)(?: (?P<numbers>[\d, -]+))?(?:: (?P<reason>.+?))? -->"
)
EXIT_CODE: Final = re.compile(r"#.*\bexit code (\d)")
WRITTEN: Final = frozenset({"results", "page.html", "clauses.html"})
TIME_LIMIT_S: Final = 240
Plan = Literal["run", "not run", "soak"]


@dataclass
class Block:
    """A block of code without a language: commands, or the output of those before."""

    page: str
    line: int
    lines: list[str]
    notes: list[re.Match[str]]
    section: int

    @property
    def commands(self) -> list[str]:
        joined = re.sub(r"\\\n\s*", "", "\n".join(self.lines)).split("\n")
        return [found[1] for line in joined if (found := COMMAND.fullmatch(line.strip()))]

    @property
    def output(self) -> str:
        """Return the lines of a block that are no commands, such as those after `$ command`."""
        joined = re.sub(r"\\\n\s*", "", "\n".join(self.lines)).split("\n")
        return "\n".join(line for line in joined if not COMMAND.fullmatch(line.strip()))


@dataclass
class Command:
    """A command of a page, whether it is run, and what it prints there."""

    page: str
    line: int
    text: str
    plan: Plan
    reason: str
    output: str = ""
    exact: bool = False

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text.split('#')[0].strip()}"


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of code without a language, each with the comments that precede it."""
    notes: list[re.Match[str]] = []
    fence: str | None = None
    found: Block | None = None
    section = 0
    for number, line in enumerate((ROOT / "docs" / page).read_text().split("\n"), 1):
        if line.startswith("```"):
            fence = None if fence is not None else line[3:]
            if fence is None and found is not None:
                yield found
            found = Block(page, number, [], notes, section) if fence == "" else None
            notes = notes if fence is None else []
        elif fence is not None:
            if found is not None:
                found.lines.append(line)
        elif line.startswith("    "):
            found = found or Block(page, number, [], notes, section)
            found.lines.append(line[4:])
        else:
            section += line.startswith("#")
            if found is not None and line:
                yield found
                found, notes = None, []
            if line:
                notes = [*notes, note] if (note := NOTE.fullmatch(line)) else []


def commands(page: str) -> list[Command]:
    """Return the commands of a page, with the output that follows."""
    found: list[Command] = []
    section = 0
    for block in blocks(page):
        texts = block.commands
        found += [Command(page, block.line, text, *_plan(block.notes, number)) for number, text in enumerate(texts, 1)]
        if texts:
            section = block.section
        compared = all(note["kind"] != "not compared" for note in block.notes)
        if compared and found and block.output.strip() and block.section == section and not found[-1].output:
            found[-1].output = block.output
            found[-1].exact = any(note["kind"] == "exact" for note in block.notes)
    return found


def _plan(notes: list[re.Match[str]], number: int) -> tuple[Plan, str]:
    """Return whether the nth command of a block is run, and the reason why not."""
    for note in notes:
        if note["kind"] in {"not run", "soak"} and (not note["numbers"] or number in _numbers(note["numbers"])):
            plan: Plan = "soak" if note["kind"] == "soak" else "not run"
            return plan, note["reason"] or ""
    return "run", ""


def _numbers(text: str) -> set[int]:
    ends = [part.strip().split("-") for part in text.split(",")]
    return {number for each in ends for number in range(int(each[0]), int(each[-1]) + 1)}


def normalised(text: str, *, exact: bool) -> str:
    """Return a text with one space between words, and without its numbers unless they are `exact`."""
    joined = " ".join(text.split())
    return joined if exact else re.sub(r"\d(?:[\d,.:]*\d)?", "N", joined)


@cache
def run(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder that shows the files of the repository, as a user does in a clone."""
    search = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with TemporaryDirectory(prefix="docs-") as folder:
        for entry in ROOT.iterdir():
            if entry.name not in WRITTEN:
                (Path(folder) / entry.name).symlink_to(entry)
        return subprocess.run(
            ["bash", "-c", command], cwd=folder, env={**os.environ, "PATH": search, "COLUMNS": "80"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIME_LIMIT_S, check=False,
        )  # fmt: skip


ALL: Final = [command for page in PAGES for command in commands(page)]


def marked(command: Command) -> object:
    marks = [pytest.mark.soak] if command.plan == "soak" else []
    return pytest.param(command, id=str(command), marks=[*marks, pytest.mark.xdist_group("docs")])


@pytest.mark.parametrize("command", [marked(each) for each in ALL if each.plan != "not run"])
def test_a_command_prints_what_the_page_says(command: Command) -> None:
    done = run(" ".join(command.text.partition(" #")[0].split()))
    expected = EXIT_CODE.search(command.text)
    assert done.returncode == int(expected[1] if expected else 0), done.stdout
    printed, position = normalised(done.stdout, exact=command.exact), 0
    for part in re.split(r"^\s*\.\.\.\s*$", command.output, flags=re.MULTILINE):
        position = printed.find(normalised(part, exact=command.exact), position)
        assert position >= 0, f"{command} does not print\n{part}\nbut\n{done.stdout}"


def test_a_command_that_is_not_run_has_a_reason() -> None:
    assert [str(each) for each in ALL if each.plan != "run" and len(each.reason) < 10] == []
    assert Counter(each.plan for each in ALL)["run"] >= 10

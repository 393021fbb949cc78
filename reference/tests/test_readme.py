"""The table of sources in README.md names modules and tests that are there, and leaves no test of a source out."""

import re
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parent.parent
ROOT = REFERENCE.parent
ROWS = [
    line.strip("|").split("|")
    for line in (REFERENCE / "README.md").read_text().splitlines()
    if line.startswith("| ") and line.count("|") == 4 and "`" in line
]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+/[^`]*|[^`]+\.(?:py|txt))`", cell)


def found(name: str) -> list[Path]:
    """A name may be a pattern."""
    return [*REFERENCE.glob(name), *ROOT.glob(name)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip()[:50])
def test_a_row_names_what_is_there(row: list[str]) -> None:
    _, modules, tests = row
    assert named(modules), "a row needs a module"
    assert named(tests), "a row needs a test or a story"
    missing = [name for name in (*named(modules), *named(tests)) if not found(name)]
    assert missing == []


def test_every_story_stands_in_the_table() -> None:
    """Or its partner does, with another rule or without the guard."""
    told = {path for row in ROWS for name in named(row[2]) for path in found(name)}
    stories = set((ROOT / "fuzz" / "scenarios").rglob("*.txt"))
    partners = {_without_variant(path) for path in told}
    assert {path.name for path in stories if _without_variant(path) not in partners} == set()


def _without_variant(path: Path) -> str:
    return re.sub(r"_(high_watermark|kip\d+|with_eligible_replicas|without_eligible_replicas)$", "", path.stem)

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


def exists(name: str) -> bool:
    return (REFERENCE / name).exists() or (ROOT / name).exists()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip()[:50])
def test_a_row_names_what_is_there(row: list[str]) -> None:
    _, modules, tests = row
    assert named(modules), "a row needs a module"
    assert named(tests), "a row needs a test or a story"
    missing = [name for name in (*named(modules), *named(tests)) if not exists(name)]
    assert missing == []


def test_every_story_stands_in_the_table() -> None:
    told = {Path(name).name for row in ROWS for name in named(row[2])}
    stories = {path.name for path in (ROOT / "fuzz" / "scenarios").glob("*.txt")}
    partners = {re.sub(r"_(high_watermark|kip\d+|with|without)(_eligible_replicas)?\.txt$", "", name) for name in told}
    untold = {
        name for name in stories - told
        if re.sub(r"_(high_watermark|kip\d+|with|without)(_eligible_replicas)?\.txt$", "", name) not in partners
    }  # fmt: skip
    assert untold == set()

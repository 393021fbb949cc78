"""The table of sources in README.md names existing modules and tests, and lists every scenario."""

import re
from pathlib import Path

import pytest

from highwater.reference.settings_table import README, update_table

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
    """Return the files that match a name or pattern."""
    return [*REFERENCE.glob(name), *ROOT.glob(name)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip()[:50])
def test_modules_and_tests_of_a_row_exist(row: list[str]) -> None:
    _, modules, tests = row
    assert named(modules), "a row needs a module"
    assert named(tests), "a row needs a test or a scenario"
    missing = [name for name in (*named(modules), *named(tests)) if not found(name)]
    assert missing == []


def test_every_scenario_is_listed_in_the_table() -> None:
    """A variant with another truncation rule or eligibility setting may be listed instead."""
    listed = {path for row in ROWS for name in named(row[2]) for path in found(name)}
    scenarios = set((ROOT / "fuzz" / "scenarios").rglob("*.txt"))
    partners = {_without_variant(path) for path in listed}
    assert {path.name for path in scenarios if _without_variant(path) not in partners} == set()


def test_the_table_of_settings_is_fresh() -> None:
    text = README.read_text()
    assert update_table(text) == text, "run python -m highwater.reference.settings_table"


def _without_variant(path: Path) -> str:
    return re.sub(r"_(high_watermark|kip\d+|with_eligible_replicas|without_eligible_replicas)$", "", path.stem)

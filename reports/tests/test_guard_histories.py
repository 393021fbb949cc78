"""The fourth witness: the history of a guard's seed gives the anomaly that its row names, none with the guard on."""

import re
from pathlib import Path

import pytest

from fuzz.kept import FOLDER, read_kept
from fuzz.recorded import record
from reports.anomalies import anomalies
from reports.audit import audit
from spec.guards import load_guards

TEXT = re.compile(r"(?P<name>[\w-]+) \(rule (?P<rule>\d+)\), in the history of fuzz/seeds/(?P<seed>\w+)\.json")
ROWS = [(guard, match) for guard, row in load_guards().items() if (match := TEXT.fullmatch(row.witnesses.audit))]


def test_some_guards_are_shown_by_the_history_of_their_seed() -> None:
    assert len(ROWS) >= 6
    assert all(anomalies()[int(match["rule"])].name == match["name"] for _, match in ROWS)


@pytest.mark.parametrize(("guard", "match"), ROWS, ids=[guard for guard, _ in ROWS])
def test_the_history_shows_what_the_guard_keeps_away(guard: str, match: "re.Match[str]", tmp_path: Path) -> None:
    kept = read_kept(FOLDER / f"{match['seed']}.json")
    assert kept.guard == guard
    off, on = (audit(record(kept, tmp_path / f"{off}.ndjson", off=off)) for off in (True, False))
    assert match["name"] in {each.name for each in off.findings if each.severity == "violation"}
    assert on.verdict == "valid"
    assert on.operations > 100

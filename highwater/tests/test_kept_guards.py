"""The history of a guard's seed has the anomaly that its row names, and none with the guard on.

Covers one guard, that with the shortest name, for each anomaly and severity; `python -m highwater.soak.guards
histories` covers all.
"""

from pathlib import Path

import pytest

from highwater.fuzz.simulator.kept_seeds import FOLDER, read_kept_seed
from highwater.reports.anomalies import anomalies
from highwater.soak.guards import ROW, kept_mismatch, rows
from highwater.spec.guards import load_guards

ROWS = rows()
ONE_OF_EACH = {
    (ROWS[guard]["name"], ROWS[guard]["severity"]): guard
    for guard in sorted(ROWS, key=lambda guard: (-len(guard), guard))
}


def test_every_guard_has_a_history_or_a_reason_for_its_absence() -> None:
    texts = {guard: row.witnesses.audit for guard, row in load_guards().items()}
    neither = {guard for guard, text in texts.items() if guard not in ROWS and not text.startswith("none, because ")}
    assert neither == set()
    assert len(ROWS) >= 29
    assert all(anomalies()[int(row["rule"])].name == row["name"] for row in ROWS.values())


def test_an_anomaly_lists_the_guards_whose_absence_causes_it() -> None:
    known = set(load_guards())
    assert all(set(anomaly.guards) <= known for anomaly in anomalies().values())
    unlisted = {guard for guard, row in ROWS.items() if guard not in anomalies()[int(row["rule"])].guards}
    assert unlisted == set()


@pytest.mark.sample(4)
@pytest.mark.parametrize("guard", ONE_OF_EACH.values())
def test_the_history_without_the_guard_has_the_anomaly(guard: str, tmp_path: Path) -> None:
    assert kept_mismatch(guard, ROWS[guard], tmp_path) == ""


def test_a_row_with_a_wrong_anomaly_or_seed_is_reported(tmp_path: Path) -> None:
    guard = "MatchReplies"
    other = ROW.fullmatch(f"lost-write (rule 4), in the history of fuzz/seeds/{guard}.json")
    strange = ROW.fullmatch("lost-write (rule 4), in the history of fuzz/seeds/ElectFromIsr.json")
    assert other is not None
    assert strange is not None
    assert read_kept_seed(FOLDER / f"{guard}.json").guard == guard
    assert "not lost-write" in kept_mismatch(guard, other, tmp_path)
    assert "the seed belongs to ElectFromIsr" in kept_mismatch(guard, strange, tmp_path)

"""Each finding names its two witnesses with their times, and has a picture if it has an offset."""

from pathlib import Path
from typing import Any

import pytest

from highwater.reports.anomalies import anomalies
from highwater.reports.audit import audit
from highwater.reports.page.conclusions import conclusions
from highwater.reports.page.history import show_history
from highwater.reports.page.narrative import duration
from highwater.reports.page.picture import CELL
from highwater.reports.synth.plants import PLANTS, SETTINGS
from highwater.reports.synth.write import synth
from highwater.reports.tests.histories import History
from highwater.spec.formats.history import Config, read_history


def test_every_rule_has_a_conclusion() -> None:
    table = conclusions()
    assert sorted(table.rules) == [0, *sorted(anomalies())]
    assert {*table.numbers, *table.beside} <= {*table.rules}
    assert all(table.conclude(rule, "t-0", 7).endswith(".") for rule in table.rules)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """Return the findings by rule of histories with one of each anomaly that needs no other settings.

    A reply of rules 39 and 40 is a stale read too, so these two are in a history of their own.
    """
    by_rule: dict[int, Any] = {}
    for planted in ({39: 1, 40: 1}, {rule: 1 for rule in PLANTS if rule not in {*SETTINGS, 39, 40}}):
        path = tmp_path_factory.mktemp("all") / "history.ndjson"
        synth(path, operations=1_500, seed=5, planted=planted)
        found = show_history(lambda path=path: read_history(path)[1], audit(path))  # type: ignore[misc]
        by_rule |= {finding["rule"]: finding for finding in [*found["serious"], *found["notes"]]}
    return by_rule


@pytest.mark.parametrize("rule", [rule for rule in PLANTS if rule not in SETTINGS])
def test_a_narrative_has_both_witnesses_in_order_of_time(shown: dict[int, Any], rule: int) -> None:
    ((narrative, picture),) = shown[rule]["narratives"]
    assert {step.role for step in narrative.steps} == {role for role in anomalies()[rule].witnesses if role}
    times = [step.start_s for step in narrative.steps]
    assert all(time is not None for time in times)
    assert times == sorted(times)
    assert "{" not in narrative.conclusion
    if picture is not None:
        assert any(row["witness"] for row in picture["rows"])
    else:
        assert rule in conclusions().beside or rule in {5, 11, 23}


def test_a_register_has_a_narrative(tmp_path: Path) -> None:
    history = History(Config(workload="register"))
    for f, invoked, returned in (("write", 1, 1), ("write", 2, 2), ("read", None, 1)):
        history.begin(0, f, key=7, value=invoked)
        history.end(0, value=returned)
    result = audit(history.write(tmp_path / "history.ndjson"))
    shown = show_history(lambda: history.events[1:], result)
    assert shown["words"].startswith(
        "A promise was broken: 1 not-linearizable. 3 operations were checked against one rule"
    )
    ((narrative, picture),) = shown["serious"][0]["narratives"]
    assert narrative.place == "key 7"
    assert "order of the operations on key 7" in narrative.conclusion
    assert [step.start_s for step in narrative.steps] == sorted(step.start_s for step in narrative.steps)
    assert picture is None


def test_the_picture_of_a_lost_write_shows_the_gap(shown: dict[int, Any]) -> None:
    ((_, picture),) = shown[4]["narratives"]
    send, read = (row for row in picture["rows"] if row["witness"])
    assert (send["kind"], read["kind"]) == ("send ok", "read ok")
    lost = send["cells"][0]["x"]
    assert lost == picture["focus"]
    assert lost not in [cell["x"] for cell in read["cells"]]


def test_the_picture_shows_a_poll_that_skips_a_lost_record(tmp_path: Path) -> None:
    history = History()
    for value in range(4):
        history.send(value, value)
    history.poll((0, 0))
    history.poll((2, 2), (3, 3))
    result = audit(history.write(tmp_path / "history.ndjson"))
    (finding,) = show_history(lambda: history.events[1:], result)["serious"]
    ((_, picture),) = finding["narratives"]
    witness = next(row for row in picture["rows"] if row["witness"] and row["kind"] == "read ok")
    assert witness["passed"] == [picture["focus"] + CELL / 2 - 3]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0004, "0.4 ms"), (0.25, "250 ms"), (2.5, "2.50 s"), (4_000, "4,000 s")]
)
def test_a_duration_is_printed_in_a_fitting_unit(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_value_that_differs_from_the_first_is_marked(shown: dict[int, Any]) -> None:
    ((_, picture),) = shown[1]["narratives"]
    here = [cell for row in picture["rows"] for cell in row["cells"] if cell["x"] == picture["focus"]]
    assert len({cell["text"] for cell in here}) == 2
    assert [cell["other"] for cell in here] == [cell["text"] != here[0]["text"] for cell in here]

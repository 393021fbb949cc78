"""The verdict in a sentence: what was broken, or why the audit is undecided."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from highwater.reports.audit import audit
from highwater.reports.page.history import show_history
from highwater.reports.page.words import cited, verdict_words
from highwater.reports.report import report_history
from highwater.reports.tests.histories import PROMISED, History
from highwater.reports.tests.test_kernel import healthy, lost
from highwater.spec.formats.history import Config


def verdict_of(tmp_path: Path, history: History, config: Config = PROMISED) -> str:
    overrides = {name: getattr(config, name) for name in ("acks", "unclean_election")}
    return verdict_words(audit(history.write(tmp_path / "history.ndjson"), overrides=overrides))


def broken() -> History:
    history = healthy()
    lost(history)
    history.kill()
    return history


@pytest.mark.parametrize(
    ("history", "changes", "words"),
    [
        (healthy, {}, "No promise of the settings was broken. "),
        (broken, {}, "A promise was broken: 1 lost-write. "),
        (broken, {"acks": "1"}, "No promise of the settings was broken; 1 lost-write, which these settings"),
        (broken, {"acks": None}, "Undecided: 1 lost-write may be violations; the history lacks what decides. "),
        (History, {}, "Undecided: it holds no operation to check. "),
    ],
    ids=["healthy", "broken", "allowed", "undecided", "empty"],
)  # fmt: skip
def test_the_verdict_in_a_sentence(tmp_path: Path, history: Any, changes: dict[str, Any], words: str) -> None:
    assert verdict_of(tmp_path, history(), msgspec.structs.replace(PROMISED, **changes)).startswith(words)


@pytest.mark.parametrize(
    ("overrides", "corrupted", "words"),
    [
        ({"acks": "1"}, False, "A correct Kafka may show this with acks=1."),
        ({"acks": None}, False, "depends on acks, which the history does not state; give --config acks=…."),
        ({}, True, "lines that could not be used may explain it."),
        ({}, False, None),
    ],
    ids=["expected", "undecided", "not read", "violation"],
)
def test_a_finding_below_a_violation_states_the_reason(
    tmp_path: Path, overrides: dict[str, Any], corrupted: bool, words: str | None
) -> None:
    path = broken().write(tmp_path / "history.ndjson")
    path.write_bytes(path.read_bytes() + b"{garbage\n" * corrupted)
    page = report_history(str(path), audit(path, overrides=overrides), tmp_path / "page.html").read_text()
    reasons = ("A correct Kafka may", "Whether this is a violation")
    assert (words in page) if words else not any(reason in page for reason in reasons)


def test_quarantined_lines_are_listed_with_their_number(tmp_path: Path) -> None:
    path = healthy().write(tmp_path / "history.ndjson")
    path.write_bytes(path.read_bytes() + b"{garbage\n")
    result = audit(path)
    assert verdict_words(result).startswith("Undecided: 1 line that may matter could not be used. ")
    page = report_history(str(path), result, tmp_path / "page.html").read_text()
    assert "1 line could not be used, 1 of which may matter" in page
    assert f'<td class="n">{len(path.read_bytes().splitlines())}</td>' in page


def test_every_clause_that_a_finding_cites_has_a_sentence(tmp_path: Path) -> None:
    result = audit(broken().write(tmp_path / "history.ndjson"))
    citations = cited(result.findings)
    assert [entry["id"] for entry in citations["clauses"]] == ["REP-2", "REP-24"]
    assert "AckAfterCommit" in [entry["id"] for entry in citations["guards"]]
    assert all(entry["sentence"].endswith(".") and entry["source"] for rows in citations.values() for entry in rows)


OUTAGE = "101 ms without a successful send in t-0"


@pytest.mark.parametrize(
    ("waited", "fault", "headline"),
    [
        (0, "", "No partition was without a successful send for longer than 50.0 ms."),
        (100, "", f"{OUTAGE}, from 0.01 s on, with no fault at that time."),
        (100, "kill", f"{OUTAGE}, around: broker 2 down."),
    ],
)
def test_the_headline_is_the_longest_time_without_a_write(
    tmp_path: Path, waited: int, fault: str, headline: str
) -> None:
    history = healthy()
    history.begin(1, "send", value=70)
    for number in range(waited):
        history.phase(str(number))
    history.end(1, offset=70)
    if fault:
        first = next(place for place, event in enumerate(history.events) if event.value == "0")
        history.events[first] = msgspec.structs.replace(history.events[first], f=fault, node="2")
    shown = show_history(lambda: history.events[1:], audit(history.write(tmp_path / "history.ndjson")))
    assert shown["unavailability"]["headline"] == headline


def test_a_history_without_sends_has_no_unavailability(tmp_path: Path) -> None:
    history = History()
    history.poll()
    shown = show_history(lambda: history.events[1:], audit(history.write(tmp_path / "history.ndjson")))
    assert shown["unavailability"]["headline"].startswith("The history has no sends")


def test_a_history_without_times_is_shown_in_its_order(tmp_path: Path) -> None:
    history = broken()
    history.events = [msgspec.structs.replace(event, time_ns=0) for event in history.events]
    path = history.write(tmp_path / "history.ndjson")
    page = report_history(str(path), audit(path), tmp_path / "page.html").read_text()
    assert "This history has no times" in page
    assert "Longest time without a write" not in page
    starts = [float(start) for start in re.findall(r'<li><span class="time">([0-9.]+) s', page)]
    assert starts == sorted(set(starts))
    assert len(starts) == 2

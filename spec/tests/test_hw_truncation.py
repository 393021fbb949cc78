"""The rule holds at a small bound, each mutant breaks as expected, and the story tells how."""

import re
from pathlib import Path

import msgspec
import pytest

from spec.check import FOLDER, check, load_models, mutant_config
from spec.formats.verdict import Verdict
from spec.guards import Counterexample, load_guards
from spec.story import Change, differences, plain_action, story
from spec.tla_values import Function, ModelValue
from spec.tlc import Options, run_tlc

HW = FOLDER / "hw_truncation"
# Two brokers, one record, a crash and a change of ISR: every action has its turn.
SMALL = {"Brokers": "{b1, b2}", "MaxIsrChanges": "1", "MaxCrashes": "1"}
MODELLED = [guard.id for guard in load_guards().values() if isinstance(guard.tlc, Counterexample)]


def test_the_rule_holds_at_a_small_bound_and_no_action_is_idle(tmp_path: Path) -> None:
    text = (HW / "MCHwTruncation.cfg").read_text()
    for name, value in SMALL.items():
        text = re.sub(rf"(?m)^(\s*{name}) = .*$", rf"\1 = {value}", text)
    config = tmp_path / "MCHwTruncation.cfg"
    config.write_text(text)
    found = run_tlc(HW / "MCHwTruncation.tla", config, Options(coverage=True, small=True))
    assert (found.verdict, found.broken, found.distinct) == (Verdict.VALID, "", 5537)
    # LeaderAck changes nothing while its guard is on.
    assert {action for action, count in found.coverage.items() if not count} == {"MCLeaderAck"}
    assert len(found.coverage) >= 14


@pytest.mark.parametrize("guard", MODELLED)
def test_without_a_guard_the_rule_breaks_as_expected(
    guard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (found,) = check(models=[], guards=[guard], jobs=1)
    assert found.expected is not None
    seen = (found.outcome.broken, len(found.outcome.trace))
    assert seen == (found.expected.property, found.expected.length)
    assert (found.verdict, found.seen, found.cached) == (Verdict.VALID, "violated", False)
    (again,) = check(models=[], guards=[guard], jobs=1)
    assert again.cached
    assert again.outcome.trace == found.outcome.trace


def test_the_story_of_truncation_to_the_high_watermark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (found,) = check(models=[], guards=["AckAfterCommit"], jobs=1)
    beats = story(found.outcome.trace)
    assert [beat.action for beat in beats] == ["ElectLeader", "BecomeLeader", "LeaderWrite", "LeaderAck"]
    assert [beat.actors for beat in beats] == [(), ("b1",), ("b1",), ()]
    assert beats[2].changes == (Change("log[b1]", "<<>>", "<<0>>"),)
    assert beats[3].changes == (Change("committed", "<<>>", "<<0>>"),)
    assert found.story().endswith("CommittedOnIsr is violated")


def test_what_is_not_as_expected_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = check(models=[], guards=["AckAfterCommit"], jobs=1)
    assert found.expected is not None
    other = msgspec.structs.replace(found.expected, length=found.expected.length + 1)
    assert msgspec.structs.replace(found, expected=other).verdict is Verdict.INVALID
    holds = msgspec.structs.replace(found.outcome, verdict=Verdict.VALID, distinct=7)
    model = msgspec.structs.replace(found, guard="", expected=None, outcome=holds, states=7)
    assert model.verdict is Verdict.VALID
    assert msgspec.structs.replace(model, states=8).verdict is Verdict.INVALID
    unknown = msgspec.structs.replace(found.outcome, verdict=Verdict.UNKNOWN)
    assert msgspec.structs.replace(found, outcome=unknown).verdict is Verdict.UNKNOWN


def test_only_what_changed_is_told() -> None:
    b1, b2 = ModelValue("b1"), ModelValue("b2")
    before = Function({b1: Function({"isr": frozenset({b1}), "end": 0}), b2: 7})
    after = Function({b1: Function({"isr": frozenset({b1, b2}), "end": 0}), b2: 7})
    assert list(differences("leading", before, after)) == [Change("leading[b1].isr", "{b1}", "{b1, b2}")]
    assert list(differences("log", (0,), (0, 1))) == [Change("log", "<<0>>", "<<0, 1>>")]
    entry = Function({"leader": b1})
    assert list(differences("metadata", (), (entry,))) == [Change("metadata[0]", "nothing", "[leader |-> b1]")]


@pytest.mark.parametrize(("bounded", "plain"), [("MCFetch", "Fetch"), ("SIMFetch", "Fetch"), ("Move", "Move")])
def test_a_bounded_action_goes_by_its_own_name(bounded: str, plain: str) -> None:
    assert plain_action(bounded) == plain


def test_the_committed_mutant_is_the_one_that_would_be_made() -> None:
    guard = load_guards()["TruncateByEpoch"]
    text = mutant_config(load_models()[guard.model], guard)
    assert "AckedSurvives" in text
    assert "TruncateByEpoch = FALSE" in text

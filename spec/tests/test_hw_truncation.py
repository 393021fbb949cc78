"""The model holds at a small bound, each mutant breaks as expected, and the counterexample has its steps."""

import re
from pathlib import Path

import msgspec
import pytest

from highwater.errors import Verdict
from highwater.spec.check import ModelResult, check
from highwater.spec.models import CONTRACTS, FOLDER, load_models
from highwater.spec.tlc.counterexample import Change, counterexample_steps, differences, plain_action
from highwater.spec.tlc.messages import TlcResult
from highwater.spec.tlc.run import Options, run_tlc
from highwater.spec.tlc.values import Function, ModelValue

HW = FOLDER / "hw_truncation"
# Two brokers, one record, a crash and a change of ISR: every action is taken.
SMALL = {"Brokers": "{b1, b2}", "MaxIsrChanges": "1", "MaxCrashes": "1"}


@pytest.mark.long
def test_the_rule_holds_at_a_small_bound_and_no_action_is_idle(tmp_path: Path) -> None:
    text = (HW / "MCHwTruncation.cfg").read_text()
    for name, value in SMALL.items():
        text = re.sub(rf"(?m)^(\s*{name}) = .*$", rf"\1 = {value}", text)
    config = tmp_path / "MCHwTruncation.cfg"
    config.write_text(text)
    found = run_tlc(HW / "MCHwTruncation.tla", config, Options(coverage=True, small=True, library=(CONTRACTS,)))
    assert (found.verdict, found.broken, found.distinct) == (Verdict.VALID, "", 5537)
    # These actions change nothing while their guards are on.
    assert {action for action, count in found.coverage.items() if not count} == {"MCLeaderAck", "FollowerRaiseHw"}
    assert len(found.coverage) >= 14


LAST_KNOWN = r"""
---- MODULE LastKnown ----
EXTENDS MCHwTruncation
On == TRUE
OnceUntilRegistered(b) ==
    Registered(b) /\ (InIsr(b) /\ (\E other \in Store.isr \ {b} : Up(other) /\ ~Clean(other)) => OtherIsClean(b))
NeverElected == ~LastKnownReturns
====
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("invariant", "broken"), [("AckedSurvives LeadersAgree", ""), ("NeverElected", "NeverElected")]
)
def test_the_last_known_leader_may_lead_within_the_fault_budget(tmp_path: Path, invariant: str, broken: str) -> None:
    """KIP-966 elects it if all members restarted uncleanly, although it left the ISR: it has what they have."""
    text = (HW / "MCHwTruncation.cfg").read_text()
    for name, value in {**SMALL, "MaxIsrChanges": "0", "MaxLeaderEpoch": "2", "MaxCrashes": "2"}.items():
        text = re.sub(rf"(?m)^(\s*{name}) = .*$", rf"\1 = {value}", text)
    overridden = "CONSTANTS\n    LastKnownLeads <- On\n    MayCrash <- OnceUntilRegistered"
    text = re.sub(r"(?ms)^INVARIANTS.*", f"INVARIANTS {invariant}\n", text).replace("CONSTANTS", overridden)
    module, config = tmp_path / "LastKnown.tla", tmp_path / "LastKnown.cfg"
    module.write_text(LAST_KNOWN.lstrip())
    config.write_text(text)
    found = run_tlc(module, config, Options(small=True, library=(HW, CONTRACTS)))
    assert (found.verdict, found.broken) == (Verdict.INVALID if broken else Verdict.VALID, broken)


def test_what_was_checked_before_is_not_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One guard; `highwater spec check` runs all of them, with their controls."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found, again = (check(models=[], guards=["AckAfterCommit"], jobs=1, controls=False) for _ in range(2))
    assert [(one.verdict, one.faults, one.cached) for one in found] == [(Verdict.VALID, [], False)] * len(found)
    assert {one.observed for one in found} == {"violated"}
    assert all(one.cached for one in again)
    assert [one.outcome.trace for one in again] == [one.outcome.trace for one in found]


def test_the_counterexample_of_ack_after_commit_has_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = check(models=[], guards=["AckAfterCommit"], jobs=1, controls=False)[0]
    steps = counterexample_steps(found.outcome.trace)
    assert [step.action for step in steps] == ["ElectLeader", "BecomeLeader", "LeaderWrite", "LeaderAck"]
    assert [step.actors for step in steps] == [(), ("b1",), ("b1",), ()]
    assert steps[2].changes == (Change("log[b1]", "<<>>", "<<0>>"),)
    assert steps[3].changes == (Change("committed", "<<>>", "<<0>>"),)
    assert found.counterexample().endswith("CommittedOnIsr is violated")


def test_an_unexpected_result_is_invalid() -> None:
    found = check(models=[], guards=["AckAfterCommit"], jobs=1, controls=False)[0]
    assert found.mutant is not None
    other = msgspec.structs.replace(found.mutant, length=found.mutant.length + 1)
    assert msgspec.structs.replace(found, mutant=other).verdict is Verdict.INVALID
    redundant = msgspec.structs.replace(found.mutant, breaks="", redundant="for a reason")
    assert msgspec.structs.replace(found, mutant=redundant).verdict is Verdict.INVALID
    holds = msgspec.structs.replace(found.outcome, verdict=Verdict.VALID, broken="", trace=(), distinct=7)
    assert msgspec.structs.replace(found, outcome=holds).verdict is Verdict.INVALID
    assert msgspec.structs.replace(found, mutant=redundant, outcome=holds).verdict is Verdict.VALID
    unknown = msgspec.structs.replace(found.outcome, verdict=Verdict.UNKNOWN)
    assert msgspec.structs.replace(found, outcome=unknown).verdict is Verdict.UNKNOWN


def test_a_model_must_count_the_same_leave_no_action_idle_and_reach_what_it_says() -> None:
    outcome = TlcResult(
        verdict=Verdict.VALID, distinct=7, coverage={"Write": 3, "Crash": 0}, lines=('"REACHED Zombie"',)
    )
    row = msgspec.structs.replace(load_models()["MCHwTruncation"], states=7, idle=("Crash",), reached=("Zombie",))
    assert ModelResult(model=row, outcome=outcome).faults == []
    wrong = msgspec.structs.replace(row, states=8, idle=("Write",), reached=("Other",))
    assert ModelResult(model=wrong, outcome=outcome).faults == [
        "7 states, but manifest.toml says 8: find the cause, or correct the number",
        "Crash is never taken",
        "Write is listed as idle in manifest.toml, but is taken",
        "Other is never reached",
    ]


def test_differences_have_only_changes() -> None:
    b1, b2 = ModelValue("b1"), ModelValue("b2")
    before = Function({b1: Function({"isr": frozenset({b1}), "end": 0}), b2: 7})
    after = Function({b1: Function({"isr": frozenset({b1, b2}), "end": 0}), b2: 7})
    assert list(differences("leading", before, after)) == [Change("leading[b1].isr", "{b1}", "{b1, b2}")]
    assert list(differences("log", (0,), (0, 1))) == [Change("log", "<<0>>", "<<0, 1>>")]
    entry = Function({"leader": b1})
    sent = frozenset({entry})
    assert list(differences("sent", frozenset(), sent)) == [Change("sent", "nothing", "[leader |-> b1]")]
    assert list(differences("sent", sent, frozenset())) == [Change("sent", "[leader |-> b1]", "nothing")]
    assert list(differences("metadata", (), (entry,))) == [Change("metadata[0]", "nothing", "[leader |-> b1]")]


@pytest.mark.parametrize(("bounded", "plain"), [("MCFetch", "Fetch"), ("SIMFetch", "Fetch"), ("Move", "Move")])
def test_a_bounded_action_goes_by_its_own_name(bounded: str, plain: str) -> None:
    assert plain_action(bounded) == plain

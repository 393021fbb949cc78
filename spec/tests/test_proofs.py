"""The proofs succeed, and detect a wrong claim, a dropped guard, an impossible action, and z3 giving up."""

from dataclasses import replace
from typing import Any

import pytest
import z3
from typer.testing import CliRunner

from highwater.errors import UsageError
from highwater.spec.command_line import spec_app
from highwater.spec.proofs import prove as proving
from highwater.spec.proofs.bounded import violation
from highwater.spec.proofs.crosscheck import compare, compare_steps
from highwater.spec.proofs.explicit import Explicit
from highwater.spec.proofs.language import Action, Claim, Drop, Finite, Protocol, State, Step, Term, hold, step
from highwater.spec.proofs.mutants import drop_guard, prove_kept
from highwater.spec.proofs.prove import FiniteStep, Query, prove
from highwater.spec.proofs.report import ESSENTIAL_CLAIM, PROTOCOLS, RESEARCH, load, size
from highwater.spec.proofs.research import research, research_lines
from highwater.spec.proofs.run import run_research
from highwater.spec.proofs.semantics import Ground


def dropped(protocol: Protocol, guard: str) -> Drop:
    return next(drop for drop in protocol.drops if drop.guard == guard)


@pytest.mark.soak
@pytest.mark.parametrize(
    "name", ["controller_failover", "eager_rebalance", "cooperative_rebalance", "sequence_window", "transactions"]
)
def test_a_protocol_is_proved(name: str) -> None:
    queries: list[Query] = []
    protocol = load(name)
    proof = prove(protocol, listener=queries.append)
    assert proof.verdict == "proved"
    assert len(queries) == len(proof.queries) == size(protocol)
    assert all(steps > 0 for steps in proof.reached.values())


@pytest.mark.soak
@pytest.mark.parametrize("name", ["isr_commit", "hw_truncation"])
def test_replication_is_proved_without_fetches(name: str) -> None:
    """Only some fast actions; `highwater spec prove` proves all."""
    protocol = load(name)
    few = ("LeaderWrite", "ControllerShrink", "ElectLeader")
    proof = prove(
        replace(protocol, actions=tuple(action for action in protocol.actions if action.name in few), depth=5)
    )
    assert proof.verdict == "proved"
    assert set(proof.reached) == set(few)


def beginning() -> Protocol:
    """Return a protocol with controllers that claim and load, but do nothing else."""
    protocol = load("controller_failover")
    return replace(protocol, actions=protocol.actions[:3])


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_promise_is_a_claim(name: str) -> None:
    """Names are consistent: promises, and the claims that a dropped guard breaks or needs."""
    protocol = load(name)
    claims = set(protocol.claims)
    assert len(protocol.claims) == len(protocol.invariant) + len(protocol.implied) + len(protocol.steps)
    assert set(protocol.promises) <= claims
    for drop in protocol.drops:
        assert (drop.breaks in protocol.promises and drop.steps > 0) != bool(drop.redundant), drop.guard
    assert set(protocol.ghosts) <= set(protocol.variables)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_guard_is_used(name: str) -> None:
    """Every guard is used: otherwise dropping it would have no effect."""
    protocol = load(name)
    requested: set[str] = set()

    class RecordingState(State):
        def on(self, guard: str) -> bool:
            requested.add(guard)
            return super().on(guard)

    for off in (frozenset[str](), protocol.guards):
        ground = Ground(protocol, protocol.small, off)
        state = RecordingState(ground, ground.state("0").variables)
        for action in protocol.actions_without(off):
            requested.add(action.without)
            action.run(state, **ground.parameters(action))
    assert protocol.guards <= requested


def test_a_wrong_claim_is_open_with_a_counterexample() -> None:
    """The claim holds only at the start."""
    protocol = beginning()
    wrong = Claim("NoControllerClaims", "No controller ever claims.", lambda s: s.controller_epoch == 0)
    proof = prove(replace(protocol, invariant=(*protocol.invariant, wrong)))
    assert proof.verdict == "open"
    assert [(query.action, query.claim) for query in proof.failed] == [("Claim", "NoControllerClaims")]
    shown = proof.failed[0].counterexample
    assert shown is not None
    assert shown.action.startswith("Claim(")
    assert any(change.path == "controller_epoch" and change.before == "0" for change in shown.changes)


def test_a_claim_that_is_false_at_the_start_is_not_proved() -> None:
    protocol = beginning()
    wrong = Claim("Started", "A controller has claimed.", lambda s: s.controller_epoch >= 1)
    proof = prove(replace(protocol, invariant=(wrong,), steps=()))
    assert proof.verdict != "proved"
    assert ("Init", "Started") in [(query.action, query.claim) for query in proof.failed]


def test_a_claim_that_does_not_follow_is_not_proved() -> None:
    protocol = beginning()
    wrong = Claim("NoRequests", "No request was sent.", lambda s, m: s.request_sent[m] == z3.BoolVal(False))
    proof = prove(replace(protocol, implied=(wrong,)))
    assert [(query.action, query.claim) for query in proof.failed] == [("follows", "NoRequests")]


def test_an_action_that_cannot_happen_is_vacuous() -> None:
    def sleep(s: State, c: Term) -> Step:
        """A controller that has claimed epoch 0 sleeps."""
        return step(s.active[c], s.claimed_epoch[c] == 0, active=s.active.but(c, False))

    protocol = beginning()
    proof = prove(replace(protocol, actions=(*protocol.actions, Action(sleep))))
    assert not proof.failed
    assert proof.vacuous == ("Sleep",)
    assert proof.verdict == "open"


def test_unknown_is_never_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "unsatisfiable", lambda formulas, limit_ms, seed: False)
    proof = prove(beginning())
    assert proof.verdict == "unknown"
    assert {query.verdict for query in proof.failed} == {"unknown"}


def test_z3_giving_up_is_not_unsatisfiable() -> None:
    """A goal that is hard within a millisecond, and one that is satisfiable."""
    x, y, z = z3.Ints("x y z")
    hard = [x > 2, y > 2, z > 2, x * x * x + y * y * y == z * z * z]
    assert not proving.unsatisfiable(hard, 1, 0)
    assert not proving.unsatisfiable([x > 2], 1_000, 0)
    assert proving.unsatisfiable([x > 2, x < 1], 1_000, 0)


def test_the_counterexample_without_leader_epoch_bumps_has_its_steps() -> None:
    """An election in the leader epoch that a broker knows: it knows another leader than the store."""
    protocol = load("controller_failover")
    found = violation(protocol, "BrokersAgree", off=frozenset({"BumpLeaderEpoch"}), depth=8)
    assert found.decided
    actions = [taken.action.split("(")[0].removesuffix("AndSend") for taken in found.steps]
    assert actions[:3] == ["ReadEpoch", "Claim", "Load"]
    assert len(actions) == 4
    assert found.text("BrokersAgree is violated").splitlines()[-1].strip() == "BrokersAgree is violated"


def test_the_loss_of_kip_101_is_found() -> None:
    """A follower truncates to its own high watermark, and loses a record that its leader counts as replicated."""
    protocol = load("hw_truncation")
    result = drop_guard(protocol, dropped(protocol, "TruncateByEpoch"))
    assert result.outcome == "killed"
    assert result.as_expected
    assert result.broken_claim is not None
    assert result.run is not None
    cuts = [
        change for taken in result.run.steps for change in taken.changes if taken.action.startswith("BecomeFollower")
    ]
    assert any(change.path.startswith("log_end") and change.after == "0" for change in cuts)


def test_with_all_guards_on_nothing_breaks_in_a_few_steps() -> None:
    protocol = load("controller_failover")
    found = violation(protocol, "BrokersAgree", off=frozenset(), depth=8)
    assert not found.steps
    assert found.decided


@pytest.mark.soak
def test_a_redundant_guard_needs_its_claim() -> None:
    """Without the version CAS the invariant breaks; with one more claim it holds."""
    protocol = load("controller_failover")
    entry = dropped(protocol, "VersionCas")
    assert drop_guard(protocol, entry).outcome == "redundant"
    assert drop_guard(protocol, replace(entry, more=())).outcome == "open"


def test_an_unsat_core_names_the_claims_that_matter() -> None:
    """BrokersAgree after Follow depends on the content of requests, not on the claimants of controller epochs."""
    protocol = load("controller_failover")
    follow = next(action for action in protocol.actions if action.name == "Follow")
    core = FiniteStep(protocol, follow, frozenset()).core(protocol.claims["BrokersAgree"])
    assert isinstance(core, list)
    assert "RequestsAreHistory" in core
    assert "OneClaimant" not in core


@pytest.mark.long
def test_the_invariant_holds_in_every_state_of_a_tiny_instance() -> None:
    """Execute the protocol that is proved: the invariant is true in every reachable state."""
    protocol = load("cooperative_rebalance")
    numbers = {sort: range(2) for sort in protocol.tiny.numbers}
    explicit = Explicit(protocol, Finite(protocol.tiny.sizes, numbers), protocol.start)
    states = [explicit.state(cells) for cells in explicit.reachable()]
    assert len(states) > 500
    assert all(hold(claim, state) is True for claim in protocol.invariant for state in states)


@pytest.mark.long
def test_proof_and_tla_take_the_same_steps() -> None:
    """The steps are equal, and differ with a guard off; `highwater spec prove` compares those of all seven."""
    protocol = load("cooperative_rebalance")
    same = compare_steps(protocol, count=100)
    assert same.same
    assert same.both > 300
    other = compare_steps(protocol, count=100, off=frozenset({"JoinsInOrder"}))
    assert other.proof_only
    assert not other.same


@pytest.mark.soak
def test_proof_and_tla_reach_the_same_states() -> None:
    """The sets are equal, and differ with a guard off; `highwater spec prove --profile deep` compares all seven."""
    protocol = load("cooperative_rebalance")
    shorter = Finite(protocol.tiny.sizes, {sort: range(2) for sort in protocol.tiny.numbers})
    protocol = replace(protocol, tiny=shorter)
    constants = {"MaxGeneration": 1, "MaxSequence": 1}
    same = compare(protocol, constants=constants)
    assert same.same
    assert same.both > 500
    other = compare(protocol, constants=constants, off=frozenset({"JoinsInOrder"}))
    assert other.proof_only
    assert not other.tla_only


@pytest.mark.soak
def test_late_joins_keep_one_owner_a_generation() -> None:
    """Without the assumption about the network the weaker promise is proved, but not without its lemmas."""
    protocol = load("cooperative_rebalance")
    late = dropped(protocol, "JoinsInOrder")
    assert late.breaks == "OneOwner"
    assert prove_kept(protocol, late).verdict == "proved"
    alone = replace(late, keeps=("OneOwnerAGeneration",))
    assert prove_kept(protocol, alone).verdict == "open"


def test_an_unknown_protocol_is_one_line_and_exit_code_2() -> None:
    with pytest.raises(UsageError, match="no protocol 'paxos'"):
        CliRunner().invoke(spec_app, ["prove", "paxos"], catch_exceptions=False)


@pytest.mark.soak
def test_the_command_lists_what_it_proved() -> None:
    result = CliRunner().invoke(spec_app, ["prove", "controller_failover", "--json"])
    assert result.exit_code == 0
    output: dict[str, Any] = one_object(result.stdout)
    assert [proof["verdict"] for proof in output["proofs"]] == ["proved"]
    assert set(output["proofs"][0]["actions"]) > {"Claim", "Elect"}


def members_crash(*names: str) -> Protocol:
    protocol = load(RESEARCH)
    return replace(protocol, actions=tuple(action for action in protocol.actions if action.name in names), depth=5)


@pytest.mark.soak
def test_crashes_inside_the_isr_are_survived() -> None:
    """Only the fast actions; `highwater spec prove --research` proves all."""
    proof = prove(members_crash("LeaderWrite", "ControllerShrink", "ElectLeader", "CrashInIsr"))
    assert proof.verdict == "proved"
    assert "CrashInIsr" in proof.reached


@pytest.mark.soak
def test_without_the_fault_budget_a_committed_record_is_lost() -> None:
    protocol = load(RESEARCH)
    result = drop_guard(protocol, dropped(protocol, "FaultBudget"))
    assert result.outcome == "killed"
    assert result.as_expected
    assert result.run is not None
    assert result.run.steps[-1].action.startswith("CrashInIsr(")


@pytest.mark.soak
def test_research_without_the_claim_that_carries_it_is_open() -> None:
    protocol = members_crash("LeaderWrite", "AdvanceHw", "CrashInIsr")
    found = research(protocol, ESSENTIAL_CLAIM, depth=2)
    assert found.proof.verdict == "proved"
    assert found.search.decided
    assert not found.search.steps
    text = "\n".join(research_lines(found))
    assert "needs     MembersWereClean: else AdvanceHw breaks CommittedOnIsr" in text
    assert "search    CommittedOnClean: nothing broken within 2 steps" in text


def test_research_is_listed_and_not_run_unless_asked_for() -> None:
    lines: list[str] = []
    assert run_research(lines.append, seed=0, requested=False)["verdict"] == "not run"
    assert [line.split()[2] for line in lines] == [RESEARCH]


def one_object(text: str) -> dict[str, Any]:
    """Decode standard output, which must be one JSON object."""
    import msgspec

    return msgspec.json.decode(text, type=dict[str, Any])

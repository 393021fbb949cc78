"""Changed actions of a proof: what each change is, and what notices it."""

import ast
from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.spec.mutation import run
from highwater.spec.mutation.changes import Change
from highwater.spec.mutation.proof_changes import proof_changes
from highwater.spec.mutation.proof_run import mutants_of_proof, mutate_proofs

SOURCE = '''
def send(s: State, i: Term) -> Step:
    """A docstring stays."""
    return step(
        And(s.ready[i], i != s.none),
        s.guard("Fence", s.epoch == 1),
        sent=s.sent.but(i, True),
        epoch=s.epoch + 1,
    )

def claim(s: State, i: Term) -> Term:
    return And(s.ready[i], s.epoch == 1)
'''


def test_every_expression_of_an_action_is_changed_once_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "some_proof" / "proof.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    found = {(change.what, change.old): change for change in proof_changes(path)}
    assert set(found) == {
        ("drop the condition", "And(s.ready[i], i != s.none)"),
        ("drop the conjunct", "s.ready[i]"),
        ("drop the conjunct", "i != s.none"),
        ("Eq instead", "i != s.none"),
        ("NotEq instead", "s.epoch == 1"),
        ("keep the variable", "sent=s.sent.but(i, True)"),
        ("keep the variable", "epoch=s.epoch + 1"),
        ("False instead", "s.sent.but(i, True)"),
        ("0 instead of 1", "s.epoch + 1"),
    }
    dropped = found["drop the conjunct", "i != s.none"].text
    assert "step(And(s.ready[i]), s.guard('Fence', s.epoch == 1)" in dropped
    assert {change.module for change in found.values()} == {"some_proof"}
    assert all(ast.parse(change.text) for change in found.values())


def one(name: str, definition: str, what: str, old: str) -> Change:
    (change,) = [
        each for each in mutants_of_proof(name) if (each.definition, each.what, each.old) == (definition, what, old)
    ]
    return change


@pytest.mark.long
@pytest.mark.parametrize(
    ("definition", "what", "old", "why"),
    [
        ("leader_sync", "keep the variable", "decided=s.decided.but(s.generation, True)", "RepliesAreHistory breaks"),
        ("join", "drop the disjunct", "j == i", "CompleteJoin is never taken"),
        ("expel", "0 instead of 1", "s.generation + 1", "a step is another"),
    ],
)
def test_a_claim_a_run_or_a_step_notices_a_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, definition: str, what: str, old: str, why: str
) -> None:
    change = one("eager_rebalance", definition, what, old)
    monkeypatch.setattr("highwater.spec.mutation.proof_run.mutants_of_proof", lambda *_: [change])
    monkeypatch.setattr(run, "cache_folder", lambda: tmp_path)
    ((_, outcome),) = mutate_proofs(["eager_rebalance"], limit_s=120, jobs=1)
    assert (outcome.fate, outcome.why) == ("killed", why)
    assert len(list((tmp_path / "mutants").iterdir())) == 1


def test_a_mutant_that_does_not_end_in_time_is_undecided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    change = one("eager_rebalance", "join", "drop the disjunct", "j == i")
    monkeypatch.setattr("highwater.spec.mutation.proof_run.mutants_of_proof", lambda *_: [change])
    monkeypatch.setattr(run, "cache_folder", lambda: tmp_path)
    ((_, outcome),) = mutate_proofs(["eager_rebalance"], limit_s=0.01, jobs=1)
    assert (outcome.fate, outcome.undecided) == ("survived", ("eager_rebalance",))


def test_the_shared_module_is_judged_with_both_protocols_that_use_it() -> None:
    assert len(mutants_of_proof("proofs")) > 50
    assert {change.module for change in mutants_of_proof("proofs")} == {"proofs"}
    with pytest.raises(UsageError, match="proof"):
        mutate_proofs(["proof"], limit_s=1)

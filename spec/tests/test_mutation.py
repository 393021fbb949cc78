"""Mutants of a module of a few lines: which ones there are, and what becomes of them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from highwater.errors import ExitCode, UsageError
from highwater.spec.command_line import spec_app
from highwater.spec.models import Model, load_models
from highwater.spec.mutation import run as mutation_run
from highwater.spec.mutation.changes import Change, changes, edited
from highwater.spec.mutation.proof_run import SHARED, mutants_of_proof
from highwater.spec.mutation.report import exit_code
from highwater.spec.mutation.run import Outcome, mutants_of, mutate, score
from highwater.spec.mutation.syntax import Region
from highwater.spec.proofs.report import PROTOCOLS

COUNTER = r"""---- MODULE Counter ----
EXTENDS Naturals
CONSTANT GuardsOff
VARIABLES count, epoch
Polite == "Polite" \notin GuardsOff
Limit == 3
Add ==
    /\ Polite => count < Limit
    /\ Polite \/ count > 7
    /\ count' = count +    1 \* not + 2
    /\ epoch' = IF count \in {0, 1}
                THEN epoch ELSE epoch + 1
Start == /\ count = Limit
         /\ count' = 0 /\ UNCHANGED epoch
Bug == ~Polite /\ count > 9 /\ UNCHANGED <<count, epoch>>
Init == count = 0 /\ epoch = 0
Small == count <= Limit
Unused == count # 7
====
"""
BOUNDED = r"""---- MODULE MCCounter ----
EXTENDS Counter
MCNext == epoch < 3 /\ (Add \/ Start \/ Bug)
MCSpec == Init /\ [][MCNext]_<<count, epoch>>
====
"""
CONFIG = "SPECIFICATION MCSpec\nCONSTANT GuardsOff = {}\nINVARIANT Small\n"


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a protocol, as the only one that there is; results are cached inside."""
    for name, text in (("Counter.tla", COUNTER), ("MCCounter.tla", BOUNDED), ("MCCounter.cfg", CONFIG)):
        (tmp_path / name).write_text(text)
    model = Model(
        name="MCCounter", claim="", bounds="", module=f"{tmp_path}/MCCounter.tla", cfg=f"{tmp_path}/MCCounter.cfg"
    )
    monkeypatch.setattr(mutation_run, "mutable_folders", lambda: {"counter": [model]})
    monkeypatch.setattr(mutation_run, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path


def all_changes(folder: Path) -> list[Change]:
    return changes(folder / "Counter.tla", folder / "MCCounter.tla", {"MCSpec"}, {"Polite"})


def test_every_expression_of_a_step_is_changed_once(counter: Path) -> None:
    """Not the guard, what only a guard that is off allows, invariants, and what no step uses."""
    found = {(change.definition, change.what, change.old) for change in all_changes(counter)}
    chosen = r"IF count \in {0, 1} THEN epoch ELSE epoch + 1"
    assert found == {
        ("Add", "<= instead of < in", "count < Limit"),
        ("Add", "keep the variable in", "count' = count + 1"),
        ("Add", "keep the variable in", f"epoch' = {chosen}"),
        ("Add", "always THEN in", chosen),
        ("Add", "always ELSE in", chosen),
        ("Add", r"\notin instead of \in in", r"count \in {0, 1}"),
        ("Add", "skip in a set the element", "0"),
        ("Add", "skip in a set the element", "1"),
        ("Add", "only the first of", "epoch + 1"),
        ("Start", "drop the conjunct", "count = Limit"),
        ("Start", "# instead of = in", "count = Limit"),
        ("Start", "keep the variable in", "count' = 0"),
        ("Init", "drop the conjunct", "count = 0"),
        ("Init", "drop the conjunct", "epoch = 0"),
        ("Init", "# instead of = in", "count = 0"),
        ("Init", "# instead of = in", "epoch = 0"),
    }


def test_a_change_keeps_the_columns_of_what_follows() -> None:
    text = "a == /\\ first\n     /\\ second + third\n     /\\ last"
    one_line = edited(text, [(Region(2, 9, 2, 22), "TRUE")]).split("\n")
    assert one_line == ["a == /\\ first", "     /\\ TRUE          ", "     /\\ last"]
    two_lines = edited(text, [(Region(2, 16, 3, 12), "")]).split("\n")
    assert two_lines == ["a == /\\ first", "     /\\ second        ", " " * 12]


@pytest.mark.long
def test_what_becomes_of_each_mutant(counter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {("Add", "<=", "count < Limit"), ("Start", "keep", "count' = 0"), ("Init", "drop", "count = 0")}
    chosen = [each for each in all_changes(counter) if (each.definition, each.what.split()[0], each.old) in wanted]
    monkeypatch.setattr(mutation_run, "mutants_of", lambda *_: chosen)
    judged = mutate(["counter"], jobs=2)
    fates = {(change.definition, change.what, change.old): outcome for change, outcome in judged}
    killed = fates["Add", "<= instead of < in", "count < Limit"]
    assert (killed.fate, killed.why, killed.model) == ("killed", "Small breaks", "MCCounter")
    assert fates["Start", "keep the variable in", "count' = 0"].fate == "survived"
    assert fates["Init", "drop the conjunct", "count = 0"].fate == "not counted"
    assert score(judged) == (1, 2)


@pytest.mark.long
def test_results_are_kept_until_the_module_changes(counter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = mutate(["counter"], count=2, jobs=1)
    monkeypatch.setattr(mutation_run, "run_task", lambda *_: pytest.fail("it was judged already"))
    assert [outcome for _, outcome in mutate(["counter"], count=2, jobs=1)] == [outcome for _, outcome in first]
    (counter / "Counter.tla").write_text(COUNTER.replace("Limit == 3", "Limit == 2"))
    with pytest.raises(pytest.fail.Exception):
        mutate(["counter"], count=2, jobs=1)


def test_a_larger_choice_contains_the_smaller(counter: Path) -> None:
    few, more = (mutants_of("counter", count, seed=5) for count in (3, 6))
    assert len(few) == 3
    assert set(few) < set(more)


def test_an_equivalent_mutant_is_not_run(counter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ("Counter", "Start", "keep the variable in", "count' = 0")
    monkeypatch.setattr(mutation_run, "equivalents", lambda: {row: "for a reason"})
    chosen = next(each for each in all_changes(counter) if (each.definition, each.old) == (row[1], row[3]))
    monkeypatch.setattr(mutation_run, "mutants_of", lambda *_: [chosen])
    assert mutate(["counter"], jobs=1) == [(chosen, Outcome(fate="equivalent", why="for a reason"))]


@pytest.mark.long
def test_a_model_without_result_in_time_kills_nothing(counter: Path) -> None:
    (counter / "MCCounter.tla").write_text(BOUNDED.replace("epoch < 3 /\\ ", ""))
    (counter / "Counter.tla").write_text(COUNTER.replace("count < Limit", "count < Limit + epoch"))
    (counter / "MCCounter.cfg").write_text(CONFIG.replace("INVARIANT Small\n", ""))
    judged = mutate(["counter"], count=1, seed=3, limit_s=3, jobs=1)
    assert [(outcome.fate, outcome.undecided) for _, outcome in judged] == [("survived", ("MCCounter",))]


@pytest.mark.long
def test_every_listed_equivalent_is_a_mutant() -> None:
    listed = mutation_run.equivalents().keys()
    modules = {module for module, *_ in listed}
    folders = sorted({model.folder for model in load_models().values() if model.path.stem[2:] in modules})
    changed = [change for folder in folders for change in mutants_of(folder)]
    changed += [change for name in (*PROTOCOLS, *SHARED) for change in mutants_of_proof(name)]
    assert listed <= {(change.module, change.definition, change.what, change.old) for change in changed}


def test_the_exit_code_depends_on_the_score() -> None:
    change = Change("Counter", "Add", 1, "drop", "x", "")
    judged = [(change, Outcome(fate="killed")), (change, Outcome(fate="survived"))]
    assert exit_code(judged, 50) is ExitCode.HELD
    assert exit_code(judged, 51) is ExitCode.VIOLATED
    assert exit_code([(change, Outcome(fate="not counted"))], 0) is ExitCode.UNDECIDED


def test_a_module_that_does_not_parse_is_named(counter: Path) -> None:
    (counter / "Counter.tla").write_text(COUNTER.replace("Limit == 3", "Limit == ("))
    with pytest.raises(UsageError, match=r"Counter.tla:7:\d+: does not parse"):
        mutants_of("counter")


def test_an_unknown_folder_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"no folder 'zk_rebalnce'.*zk_rebalance"):
        CliRunner().invoke(spec_app, ["mutate", "zk_rebalnce"], catch_exceptions=False)

"""Names hold together: guards, clauses, models, the trace's vocabulary and the TLA+ modules."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tla

from spec.check import FOLDER, load_models, mutant_config
from spec.clauses import find_clause, load_clauses
from spec.formats.verdict import UsageError
from spec.guards import Counterexample, Guard, find_guard, load_guards
from spec.trace import read_layout

HW = FOLDER / "hw_truncation"
# design.md and the broker agree on these.
VOCABULARY = {
    *("ElectLeader", "ControllerShrinkIsr", "LeaderProposeIsr", "LeaderChangeIsr", "LeaderLearnIsr"),
    *("BecomeLeader", "BecomeFollower", "TruncateToEpochEnd", "LeaderWrite", "LeaderAdvanceHw", "LeaderAck"),
    *("SendFetch", "LeaderServeFetch", "FollowerAppend", "Crash", "Restart"),
}
MODELLED = [guard for guard in load_guards().values() if isinstance(guard.tlc, Counterexample)]


@cache
def units(path: Path) -> tuple[Any, ...]:
    return tuple(tla.parse(path.read_text()).units)


def definitions(path: Path) -> dict[str, Any]:
    return {unit.name: unit for unit in units(path) if type(unit).__name__ == "OperatorDefinition"}


def declared(path: Path, kind: str) -> list[str]:
    return [name.operator for unit in units(path) if type(unit).__name__ == kind for name in unit.names]


def nodes(tree: Any) -> Iterator[Any]:
    """Every node of a syntax tree."""
    if isinstance(tree, (tuple, list)):
        if hasattr(tree, "symbol"):
            yield tree
        for part in tree:
            yield from nodes(part)


def applied(tree: Any) -> set[str]:
    return {node.operator for node in nodes(tree) if type(node).__name__ == "OperatorApplication"}


@pytest.mark.parametrize("guard", MODELLED, ids=lambda guard: guard.id)
def test_a_guard_is_a_boolean_constant_of_its_module(guard: Guard) -> None:
    assert guard.id in declared(HW / "HwTruncation.tla", "Constants")
    assumed = next(unit for unit in units(HW / "HwTruncation.tla") if type(unit).__name__ == "Axiom")
    assert guard.id in applied(assumed)
    assert guard.id in {name for d in definitions(HW / "HwTruncation.tla").values() for name in applied(d)}


def test_a_module_has_no_guard_that_is_not_listed() -> None:
    constants = set(declared(HW / "HwTruncation.tla", "Constants"))
    assert constants == {guard.id for guard in MODELLED} | {"Brokers", "None", "InFlight"}


def test_every_action_of_the_traces_is_an_action_of_the_spec() -> None:
    assert set(read_layout("hw_truncation").actions) == VOCABULARY
    assert definitions(HW / "HwTruncation.tla").keys() >= VOCABULARY
    explained = set(re.findall(r's\[1\] = "(\w+)"', (HW / "TraceHwTruncation.tla").read_text()))
    assert explained == VOCABULARY


@pytest.mark.parametrize("action", sorted(VOCABULARY | {"LeaderParkFetch", "Register"}))
def test_an_action_says_what_becomes_of_every_variable(action: str) -> None:
    path = HW / "HwTruncation.tla"
    assert said_of(definitions(path), action, set()) >= set(declared(path, "Variables"))


def said_of(known: dict[str, Any], name: str, seen: set[str]) -> set[str]:
    """The variables that an action primes or leaves unchanged, itself or through what it applies."""
    if name not in known or name in seen:
        return set()
    found: set[str] = set()
    for node in nodes(known[name].definiens):
        operator = getattr(node, "operator", None)
        if operator == "'":
            found |= applied(node)
        elif operator == "UNCHANGED":
            found |= {part for group in applied(node) for part in (group, *members_of(known, group))}
        elif isinstance(operator, str):
            found |= said_of(known, operator, seen | {name})
    return found


def members_of(known: dict[str, Any], group: str) -> set[str]:
    """`replicas == <<log, ...>>`"""
    return applied(known[group].definiens) if group in known else set()


@pytest.mark.parametrize("guard", load_guards().values(), ids=lambda guard: guard.id)
def test_a_guard_serves_known_clauses_and_names_a_known_model(guard: Guard) -> None:
    assert [find_clause(each).id for each in guard.clauses] == list(guard.clauses)
    assert guard.clauses
    assert not guard.model or guard.model in load_models()
    assert find_guard(guard.switch) is find_guard(guard.id) is guard


@pytest.mark.parametrize("guard", MODELLED, ids=lambda guard: guard.id)
def test_a_mutant_differs_from_the_rule_in_its_guard(guard: Guard) -> None:
    text = mutant_config(load_models()[guard.model], guard)
    off = re.findall(r"^ *(\w+) = FALSE$", text, re.MULTILINE)
    assert off == [guard.id]
    assert isinstance(guard.tlc, Counterexample)
    assert re.findall(r"^INVARIANTS? (.*)$", text, re.MULTILINE) == [guard.tlc.property]


@pytest.mark.parametrize("model", load_models().values(), ids=lambda model: model.name)
def test_a_model_has_its_files_and_every_invariant(model: Any) -> None:
    text = (FOLDER / model.cfg).read_text()
    assert (FOLDER / model.module).is_file()
    invariants = re.findall(r"^INVARIANTS (.*)$", text, re.MULTILINE)[0].split()
    assert definitions(HW / "HwTruncation.tla").keys() >= set(invariants)
    assert "FALSE" not in text


def test_clauses_are_numbered_in_their_area() -> None:
    clauses = load_clauses()
    assert {clause.area for clause in clauses.values()} >= {"REP"}
    assert all(clause.id == key for key, clause in clauses.items())


CLAUSE = '[[clause]]\nid = "{id}"\nsentence = "{sentence}"\nlevel = "{level}"\nsource = "KIP-1"\n'


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"id": "ABC-1"}, "ABC-1 is not XYZ-<number>"),
        ({"level": "WILL"}, "Invalid enum value 'WILL'"),
        ({"sentence": "no stop"}, "XYZ-1 is not a sentence"),
    ],
)
def test_a_faulty_clause_is_refused(tmp_path: Path, fields: dict[str, str], said: str) -> None:
    row = {"id": "XYZ-1", "sentence": "It holds.", "level": "MUST", **fields}
    (tmp_path / "XYZ.toml").write_text(CLAUSE.format(**row))
    with pytest.raises(UsageError, match=said):
        load_clauses(tmp_path)


def test_a_clause_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    row = CLAUSE.format(id="XYZ-1", sentence="It holds.", level="MUST")
    (tmp_path / "XYZ.toml").write_text(row + row)
    with pytest.raises(UsageError, match="XYZ-1 is there twice"):
        load_clauses(tmp_path)


GUARD = """
[[guard]]
id = "FenceIt"
rule = "r"
below = "b"
source = "KIP-1"
clauses = ["REP-1"]
tlc = {tlc}
witnesses = {{ simulator = "{simulator}", audit = "due", conformance = "due" }}
"""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"simulator": " "}, "FenceIt: witness simulator says nothing"),
        ({"simulator": "none, because"}, "FenceIt: witness simulator says nothing"),
        ({"tlc": "3"}, "Expected `str | object`"),
        ({"tlc": '{ property = "P", length = 3 }'}, "FenceIt: tlc without model"),
    ],
)
def test_a_faulty_guard_is_refused(tmp_path: Path, fields: dict[str, str], said: str) -> None:
    path = tmp_path / "guards.toml"
    path.write_text(GUARD.format(**{"tlc": '"due"', "simulator": "due", **fields}))
    with pytest.raises(UsageError, match=re.escape(said)):
        load_guards(path)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no guard 'Fence'; known: TruncateByEpoch, "):
        find_guard("Fence")
    with pytest.raises(UsageError, match=r"no clause 'REP-99'; known: REP-1, "):
        find_clause("REP-99")

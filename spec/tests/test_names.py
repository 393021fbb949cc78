"""Names are consistent across guards, clauses, models, the actions of traces and the TLA+ modules."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tla

from highwater.errors import UsageError
from highwater.spec.check import GUARDS_OFF, guards_of, mutant_config
from highwater.spec.clauses import find_clause, load_clauses
from highwater.spec.guards import Guard, Mutant, find_guard, load_guards
from highwater.spec.models import CLAIMS, CONTRACTS, FOLDER, Model, check_names, load_models, modules_of
from highwater.spec.trace import read_layout

HW = FOLDER / "hw_truncation"
# The actions in traces of the broker (reference/).
VOCABULARY = {
    *("ElectLeader", "ControllerShrinkIsr", "LeaderProposeIsr", "LeaderChangeIsr", "LeaderLearnIsr"),
    *("BecomeLeader", "BecomeFollower", "TruncateToEpochEnd", "LeaderWrite", "LeaderAdvanceHw", "LeaderAck"),
    *("SendFetch", "LeaderServeFetch", "FollowerAppend", "Crash", "Restart"),
}
# In traces of Apache Kafka's logs only: a registration, and a line that compares a log with a folder.
FOREIGN = {"RegisterBroker", "Stored"}
MODELS = list(load_models().values())
PROTOCOLS = {
    model.folder: model.path.with_name(f"{model.path.stem.removeprefix('MC')}.tla")
    for model in MODELS
    if model.name.startswith("MC") and model.folder != CONTRACTS.name  # a contract has no guards
}
MUTANTS = [(guard.id, mutant) for guard in load_guards().values() for mutant in guard.mutants]


@cache
def units(path: Path) -> tuple[Any, ...]:
    return tuple(tla.parse(path.read_text()).units)


def definitions(path: Path) -> dict[str, Any]:
    return {unit.name: unit for unit in units(path) if type(unit).__name__ == "OperatorDefinition"}


def declared(path: Path, kind: str) -> list[str]:
    return [name.operator for unit in units(path) if type(unit).__name__ == kind for name in unit.names]


def nodes(tree: Any) -> Iterator[Any]:
    """Yield every node of a syntax tree."""
    if isinstance(tree, (tuple, list)):
        if hasattr(tree, "symbol"):
            yield tree
        for part in tree:
            yield from nodes(part)


def applied(tree: Any) -> set[str]:
    return {node.operator for node in nodes(tree) if type(node).__name__ == "OperatorApplication"}


def changes_something(definition: Any) -> bool:
    return bool({"'", "UNCHANGED"} & {getattr(node, "operator", None) for node in nodes(definition.definiens)})


def actions(path: Path) -> Iterator[str]:
    """Yield the operators that are whole steps: they prime variables and are not part of such an operator."""
    stepping = {name: definition for name, definition in definitions(path).items() if changes_something(definition)}
    parts = {part for name, definition in stepping.items() for part in applied(definition.definiens) - {name}}
    claims = {claim for model in MODELS if model.path.parent == path.parent for claim in model.claims()}
    yield from stepping.keys() - parts - claims


ACTIONS = [(path, name) for path in PROTOCOLS.values() for name in sorted(actions(path))]


@pytest.mark.parametrize("path", PROTOCOLS.values(), ids=lambda path: path.stem)
def test_the_guards_of_a_module_are_listed_and_those_listed_are_in_it(path: Path) -> None:
    text = path.read_text()
    defined = re.findall(r'(?m)^(\w+) == "\1" \\notin GuardsOff$', text)
    (assumed,) = re.findall(r"(?s)\nGuards ==\n +{(.*?)}", text)
    used = {name for definition in definitions(path).values() for name in applied(definition.definiens)}
    listed = {guard.id for guard in guards_of(path.parent.name)}
    assert set(defined) == listed == set(re.findall(r'"(\w+)"', assumed))
    assert listed <= used


def test_every_action_of_the_traces_is_an_action_of_the_spec() -> None:
    assert set(read_layout("hw_truncation").actions) == VOCABULARY | FOREIGN
    assert definitions(HW / "HwTruncation.tla").keys() >= VOCABULARY
    explained = set(re.findall(r's\[1\] = "(\w+)"', (HW / "TraceHwTruncation.tla").read_text()))
    assert explained == VOCABULARY | FOREIGN


@pytest.mark.parametrize(("path", "action"), ACTIONS, ids=lambda value: value if isinstance(value, str) else value.stem)
def test_an_action_says_what_becomes_of_every_variable(path: Path, action: str) -> None:
    assert constrained_variables(definitions(path), action, set()) >= set(declared(path, "Variables"))


def constrained_variables(known: dict[str, Any], name: str, visited: set[str]) -> set[str]:
    """Return the variables that an action, or an operator that it applies, primes or leaves unchanged."""
    if name not in known or name in visited:
        return set()
    found: set[str] = set()
    for node in nodes(known[name].definiens):
        operator = getattr(node, "operator", None)
        if operator == "'":
            found |= applied(node)
        elif operator == "UNCHANGED":
            found |= {part for group in applied(node) for part in (group, *variables_of(known, group))}
        elif isinstance(operator, str):
            found |= constrained_variables(known, operator, visited | {name})
    return found


def variables_of(known: dict[str, Any], group: str) -> set[str]:
    """Return the variables of a group such as `replicas == <<log, ...>>`."""
    return applied(known[group].definiens) if group in known else set()


THEOREM = re.compile(r"(?m)^THEOREM Protocol(.*) => (?:\[\])?(\w+)$")


@pytest.mark.parametrize("path", PROTOCOLS.values(), ids=lambda path: path.stem)
def test_each_promise_is_a_theorem_and_each_theorem_is_checked(path: Path) -> None:
    """A theorem without a condition is checked by every model of the module; liveness needs fairness, of MC modules."""
    theorems = {name: condition for condition, name in THEOREM.findall(path.read_text())}
    assert len(theorems) == path.read_text().count("\nTHEOREM ")
    models = [model for model in MODELS if model.path.parent == path.parent and not model.name.startswith("Ref")]
    safety = [model for model in models if not model.cfg.endswith("_live.cfg")]
    checked = [set(model.claims()) for model in safety]
    promised = set.union(*checked) & definitions(path).keys() - {"Spec"}
    assert promised == theorems.keys()
    for name, condition in theorems.items():
        assert any(name in claims for claims in checked) if condition else all(name in claims for claims in checked), (
            name
        )


@pytest.mark.parametrize("path", PROTOCOLS.values(), ids=lambda path: path.stem)
def test_some_model_of_a_module_makes_only_its_steps(path: Path) -> None:
    assert {"Init", "Next", "Spec", "TypeOK"} <= definitions(path).keys()
    assert any("Spec" in model.claims() for model in MODELS if model.path.parent == path.parent)


@pytest.mark.parametrize("guard", load_guards().values(), ids=lambda guard: guard.id)
def test_a_guard_serves_known_clauses(guard: Guard) -> None:
    assert [find_clause(clause_id).id for clause_id in guard.clauses] == list(guard.clauses)
    assert guard.clauses
    assert find_guard(guard.id) is guard


def switched_off(config: str) -> list[str]:
    return re.findall(r'"(\w+)"', "".join(re.findall(rf"(?m)^ *{GUARDS_OFF} = (.*)$", config)))


@pytest.mark.parametrize(
    ("guard", "mutant"), MUTANTS, ids=lambda value: value if isinstance(value, str) else value.model
)
def test_a_mutant_differs_from_the_rule_in_its_guards(guard: str, mutant: Mutant) -> None:
    text = mutant_config(load_models()[mutant.model], guard, mutant)
    assert set(switched_off(text)) == {guard, *mutant.also_off}
    claims = [name for _, names in CLAIMS.findall(text) for name in names.split()]
    assert (claims == [mutant.breaks]) or (mutant.redundant and len(claims) > 1)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_model_has_its_files_and_every_claim(model: Model) -> None:
    known = {name for path in modules_of(model.path) for name in definitions(path)}
    assert known >= {*model.claims(), *model.reached}
    assert model.claims()
    assert not switched_off(model.config())


@pytest.mark.parametrize("field", ["idle", "reached"])
def test_a_row_that_names_an_action_that_is_not_there_is_refused(field: str) -> None:
    model = load_models()["MCHwTruncation"]
    check_names(model)
    with pytest.raises(UsageError, match="MCHwTruncation: no action or predicate LeaderSleep"):
        check_names(msgspec.structs.replace(model, **{field: ("LeaderWrite", "LeaderSleep")}))


def test_clauses_are_numbered_in_their_area() -> None:
    clauses = load_clauses()
    assert {clause.area for clause in clauses.values()} >= {"REP"}
    assert all(clause.id == key for key, clause in clauses.items())


CLAUSE = '[[clause]]\nid = "{id}"\nsentence = "{sentence}"\nlevel = "{level}"\nsource = "KIP-1"\n'


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": "ABC-1"}, "ABC-1 is not XYZ-<number>"),
        ({"level": "WILL"}, "Invalid enum value 'WILL'"),
        ({"sentence": "no stop"}, "XYZ-1 is not a sentence"),
    ],
)
def test_a_faulty_clause_is_refused(tmp_path: Path, fields: dict[str, str], message: str) -> None:
    row = {"id": "XYZ-1", "sentence": "It holds.", "level": "MUST", **fields}
    (tmp_path / "XYZ.toml").write_text(CLAUSE.format(**row))
    with pytest.raises(UsageError, match=message):
        load_clauses(tmp_path)


def test_a_clause_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    row = CLAUSE.format(id="XYZ-1", sentence="It holds.", level="MUST")
    (tmp_path / "XYZ.toml").write_text(row + row)
    with pytest.raises(UsageError, match="XYZ-1 is defined twice"):
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
    ("fields", "message"),
    [
        ({"simulator": " "}, "FenceIt: the text of witness simulator is empty"),
        ({"simulator": "none, because"}, "FenceIt: the text of witness simulator is empty"),
        ({"tlc": "3"}, "Expected `str | array`"),
        ({"tlc": '[{ model = "M" }]'}, "say which property breaks, or why the guard is redundant"),
        (
            {"tlc": '[{ model = "M", property = "P", length = 3, with = ["Other"] }]'},
            "FenceIt: unknown guard Other in `with`",
        ),
    ],
)
def test_a_faulty_guard_is_refused(tmp_path: Path, fields: dict[str, str], message: str) -> None:
    path = tmp_path / "guards.toml"
    path.write_text(GUARD.format(**{"tlc": '"due"', "simulator": "due", **fields}))
    with pytest.raises(UsageError, match=re.escape(message)):
        load_guards(path)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no guard 'Fence'; .*`highwater guards --list` lists all"):
        find_guard("Fence")
    with pytest.raises(UsageError, match="no clause 'REP-99'; did you mean REP-9"):
        find_clause("REP-99")

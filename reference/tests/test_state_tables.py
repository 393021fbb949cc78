"""The state tables are complete, the code follows them, and the diagrams are up to date."""

import re
from pathlib import Path
from typing import Any

import pytest

from highwater.reference import state_diagrams as draw_states
from highwater.reference.clients.member import GroupMember, MemberState
from highwater.reference.groups.group import GROUP_TABLE, Group, GroupState
from highwater.reference.state_diagrams import TABLES, all_states, draw, reachable, states_of
from highwater.reference.state_table import InvalidTransitionError, StateTable
from highwater.reference.tests.grouped import Grouped

each_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)


@each_table
def test_every_state_is_named_and_reached(table: StateTable[Any]) -> None:
    assert set(states_of(table)) == set(all_states(table))
    assert reachable(table) == set(all_states(table))


@each_table
def test_a_transition_not_in_the_table_raises(table: StateTable[Any]) -> None:
    states = all_states(table)
    unknown = [(before, after) for before in states for after in states if (before, after) not in table.steps]
    assert unknown
    for step in unknown:
        with pytest.raises(InvalidTransitionError, match=table.name):
            table.check(*step)


@each_table
def test_every_transition_is_in_the_diagram(table: StateTable[Any]) -> None:
    drawn = draw(table)
    for (before, after), done in table.steps.items():
        assert f"    {before} --> {after}\n" in drawn
        assert f"| {before} | {after} | {done} |" in drawn


def test_the_generated_document_is_up_to_date() -> None:
    assert draw_states.FILE.read_text() == draw_states.document(), "run: python -m highwater.reference.state_diagrams"


def test_every_table_has_a_diagram() -> None:
    package = Path(draw_states.__file__).parent
    built = [path for path in package.rglob("*.py") if re.search(r"^\w+.* = StateTable\(", path.read_text(), re.M)]
    assert len(built) == len({type(table.initial).__module__ for table in TABLES})


def watched(monkeypatch: pytest.MonkeyPatch, cls: type, move: str) -> set[tuple[str, str]]:
    """Return a set that collects the transitions of all objects of the class from now on."""
    taken: set[tuple[str, str]] = set()
    original = getattr(cls, move)

    def moving(self: Any, state: Any) -> None:
        taken.add((self.state, state))
        original(self, state)

    monkeypatch.setattr(cls, move, moving)
    return taken


def simulate_busy_group() -> None:
    world = Grouped(brokers=2, min_insync_replicas=1)
    for name in ("A", "B", "C"):
        world.join(name, "cooperative-sticky")
    world.settle()
    world.world.crash(f"broker:{world.coordinating}", lose_unflushed=False)
    world.leave("A")
    world.run(3_000)
    world.members["B"].polling = False
    world.run(8_000)
    world.leave("B")
    world.leave("C")
    world.run(3_000)


def test_a_group_simulation_takes_most_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, members = watched(monkeypatch, Group, "move_to"), watched(monkeypatch, GroupMember, "_transition")
    simulate_busy_group()
    S, M = GroupState, MemberState
    assert groups >= {
        (S.EMPTY, S.PREPARING_REBALANCE),
        (S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE),
        (S.COMPLETING_REBALANCE, S.STABLE),
        (S.STABLE, S.PREPARING_REBALANCE),
        (S.PREPARING_REBALANCE, S.EMPTY),
    }
    assert groups <= set(GROUP_TABLE.steps)
    assert members >= {
        (M.UNJOINED, M.PREPARING_REBALANCE),
        (M.PREPARING_REBALANCE, M.COMPLETING_REBALANCE),
        (M.COMPLETING_REBALANCE, M.STABLE),
        (M.STABLE, M.UNJOINED),
        (M.STABLE, M.CLOSED),
    }

"""Write `reference/docs/states.md` from the state tables: `python -m highwater.reference.state_diagrams`."""

from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from highwater.reference.clients.member import MEMBER_TABLE
from highwater.reference.controller.transitions import PARTITION_TABLE, REPLICA_TABLE
from highwater.reference.groups.consumer.group import CONSUMER_MEMBER_TABLE
from highwater.reference.groups.group import GROUP_TABLE
from highwater.reference.security.sasl import SASL
from highwater.reference.state_table import StateTable
from highwater.reference.transactions.states import TABLE as TRANSACTION_TABLE

TABLES: Final[tuple[StateTable[Any], ...]] = (
    PARTITION_TABLE, REPLICA_TABLE, GROUP_TABLE, MEMBER_TABLE, CONSUMER_MEMBER_TABLE, TRANSACTION_TABLE, SASL,
)  # fmt: skip
FILE: Final = Path(__file__).parent / "docs" / "states.md"
HEAD: Final = """# States

Generated from the state tables in the code by `python -m highwater.reference.state_diagrams`.
Change the tables, not this file.
"""


def states_of(table: StateTable[Any]) -> list[StrEnum]:
    """Return the states that the table uses, in the order of the enumeration."""
    named = {state for step in table.steps for state in step}
    return [state for state in all_states(table) if state in named]


def all_states(table: StateTable[Any]) -> list[StrEnum]:
    kind: type[StrEnum] = type(table.initial)
    return list(kind)


def reachable(table: StateTable[Any]) -> set[StrEnum]:
    """Return the states that the table can reach from the initial state."""
    found = {table.initial}
    while more := {after for before, after in table.steps if before in found} - found:
        found |= more
    return found


def draw(table: StateTable[Any]) -> str:
    """Return one state table as Markdown: a Mermaid diagram and a list of its transitions."""
    arrows = [f"    {before} --> {after}" for before, after in table.steps]
    rows = [f"| {before} | {after} | {done} |" for (before, after), done in table.steps.items()]
    return "\n".join(
        [
            f"## {table.name.capitalize()}",
            "",
            f"Source: {table.source}.",
            "",
            "```mermaid",
            "stateDiagram-v2",
            f"    [*] --> {table.initial}",
            *arrows,
            "```",
            "",
            "| from | to | cause and actions |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def document() -> str:
    return "\n".join([HEAD, *(draw(table) for table in TABLES)])


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(document())

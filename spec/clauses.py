"""Load the clauses: what a broker must, should or may do, one sentence each, in `clauses/<AREA>.toml`.

Each sentence is written only there; conformance cases, fuzz oracles and audit rules cite its id.
"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec

from highwater.errors import UsageError
from highwater.names import unknown_name

FOLDER: Final = Path(__file__).with_name("clauses")


class Clause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One requirement. `since` and `until` are the first and last Kafka versions it applies to; empty is no limit."""

    id: str
    sentence: str
    level: Literal["MUST", "SHOULD", "MAY"]
    source: str
    since: str = ""
    until: str = ""

    @property
    def area(self) -> str:
        return self.id.partition("-")[0]


@cache
def load_clauses(folder: Path = FOLDER) -> dict[str, Clause]:
    """Return all clauses by id, sorted by area; raise UsageError with the file and id of an invalid clause."""
    clauses: dict[str, Clause] = {}
    for path in sorted(folder.glob("*.toml")):
        try:
            rows = msgspec.convert(tomllib.loads(path.read_text()).get("clause", []), list[Clause])
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise UsageError(f"not a list of clauses: {error}", where=str(path), hint="see spec/clauses.py") from error
        for clause in rows:
            _check(clause, path, clauses)
            clauses[clause.id] = clause
    return clauses


def find_clause(clause_id: str) -> Clause:
    """Return one clause; raise UsageError with near ids if there is none."""
    clauses = load_clauses()
    if clause_id not in clauses:
        raise unknown_name("clause", clause_id, clauses, "highwater conform --list")
    return clauses[clause_id]


def _check(clause: Clause, path: Path, known: dict[str, Clause]) -> None:
    if not re.fullmatch(rf"{path.stem}-[1-9]\d*", clause.id):
        raise UsageError(f"{clause.id} is not {path.stem}-<number>", where=str(path), hint="number it in its area")
    if clause.id in known:
        raise UsageError(f"{clause.id} is defined twice", where=str(path), hint="give one of them a new number")
    if not clause.sentence.endswith("."):
        raise UsageError(f"{clause.id} is not a sentence", where=str(path), hint="end it with a full stop")

"""Load and validate the guards of `guards.toml`."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from highwater.errors import UsageError
from highwater.names import unknown_name
from highwater.spec.models import FAST, Profile

FILE: Final = Path(__file__).with_name("guards.toml")
DUE: Final = "due"
NONE_BECAUSE: Final = "none, because "


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model without the guard, and the expected result of TLC.

    Either the property `breaks` (in the file: `property`) is violated by a counterexample of `length` states, with the
    initial state; or the guard is `redundant` in this model, for the reason in that field, and every property holds in
    all `states` (distinct).  `constants` replace those of the model; `also_off` (in the file: `with`) are guards that
    must be off too.
    """

    model: str
    breaks: str = msgspec.field(name="property", default="")
    length: int = 0
    redundant: str = ""
    states: int = -1
    constants: dict[str, int | str] = {}
    also_off: tuple[str, ...] = msgspec.field(name="with", default=())
    profile: Profile = FAST

    def __post_init__(self) -> None:
        if bool(self.breaks) == bool(self.redundant):
            raise ValueError("say which property breaks, or why the guard is redundant, but not both")

    @property
    def text(self) -> str:
        together = f" with {', '.join(self.also_off)}" if self.also_off else ""
        return f"{self.breaks}, {self.length} states{together}" if self.breaks else "redundant"


class Witnesses(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What detects that the guard is missing: a text, `due` (not built yet), or `none, because ...`."""

    simulator: str
    audit: str
    conformance: str


class Guard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One essential rule of the protocol; `id` is an operator of the modules whose models `tlc` names."""

    id: str
    rule: str
    below: str
    source: str
    clauses: tuple[str, ...]
    witnesses: Witnesses
    tlc: tuple[Mutant, ...] | str

    @property
    def mutants(self) -> tuple[Mutant, ...]:
        return self.tlc if isinstance(self.tlc, tuple) else ()

    @property
    def switch(self) -> str:
        """Return the name of its field in `highwater.reference.guards.Guards`."""
        return re.sub(r"(?<=[A-Za-z0-9])(?=[A-Z])", "_", self.id).lower()

    @property
    def texts(self) -> dict[str, str]:
        """Return all four witnesses as text, by `tlc`, `simulator`, `audit` and `conformance`."""
        shown = self.tlc if isinstance(self.tlc, str) else "; ".join(dict.fromkeys(mutant.text for mutant in self.tlc))
        return {"tlc": shown, **msgspec.structs.asdict(self.witnesses)}


@cache
def load_guards(path: Path = FILE) -> dict[str, Guard]:
    """Return all guards by id, in the order of the file; raise UsageError with the invalid row and the reason."""
    try:
        rows = msgspec.convert(tomllib.loads(path.read_text())["guard"], list[Guard])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, KeyError) as error:
        raise UsageError(f"not a list of guards: {error}", where=str(path), hint="see the head of the file") from error
    guards: dict[str, Guard] = {}
    for row in rows:
        if row.id in guards:
            raise UsageError(f"{row.id} is defined twice", where=str(path), hint="keep one of them")
        for witness, text in row.texts.items():
            if not text.strip() or text == NONE_BECAUSE.strip():
                raise UsageError(
                    f"{row.id}: the text of witness {witness} is empty",
                    where=str(path),
                    hint="say what detects it, or why nothing does",
                )
        guards[row.id] = row
    for row in guards.values():
        for other in (guard_id for mutant in row.mutants for guard_id in mutant.also_off if guard_id not in guards):
            raise UsageError(f"{row.id}: unknown guard {other} in `with`", where=str(path), hint="correct the name")
    return guards


def find_guard(name: str) -> Guard:
    """Return a guard by its id, such as `TruncateByEpoch`; raise UsageError with near names if there is none."""
    guards = load_guards()
    if name not in guards:
        raise unknown_name("guard", name, guards, "highwater guards --list")
    return guards[name]

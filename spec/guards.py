"""The guards: `guards.toml`, loaded and validated."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from spec.formats.verdict import UsageError

FILE: Final = Path(__file__).with_name("guards.toml")
DUE: Final = "due"
NONE_BECAUSE: Final = "none, because "


class Counterexample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What TLC shows when the guard is off: the broken property, and the states up to there, the first included.

    `bounds` replaces constants of the model's cfg, in which each bound that is not named is the least;
    `cfg` names a committed configuration instead.
    """

    property: str
    length: int
    bounds: dict[str, int] = {}
    cfg: str = ""


class Witnesses(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What shows that the guard is missing: a text, `due`, or `none, because ...`."""

    simulator: str
    audit: str
    conformance: str


class Guard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One load-bearing rule. `model` is a row of the manifest whose module has the constant `id`."""

    id: str
    rule: str
    below: str
    source: str
    clauses: tuple[str, ...]
    witnesses: Witnesses
    tlc: Counterexample | str
    model: str = ""

    @property
    def switch(self) -> str:
        """Its name in `reference.guards.Guards`."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.id).lower()

    @property
    def texts(self) -> dict[str, str]:
        """All four witnesses as text."""
        shown = self.tlc
        if isinstance(shown, Counterexample):
            shown = f"{shown.property}, {shown.length} states"
        return {"tlc": shown, **msgspec.structs.asdict(self.witnesses)}


@cache
def load_guards(path: Path = FILE) -> dict[str, Guard]:
    """All guards by id, in the order of the file; UsageError says which row is wrong and why."""
    try:
        rows = msgspec.convert(tomllib.loads(path.read_text())["guard"], list[Guard])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, KeyError) as error:
        raise UsageError(f"not a list of guards: {error}", where=str(path), mend="see the head of the file") from error
    guards: dict[str, Guard] = {}
    for row in rows:
        if row.id in guards:
            raise UsageError(f"{row.id} is there twice", where=str(path), mend="keep one of them")
        for witness, text in row.texts.items():
            if not text.strip() or text == NONE_BECAUSE.strip():
                raise UsageError(f"{row.id}: witness {witness} says nothing", where=str(path), mend="say why")
        if isinstance(row.tlc, Counterexample) and not row.model:
            raise UsageError(f"{row.id}: tlc without model", where=str(path), mend="name a row of manifest.toml")
        guards[row.id] = row
    return guards


def find_guard(name: str) -> Guard:
    """By id or switch; UsageError lists the known ones."""
    guards = load_guards()
    for guard in guards.values():
        if name in {guard.id, guard.switch}:
            return guard
    raise UsageError(f"no guard {name!r}", mend=f"known: {', '.join(guards)}")

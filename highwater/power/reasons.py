"""Why a mutant is not killed: it is equivalent to the broker, or a judge has no check for it."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from highwater.mutants.table import NamedMutant

FOLDER: Final = Path(__file__).parent
EQUIVALENT: Final = FOLDER / "equivalent.toml"
SURVIVORS: Final = FOLDER / "survivors.toml"


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a mutant is not killed; `name` for a written one, module and both texts of the line for a generated one.

    `judge` is empty for a mutant that is equivalent to the broker. `out_of_reach`: no run of the judge can notice it.
    """

    reason: str
    judge: str = ""
    out_of_reach: bool = False
    module: str = ""
    before: str = ""
    after: str = ""
    name: str = ""


def equivalents() -> list[Reason]:
    """Read the list of mutants that no client can distinguish from the broker."""
    return _reasons(EQUIVALENT)


def survivors(judge: str) -> list[Reason]:
    """Read the list of mutants that a client could notice and that no check of a judge kills."""
    return [reason for reason in _reasons(SURVIVORS) if reason.judge == judge]


def _reasons(path: Path) -> list[Reason]:
    return msgspec.convert(tomllib.loads(path.read_text()).get("mutant", []), list[Reason])


def reason_of(mutant: NamedMutant, known: Iterable[Reason]) -> str:
    """Return why a mutant is in the list; empty if it is not."""
    module, before, after = mutant.identity
    short = module.removeprefix("highwater.reference.")
    for reason in known:
        if reason.name == mutant.name or (
            not reason.name and (reason.module, reason.before, reason.after) == (short, before, after)
        ):
            return reason.reason
    return ""

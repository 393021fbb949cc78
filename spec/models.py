"""Load the models of `manifest.toml`, and build the TLC configuration of a row or of a mutant."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec

from highwater.errors import UsageError

FOLDER: Final = Path(__file__).parent
MANIFEST: Final = FOLDER / "manifest.toml"
CONTRACTS: Final = FOLDER / "contracts"

Profile = Literal["fast", "deep", "soak"]
PROFILES: Final[tuple[Profile, ...]] = ("fast", "deep", "soak")
FAST: Final[Profile] = "fast"
# The lines of a cfg that list invariants and properties.
CLAIMS: Final = re.compile(r"(?m)^(INVARIANT|PROPERT)(?:S|Y|IES)? +(.+)\n?")


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of `manifest.toml`; the comment at the top of that file explains the fields."""

    name: str
    module: str
    cfg: str
    claim: str
    bounds: str
    constants: dict[str, int | str] = {}
    states: int = -1
    depth: int = -1
    seconds: int = 0
    profile: Profile = FAST
    simulate: tuple[int, int, int] | None = None
    idle: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()
    mutants: dict[str, int | str] = {}

    @property
    def folder(self) -> str:
        return Path(self.module).parent.name

    @property
    def path(self) -> Path:
        return FOLDER / self.module

    def config(self) -> str:
        """Return the text of the cfg file, with the constants of the row."""
        return with_constants((FOLDER / self.cfg).read_text(), self.constants, where=f"manifest.toml, {self.name}")

    def claims(self) -> dict[str, str]:
        """Return the kind of each invariant and property of the cfg, by name: "INVARIANT" or "PROPERTY"."""
        kinds = {"INVARIANT": "INVARIANT", "PROPERT": "PROPERTY"}
        found = CLAIMS.findall((FOLDER / self.cfg).read_text())
        return {name: kinds[kind] for kind, names in found for name in names.split()}


@cache
def load_models() -> dict[str, Model]:
    """Return all rows by name, in the order of the file; raise UsageError if the file is invalid."""
    try:
        rows = msgspec.convert(tomllib.loads(MANIFEST.read_text())["model"], list[Model])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(
            f"not a manifest: {error}", where=str(MANIFEST), hint="see spec/models.py, class Model"
        ) from error
    return {row.name: row for row in rows}


def owners_of(model: Model) -> dict[str, str]:
    """Return the process of each variable that belongs to one, for pictures: `[processes.MODULE]` in the manifest."""
    processes = tomllib.loads(MANIFEST.read_text()).get("processes", {}).get(model.path.stem, {})
    return {variable: process for process, variables in processes.items() for variable in variables}


def check_names(model: Model) -> None:
    """Raise UsageError if `idle` or `reached` names an action or predicate that none of the modules defines."""
    text = "\n".join(path.read_text() for path in modules_of(model.path))
    for name in (*model.idle, *model.reached):
        if not re.search(rf"(?m)^{name}(\(.*\))? *==", text):
            raise UsageError(
                f"{model.name}: no action or predicate {name}", where=str(MANIFEST), hint=f"see {model.module}"
            )


def find_model(name: str, *, referrer: str) -> Model:
    """Return a row by name; raise UsageError if there is none. `referrer` names the guard in that message."""
    if name not in load_models():
        raise UsageError(f"{referrer}: no model {name!r}", where="guards.toml", hint="name a row of manifest.toml")
    return load_models()[name]


def with_constants(config: str, constants: Mapping[str, int | str], *, where: str) -> str:
    """Return the cfg text with other values; raise UsageError if it does not have one of the constants."""
    for name, value in constants.items():
        config, replaced = re.subn(rf"(?m)^(\s*{name}) *(?:=|<-) *.*$", rf"\1 = {value}", config)
        if replaced != 1:
            raise UsageError(f"no constant {name}", where=where, hint="correct the name, or the model's cfg")
    return config


def with_only(config: str, claim: str, kind: str) -> str:
    """Return the cfg text with this invariant or property as the only one."""
    return f"{CLAIMS.sub('', config).rstrip()}\n{kind} {claim}\n"


def modules_of(module: Path) -> list[Path]:
    """Return the module and all modules of this project that it extends or instantiates, directly or indirectly."""
    known = {path.stem: path for folder in (CONTRACTS, module.parent) for path in folder.glob("*.tla")}
    found: dict[str, Path] = {}
    to_read = [module.stem]
    while to_read:
        name = to_read.pop()
        if name in found:
            continue
        found[name] = known[name]
        to_read += [imported for imported in imports(known[name].read_text()) if imported in known]
    return [found[name] for name in sorted(found)]


def imports(text: str) -> set[str]:
    """Return the names of the modules that a TLA+ text extends or instantiates."""
    extended = re.findall(r"(?m)^EXTENDS +(.+)$", text)
    return {name.strip() for line in extended for name in line.split(",")} | set(re.findall(r"INSTANCE +(\w+)", text))

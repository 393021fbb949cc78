"""The tables of README.md, made from `manifest.toml` and `guards.toml`: `python -m spec.table` writes them anew."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spec.guards import Guard, Mutant, load_guards
from spec.models import Model, find_model, load_models

README: Final = Path(__file__).with_name("README.md")
PLACE: Final = "<!-- {name}: python -m spec.table -->\n{body}<!-- end -->"


def models_table() -> str:
    """One row for each model: what it claims, how far it was searched, and how many guards it shows."""
    head = "| model | claim | bounds | states | depth | seconds | guards |\n|---|---|---|---|---|---|---|\n"
    return head + "".join(_model_row(model) for model in load_models().values())


def _model_row(model: Model) -> str:
    shown = [mutant for _, mutant in mutants() if mutant.model == model.name]
    killed = len([mutant for mutant in shown if mutant.breaks])
    profile = "" if model.profile == "fast" else f" ({model.profile})"
    states = "random walks" if model.simulate else f"{model.states:,}"
    depth = "" if model.simulate else str(model.depth)
    guards = f"{killed} of {len(shown)}" if shown else ""
    cells = (f"`{model.name}`{profile}", model.claim, model.bounds, states, depth, str(model.seconds), guards)
    return f"| {' | '.join(cells)} |\n"


def guards_table() -> str:
    """One row for each mutant: what breaks without the guard, and after how many states."""
    head = "| guard off | in | breaks | after |\n|---|---|---|---|\n"
    return head + "".join(_guard_row(guard, mutant) for guard, mutant in mutants())


def _guard_row(guard: Guard, mutant: Mutant) -> str:
    name = " and ".join(f"`{each}`" for each in (guard.id, *mutant.also_off))
    folder = find_model(mutant.model, asked_by=guard.id).folder
    seen = f"`{mutant.breaks}`" if mutant.breaks else f"nothing: {mutant.redundant}"
    after = str(mutant.length) if mutant.breaks else f"{mutant.states:,} states"
    return f"| {name} | {folder} | {seen} | {after} |\n"


def mutants() -> Iterator[tuple[Guard, Mutant]]:
    for guard in load_guards().values():
        yield from ((guard, mutant) for mutant in guard.mutants)


TABLES: Final = {"models": models_table, "guards": guards_table}


def filled(text: str) -> str:
    """The text with every table made anew."""
    for name, table in TABLES.items():
        mark = re.escape(f"<!-- {name}: python -m spec.table -->")
        body = PLACE.format(name=name, body=table())
        text, found = re.subn(rf"(?s){mark}.*?<!-- end -->", lambda _, body=body: body, text)  # type: ignore[misc]
        assert found == 1, f"README.md has no place for {name}"
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))

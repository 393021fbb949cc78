"""Generate the tables of README.md from `manifest.toml` and `guards.toml`: run `python -m highwater.spec.tables`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from highwater.spec.guards import Guard, Mutant, load_guards
from highwater.spec.models import Model, find_model, load_models

README: Final = Path(__file__).with_name("README.md")
SECTION: Final = "<!-- {name}: python -m highwater.spec.tables -->\n{body}<!-- end -->"


def models_table() -> str:
    """Return the Markdown table of the models: claim, bounds, size of the search, and number of mutants."""
    head = "| model | claim | bounds | states | depth | seconds | guards |\n|---|---|---|---|---|---|---|\n"
    return head + "".join(_model_row(model) for model in load_models().values())


def _model_row(model: Model) -> str:
    own_mutants = [mutant for _, mutant in mutants() if mutant.model == model.name]
    killed = len([mutant for mutant in own_mutants if mutant.breaks])
    profile = "" if model.profile == "fast" else f" ({model.profile})"
    states = "random walks" if model.simulate else f"{model.states:,}"
    depth = "" if model.simulate else str(model.depth)
    guards = f"{killed} of {len(own_mutants)}" if own_mutants else ""
    cells = (f"`{model.name}`{profile}", model.claim, model.bounds, states, depth, str(model.seconds), guards)
    return f"| {' | '.join(cells)} |\n"


def guards_table() -> str:
    """Return the Markdown table of the mutants: the property that breaks, and the counterexample's length in states."""
    head = "| guard off | in | breaks | after |\n|---|---|---|---|\n"
    return head + "".join(_guard_row(guard, mutant) for guard, mutant in mutants())


def _guard_row(guard: Guard, mutant: Mutant) -> str:
    name = " and ".join(f"`{guard_id}`" for guard_id in (guard.id, *mutant.also_off))
    folder = find_model(mutant.model, referrer=guard.id).folder
    breaks = f"`{mutant.breaks}`" if mutant.breaks else f"nothing: {mutant.redundant}"
    after = str(mutant.length) if mutant.breaks else f"{mutant.states:,} states"
    return f"| {name} | {folder} | {breaks} | {after} |\n"


def mutants() -> Iterator[tuple[Guard, Mutant]]:
    """Yield every mutant with its guard, in the order of `guards.toml`."""
    for guard in load_guards().values():
        yield from ((guard, mutant) for mutant in guard.mutants)


TABLES: Final = {"models": models_table, "guards": guards_table}


def update_tables(text: str) -> str:
    """Return the text of README.md with every table regenerated."""
    for name, table in TABLES.items():
        mark = re.escape(f"<!-- {name}: python -m highwater.spec.tables -->")
        body = SECTION.format(name=name, body=table())
        text, replaced = re.subn(rf"(?s){mark}.*?<!-- end -->", lambda _, body=body: body, text)  # type: ignore[misc]
        assert replaced == 1, f"README.md has no place for {name}"
    return text


if __name__ == "__main__":
    README.write_text(update_tables(README.read_text()))

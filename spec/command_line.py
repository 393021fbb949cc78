"""`highwater spec`, `guards` and `doctor`. Imports stay light here: a command line starts often."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec.formats.verdict import EXIT_OF_VERDICT, ExitCode, worst

if TYPE_CHECKING:
    from spec.check import ModelResult, Update
    from spec.trace import EntityVerdict, TraceVerdict

spec_app = typer.Typer(no_args_is_help=True, help="The TLA+ models: check them, and hold traces to them.")

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@spec_app.command("check")
def check_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL|GUARD]...", help="Folder, model or guard.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processor cores; 0 is all.")] = 0,
    guards: Annotated[bool, typer.Option("--guards/--no-guards", help="Also the mutants, one for each guard.")] = True,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore results of earlier runs.")] = False,
    json_: JsonOption = False,
) -> None:
    """Model check: every model must hold, and each guard's absence must break what guards.toml says.

    A guard that is named shows its counterexample as a story. Exit code 1 if anything is not as expected.

    Examples: highwater spec check · highwater spec check TruncateByEpoch · highwater spec check MCHwTruncation_deep
    """
    from spec.check import check

    models, mutants = _chosen(names or [], guards=guards)
    with _progress(quiet=json_) as update:
        results = check(models, mutants, update, jobs=jobs, fresh=fresh)
    if json_:
        _print_json(summary(results))
    else:
        told = set(mutants or ()) if names else set()
        for result in results:
            _print_story(result, always=result.guard in told)
        _print_totals(results)
    raise typer.Exit(EXIT_OF_VERDICT[worst([result.verdict for result in results])])


def _chosen(names: Sequence[str], *, guards: bool) -> tuple[list[str] | None, list[str] | None]:
    """Models and guards to run; None is all. A folder's name brings its mutants along."""
    from spec.check import load_models
    from spec.guards import load_guards

    if not names:
        return None, None if guards else []
    known = load_guards()
    folders = {model.folder for model in load_models().values()}
    mutants = [guard.id for name in names for guard in known.values() if name in {guard.id, guard.switch}]
    models = [name for name in names if not any(name in {guard.id, guard.switch} for guard in known.values())]
    if guards:
        of_folders = [name for name in models if name in folders]
        rows = load_models()
        mutants += [g.id for g in known.values() if g.model in rows and rows[g.model].folder in of_folders]
    return models, list(dict.fromkeys(mutants))


def summary(results: "Sequence[ModelResult]") -> dict[str, Any]:
    """What `--json` prints: design.md, section 4."""
    return {
        "models": [
            {
                "model": result.model,
                "verdict": result.verdict,
                "states": result.outcome.distinct if result.outcome.distinct >= 0 else result.outcome.generated,
                "depth": result.outcome.depth,
                "seconds": round(result.outcome.seconds, 1),
            }
            for result in results
            if not result.guard
        ],
        "guards": [
            {
                "guard": result.guard,
                "model": result.model,
                "expected": "violated",
                "seen": result.seen,
                "property": result.outcome.broken,
                "length": len(result.outcome.trace),
            }
            for result in results
            if result.guard
        ],
    }


@contextmanager
def _progress(*, quiet: bool) -> "Iterator[Update]":
    """Finished runs go to standard output, running ones to a terminal's standard error."""

    def finished(result: "ModelResult") -> None:
        if not quiet:
            typer.echo(_line(result))

    if quiet or not sys.stderr.isatty():
        yield lambda name, progress, result: finished(result) if result else None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def update(name: str, progress: Any, result: "ModelResult | None") -> None:
            if result is not None:
                if name in tasks:
                    bar.remove_task(tasks.pop(name))
                finished(result)
                return
            tasks.setdefault(name, bar.add_task(name) if name not in tasks else None)
            rate = progress.distinct / progress.seconds if progress.seconds else 0
            text = f"{name}: {progress.distinct:,} states, {rate:,.0f}/s, {progress.queue:,} to go"
            bar.update(tasks[name], description=text)

        yield update


def _line(result: "ModelResult") -> str:
    outcome = result.outcome
    when = f"{outcome.seconds:.1f} s" + (", cached" if result.cached else "")
    mark = {"valid": "ok", "invalid": "FAILS"}.get(result.verdict, "unknown")
    if result.guard:
        seen = f"{outcome.broken} broken in {len(outcome.trace)} states" if outcome.trace else outcome.reason or "holds"
        return f"{mark:8}without {result.guard:24} {seen} ({when})"
    counts = f"{outcome.distinct:,} states, depth {outcome.depth}" if outcome.distinct >= 0 else ""
    walked = f"{outcome.generated:,} states in random walks" if not counts else ""
    said = outcome.reason if result.verdict == "unknown" else outcome.broken or counts or walked
    if result.states not in {-1, outcome.distinct} and not outcome.broken:
        said += f", but manifest.toml says {result.states:,}: find out why, or correct it"
    return f"{mark:8}{result.model:32} {said} ({when})"


def _print_story(result: "ModelResult", *, always: bool) -> None:
    """Whatever was not expected, and the mutants that were asked for by name."""
    if result.verdict == "valid" and not always:
        return
    if result.expected and result.verdict != "valid":
        expected = f"{result.expected.property} broken in {result.expected.length} states"
        typer.echo(f"\nwithout {result.guard}: expected {expected}")
    if result.outcome.trace:
        rule = f", without {result.guard}" if result.guard else ""
        typer.echo(f"\n{result.model}{rule}: {result.outcome.broken} breaks like this\n{result.story()}")


def _print_totals(results: "Sequence[ModelResult]") -> None:
    models = [result for result in results if not result.guard]
    mutants = [result for result in results if result.guard]
    good = [sum(result.verdict == "valid" for result in each) for each in (models, mutants)]
    typer.echo(f"{good[0]} of {len(models)} models hold, {good[1]} of {len(mutants)} mutants break as expected")


@spec_app.command("trace")
def trace_command(
    file: Annotated[Path, typer.Argument(help="A trace.ndjson of a run.")],
    model: Annotated[str, typer.Option(help="Which model to hold it to.")] = "hw_truncation",
    json_: JsonOption = False,
) -> None:
    """Is what a broker did a behaviour of the spec? Names the first line that is not.

    Examples: highwater simulate --seeds 3:4 --trace run.ndjson; highwater spec trace run.ndjson
    """
    from spec.trace import validate_trace

    found = validate_trace(file, model)
    if json_:
        _print_json(_trace_summary(found))
    else:
        for entity in found.entities:
            typer.echo(_entity_text(entity))
    raise typer.Exit(EXIT_OF_VERDICT[found.verdict])


def _trace_summary(found: "TraceVerdict") -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "model": found.model,
        "entities": [
            {"entity": e.entity, "verdict": e.verdict, "steps": e.steps, "line": e.line, "reason": e.reason}
            for e in found.entities
        ],
    }


def _entity_text(entity: "EntityVerdict") -> str:
    words = {"valid": "accepted", "invalid": "refused"}.get(entity.verdict, "unknown")
    head = f"{entity.entity}: {words}, {entity.steps} steps in {entity.seconds:.1f} s"
    if entity.line is not None:
        head += f"\n  line {entity.line}: {entity.reason}"
    elif entity.reason:
        head += f"\n  {entity.reason}"
    return "\n".join([head, *(f"  before: {line}" for line in entity.before)])


def guards_command(json_: JsonOption = False) -> None:
    """The matrix: each guard and what shows its absence, in the models, the simulator, the auditor and the suite.

    Examples: highwater guards · highwater guards --json
    """
    from spec.guards import load_guards

    guards = load_guards().values()
    if json_:
        rows = [{"guard": g.id, "rule": g.rule, "source": g.source, "witnesses": g.texts} for g in guards]
        _print_json({"guards": rows})
        return
    _print_table(["guard", "model", "simulator", "audit", "suite"], [[g.id, *g.texts.values()] for g in guards])


def doctor_command(json_: JsonOption = False) -> None:
    """Every capability of this machine: whether it is there, what it is for, how to get it.

    Exit code 2 if what the main job needs is missing.

    Examples: highwater doctor · highwater doctor --json
    """
    from spec.doctor import capabilities

    found = capabilities()
    if json_:
        import dataclasses

        _print_json({"capabilities": [dataclasses.asdict(each) for each in found]})
    else:
        rows = [
            [each.name, "yes" if each.present else "no", each.detail, "" if each.present else f"{each.why}; {each.how}"]
            for each in found
        ]
        _print_table(["capability", "", "found", "what it is for, how to get it"], rows)
    raise typer.Exit(ExitCode.HELD if all(each.present for each in found if each.needed) else ExitCode.USAGE)


def _print_table(head: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*head, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    # Not a terminal: as wide as it takes, so that no name is cut.
    Console(width=None if sys.stdout.isatty() else 240).print(table)


def _print_json(value: Any) -> None:
    import msgspec

    encode: Callable[[Any], bytes] = msgspec.json.encode
    typer.echo(encode(value).decode())

"""`highwater spec`, `guards` and `doctor`. Imports stay light here: a command line starts often."""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec.formats.verdict import EXIT_OF_VERDICT, ExitCode, UsageError, worst

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
    profile: Annotated[str, typer.Option(help="fast; deep: also what takes half an hour; soak: everything.")] = "fast",
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore results of earlier runs.")] = False,
    json_: JsonOption = False,
) -> None:
    """Model check: every model must hold, and each guard's absence must break what guards.toml says.

    A guard that is named shows its counterexample as a story. Exit code 1 if anything is not as expected.

    Examples: highwater spec check · highwater spec check TruncateByEpoch · highwater spec check MCHwTruncation_deep
    """
    from spec.check import check
    from spec.models import PROFILES

    depth = next((each for each in PROFILES if each == profile), None)
    if depth is None:
        raise UsageError(f"no profile {profile!r}", mend=f"known: {', '.join(PROFILES)}")
    models, mutants, told = _chosen(names or [], guards=guards)
    with _progress(quiet=json_) as update:
        results = check(models, mutants, update, profile=depth, jobs=jobs, fresh=fresh)
    if json_:
        _print_json(summary(results, told))
    else:
        for result in results:
            _print_story(result, always=result.guard in told)
        _print_totals(results)
    raise typer.Exit(EXIT_OF_VERDICT[worst([result.verdict for result in results])])


def _chosen(names: Sequence[str], *, guards: bool) -> tuple[list[str] | None, list[str] | None, set[str]]:
    """Models and guards to run, None is all, and the guards that were asked for by name.

    A folder's name brings its mutants along.
    """
    from spec.check import guards_of
    from spec.guards import load_guards
    from spec.models import load_models

    if not names:
        return None, None if guards else [], set()
    known = {name: guard.id for guard in load_guards().values() for name in (guard.id, guard.switch)}
    asked = [known[name] for name in names if name in known]
    models = [name for name in names if name not in known]
    folders = {model.folder for model in load_models().values()}.intersection(models) if guards else set()
    brought = [guard.id for folder in sorted(folders) for guard in guards_of(folder)]
    return models, list(dict.fromkeys([*asked, *brought])), set(asked)


def summary(results: "Sequence[ModelResult]", told: Collection[str] = ()) -> dict[str, Any]:
    """What `--json` prints: design.md, section 4. Guards of `told` and whatever was not expected bring their steps."""
    return {
        "models": [
            {
                "model": result.model.name,
                "verdict": result.verdict,
                "states": result.outcome.distinct if result.outcome.distinct >= 0 else result.outcome.generated,
                "depth": result.outcome.depth,
                "seconds": round(result.outcome.seconds, 1),
                "faults": result.faults,
                **_steps(result, told),
            }
            for result in results
            if not result.guard
        ],
        "guards": [
            {
                "guard": result.guard,
                "model": result.model.name,
                "expected": "holds" if result.mutant and result.mutant.redundant else "violated",
                "seen": result.seen,
                "property": result.outcome.broken,
                "length": len(result.outcome.trace),
                "also_off": result.mutant.also_off if result.mutant else (),
                "states": result.outcome.distinct,
                "seconds": round(result.outcome.seconds, 1),
                "faults": result.faults,
                **_steps(result, told),
            }
            for result in results
            if result.guard
        ],
    }


def _steps(result: "ModelResult", told: Collection[str]) -> dict[str, Any]:
    """A counterexample, step by step, where somebody wants to see it."""
    from dataclasses import asdict

    from spec.story import story

    shown = result.outcome.trace and (result.faults or result.guard in told)
    return {"steps": [asdict(beat) for beat in story(result.outcome.trace)]} if shown else {}


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
    counts = f"{outcome.distinct:,} states, depth {outcome.depth}" if outcome.distinct >= 0 else ""
    walked = f"{outcome.generated:,} states in random walks"
    said = outcome.reason if result.verdict == "unknown" else "; ".join(result.faults) or counts or walked
    if result.mutant is None:
        return f"{mark:8}{result.model.name:32} {said} ({when})"
    if outcome.trace and not result.faults:
        said = f"{outcome.broken} broken in {len(outcome.trace)} states"
    elif not result.faults and result.mutant.redundant:
        said = f"redundant: holds in {outcome.distinct:,} states"
    together = " and ".join([result.guard, *result.mutant.also_off])
    return f"{mark:8}without {together:24} {said} ({result.model.name}, {when})"


def _print_story(result: "ModelResult", *, always: bool) -> None:
    """Whatever was not expected, and the mutants that were asked for by name."""
    if result.outcome.trace and (always or result.verdict != "valid"):
        rule = f", without {result.guard}" if result.guard else ""
        typer.echo(f"\n{result.model.name}{rule}: {result.outcome.broken} breaks like this\n{result.story()}")


def _print_totals(results: "Sequence[ModelResult]") -> None:
    models = [result for result in results if not result.guard]
    mutants = [result for result in results if result.guard]
    good = [sum(result.verdict == "valid" for result in each) for each in (models, mutants)]
    guards = len({result.guard for result in mutants})
    typer.echo(
        f"{good[0]} of {len(models)} models hold, {good[1]} of {len(mutants)} mutants as expected, guards: {guards}"
    )


@spec_app.command("prove")
def prove_command(
    names: Annotated[list[str] | None, typer.Argument(metavar="[PROTOCOL]...", help="All, if none is named.")] = None,
    seed: Annotated[int, typer.Option(help="Of z3's own chance.")] = 0,
    drops: Annotated[bool, typer.Option("--drops", help="Also each protocol without each of its guards.")] = False,
    profile: Annotated[str, typer.Option(help="fast; deep: also --drops, --research, comparisons with TLA+.")] = "fast",
    research: Annotated[
        bool, typer.Option("--research", help="Also crashes that lose a suffix inside the ISR.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Prove the protocols for any number of brokers, members, partitions, offsets and epochs, with z3.

    Exit code 0 only if all are proved, research apart; what is open shows a counterexample to induction. A guard that
    is dropped must break a promise, or be proved to be redundant; a protocol that is named tells how.

    Examples: highwater spec prove · highwater spec prove isr_commit --drops
    """
    from spec.models import PROFILES
    from spec.proofs import report
    from spec.proofs.running import run, run_research

    if profile not in PROFILES:
        raise UsageError(f"no profile {profile!r}", mend=f"known: {', '.join(PROFILES)}")
    deep, wanted = profile != "fast", names or [*report.PROTOCOLS, report.RESEARCH]
    protocols = [report.load(name) for name in wanted]
    proved = [each for each in protocols if each.name != report.RESEARCH]
    say = (lambda line: None) if json_ else typer.echo
    proofs, dropped, verdict = run(proved, say, seed=seed, drops=drops, deep=deep, told=bool(names))
    asked = research or deep or report.RESEARCH in (names or ())
    found = run_research(say, seed=seed, asked=asked) if asked or not names else {}
    if json_:
        _print_json({**report.summary(proofs, dropped), "research": found})
    raise typer.Exit(EXIT_OF_VERDICT[verdict])


@spec_app.command("draw")
def draw_command(
    name: Annotated[str, typer.Argument(metavar="GUARD|MODEL", help="What to draw; see highwater guards.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Default: NAME.svg.")] = None,
    states: Annotated[int, typer.Option(help="Of a model: at most so many states.")] = 40,
) -> None:
    """A picture (SVG): of a guard the counterexample without it, of a model its first states.

    Examples: highwater spec draw TruncateByEpoch · highwater spec draw MCHwTruncation --states 25 -o states.svg
    """
    from spec.check import check, known_names
    from spec.draw import draw_counterexample, draw_states
    from spec.guards import load_guards
    from spec.models import load_models

    guards = {key: guard.id for guard in load_guards().values() for key in (guard.id, guard.switch)}
    if name in guards:
        results = check(models=[], guards=[guards[name]], jobs=1)
        picture = draw_counterexample(next((each for each in results if each.outcome.trace), results[0]))
    elif name in load_models():
        picture = draw_states(load_models()[name], states)
    else:
        raise UsageError(f"no model or guard {name!r}", mend=f"known: {', '.join(known_names())}")
    path = out or Path(f"{name}.svg")
    path.write_text(picture)
    typer.echo(f"wrote {path}")


@spec_app.command("trace")
def trace_command(
    file: Annotated[Path, typer.Argument(help="A trace.ndjson of a run, or a folder of processes' traces.")],
    model: Annotated[
        str | None, typer.Option(help="Which model to hold it to; every one that fits, if not told.")
    ] = None,
    entity: Annotated[str | None, typer.Option(help="Which partition (t-0) or group; all, if not told.")] = None,
    json_: JsonOption = False,
) -> None:
    """Is what a broker did a behaviour of the spec? Names the first line that is not.

    Examples: highwater simulate --seeds 3:4 --trace run.ndjson; highwater spec trace run.ndjson
    · highwater broker --cluster 3 --trace traces; highwater spec trace traces
    """
    from spec.trace import validate_trace

    found = validate_trace(file, model, entity=entity)
    if json_:
        _print_json(_trace_summary(found))
    else:
        for each in found.entities:
            typer.echo(_entity_text(each))
    raise typer.Exit(EXIT_OF_VERDICT[found.verdict])


def _trace_summary(found: "TraceVerdict") -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "entities": [
            {
                "entity": e.entity,
                "model": e.model,
                "verdict": e.verdict,
                "steps": e.steps,
                "file": e.file,
                "line": e.line,
                "reason": e.reason,
            }
            for e in found.entities
        ],
    }


def _entity_text(entity: "EntityVerdict") -> str:
    words = {"valid": "accepted", "invalid": "refused"}.get(entity.verdict, "unknown")
    head = f"{entity.entity} {entity.model}: {words}, {entity.steps} steps in {entity.seconds:.1f} s"
    if entity.line is not None:
        head += f"\n  {entity.file}, line {entity.line}: {entity.reason}"
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

"""The commands `highwater spec`, `guards` and `doctor`. Heavy imports are inside functions to keep start-up fast."""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from highwater.errors import EXIT_OF_VERDICT, UsageError, worst
from highwater.names import hanging, print_names, unknown_name

if TYPE_CHECKING:
    from highwater.spec.check import ModelResult, Update

spec_app = typer.Typer(
    no_args_is_help=True, help="Check the TLA+ models, prove protocols, and validate traces against the models."
)

CHECKS: Final = ("model", "simulator", "audit", "suite")
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]


@spec_app.command("check")
def check_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL|GUARD]...", help="Folders, models or guards; all if none is named."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processor cores; 0 is all.")] = 0,
    guards: Annotated[
        bool, typer.Option("--guards/--no-guards", help="Also check the mutants: each model without one of its guards.")
    ] = True,
    profile: Annotated[str, typer.Option(help="fast; deep: also runs of up to half an hour; soak: all runs.")] = "fast",
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore cached results.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the models and what each claims; run none.")] = False,
    json_: JsonOption = False,
) -> None:
    """Model check: every model must hold, and every mutant must break the property that guards.toml names.

    A mutant counts only if its control holds: the same configuration with all guards on.

    For a guard that is named, prints the counterexample step by step. Exit code 1 if a result is not as expected.

    Examples: highwater spec check · highwater spec check TruncateByEpoch · highwater spec check MCHwTruncation_deep
    """
    from highwater.spec.check import check
    from highwater.spec.models import PROFILES, load_models

    if list_:
        rows = ((model.name, model.profile, model.claim) for model in load_models().values())
        print_names(rows, ("model", "profile", "claim"), as_json=json_)
        return
    depth = next((known for known in PROFILES if known == profile), None)
    if depth is None:
        raise UsageError(f"no profile {profile!r}", hint=f"known: {', '.join(PROFILES)}")
    models, named_guards, folders = _chosen(names or [], guards=guards)
    with _progress(quiet=json_) as update:
        results = check(models, named_guards, update, folders=folders, profile=depth, jobs=jobs, fresh=fresh)
    if json_:
        print_json(summary(results, named_guards or ()))
    else:
        for result in results:
            _print_counterexample(result, always=result.guard in (named_guards or ()))
        _print_totals(results)
    raise typer.Exit(EXIT_OF_VERDICT[worst([result.verdict for result in results])])


def _chosen(names: Sequence[str], *, guards: bool) -> tuple[list[str] | None, list[str] | None, set[str]]:
    """Return the models and the ids of the guards to run (None is all), and the folders whose mutants run as well."""
    from highwater.spec.guards import load_guards
    from highwater.spec.models import load_models

    if not names:
        return None, None if guards else [], set()
    known = {name: guard.id for guard in load_guards().values() for name in (guard.id, guard.switch)}
    requested = [known[name] for name in names if name in known]
    models = [name for name in names if name not in known]
    folders = {model.folder for model in load_models().values()}.intersection(models) if guards else set()
    return models, list(dict.fromkeys(requested)), folders


def summary(results: "Sequence[ModelResult]", named_guards: Collection[str] = ()) -> dict[str, Any]:
    """Return the object that `--json` prints. Unexpected results and `named_guards` include their steps."""
    return {
        "models": [
            {
                "model": result.model.name,
                "verdict": result.verdict,
                "states": result.outcome.distinct if result.outcome.distinct >= 0 else result.outcome.generated,
                "depth": result.outcome.depth,
                "seconds": round(result.outcome.seconds, 1),
                "faults": result.faults,
                **_steps(result, named_guards),
            }
            for result in results
            if not result.guard and not result.is_control
        ],
        "controls": [
            {
                "control": result.model.name,
                "of": [f"without {other.guard}" for other in results if _controlled_by(other, result)],
                "verdict": result.verdict,
                "states": result.outcome.distinct,
                "depth": result.outcome.depth,
                "seconds": round(result.outcome.seconds, 1),
                "faults": result.faults,
                **_steps(result, named_guards),
            }
            for result in results
            if any(_controlled_by(other, result) for other in results)
        ],
        "guards": [
            {
                "guard": result.guard,
                "model": result.model.name,
                "expected": "holds" if result.mutant and result.mutant.redundant else "violated",
                "seen": result.observed,
                "property": result.outcome.broken,
                "length": len(result.outcome.trace),
                "also_off": result.mutant.also_off if result.mutant else (),
                "states": result.outcome.distinct,
                "seconds": round(result.outcome.seconds, 1),
                "faults": result.faults,
                **_steps(result, named_guards),
            }
            for result in results
            if result.guard
        ],
    }


def _controlled_by(mutant: "ModelResult", control: "ModelResult") -> bool:
    return mutant.control is not None and mutant.control.model.name == control.model.name and not control.guard


def _steps(result: "ModelResult", named_guards: Collection[str]) -> dict[str, Any]:
    """Return the counterexample as `{"steps": [...]}` if it is unexpected or its guard was named, else `{}`."""
    from dataclasses import asdict

    from highwater.spec.tlc.counterexample import counterexample_steps

    shown = result.outcome.trace and (result.faults or result.guard in named_guards)
    return {"steps": [asdict(step) for step in counterexample_steps(result.outcome.trace)]} if shown else {}


@contextmanager
def _progress(*, quiet: bool) -> "Iterator[Update]":
    """Print finished runs to standard output; show running ones on standard error if that is a terminal."""

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
            text = f"{name}: {progress.distinct:,} states, {rate:,.0f}/s, {progress.queue:,} in the queue"
            bar.update(tasks[name], description=text)

        yield update


def _line(result: "ModelResult") -> str:
    outcome = result.outcome
    when = f"{outcome.seconds:.1f} s" + (", cached" if result.cached else "")
    mark = {"valid": "ok", "invalid": "FAILS"}.get(result.verdict, "unknown")
    counts = f"{outcome.distinct:,} states, depth {outcome.depth}" if outcome.distinct >= 0 else ""
    walked = f"{outcome.generated:,} states in random walks"
    text = outcome.reason if result.verdict == "unknown" else "; ".join(result.faults) or counts or walked
    if result.mutant is None:
        name = f"control {result.model.name}" if result.is_control else result.model.name
        return f"{mark:8}{name:32} {text} ({when})"
    if outcome.trace and not result.faults:
        text = f"{outcome.broken} broken in {len(outcome.trace)} states"
    elif not result.faults and result.mutant.redundant:
        text = f"redundant: holds in {outcome.distinct:,} states"
    together = " and ".join([result.guard, *result.mutant.also_off])
    return f"{mark:8}without {together:24} {text} ({result.model.name}, {when})"


def _print_counterexample(result: "ModelResult", *, always: bool) -> None:
    """Print the counterexample of an unexpected result, or of a mutant that was named."""
    if result.outcome.trace and (always or result.verdict != "valid"):
        rule = f", without {result.guard}" if result.guard else ""
        typer.echo(
            f"\n{result.model.name}{rule}: {result.outcome.broken} breaks in these steps\n{result.counterexample()}"
        )


def _print_totals(results: "Sequence[ModelResult]") -> None:
    models = [result for result in results if not result.guard and not result.is_control]
    controls = [result for result in results if result.is_control]
    mutants = [result for result in results if result.guard]
    model_count, control_count, mutant_count = (
        sum(result.verdict == "valid" for result in group) for group in (models, controls, mutants)
    )
    guards = len({result.guard for result in mutants})
    typer.echo(
        f"{model_count} of {len(models)} models and {control_count} of {len(controls)} controls hold, "
        f"{mutant_count} of {len(mutants)} mutants as expected, guards: {guards}"
    )


@spec_app.command("mutate")
def mutate_command(
    folders: Annotated[
        list[str] | None, typer.Argument(metavar="[FOLDER]...", help="Protocols; all if none is named.")
    ] = None,
    mutants: Annotated[int, typer.Option("--mutants", help="So many of each module, chosen at random; 0 is all.")] = 0,
    seed: Annotated[int, typer.Option(help="Random seed of the choice.")] = 0,
    limit: Annotated[float, typer.Option(help="Seconds for each mutant in each model.")] = 60.0,
    proofs: Annotated[bool, typer.Option("--proofs", help="Change the actions of the proofs instead.")] = False,
    jobs: Annotated[int, typer.Option(help="Processor cores; 0 is all.")] = 0,
    at_least: Annotated[float, typer.Option(help="Exit code 1 if a smaller percentage is killed.")] = 0.0,
    list_: Annotated[bool, typer.Option("--list", help="List the mutants; run none.")] = False,
    json_: JsonOption = False,
) -> None:
    """Change the modules in many small ways, and print which changes the fast models notice.

    A mutant is killed if a property breaks, or if an action or a situation that the models reach is not reached any
    more; with --proofs, if a claim breaks, an action is never taken, or other states are reached. All mutants take
    hours; results are cached, so that an interrupted run continues where it stopped.

    Examples: highwater spec mutate --mutants 20 · highwater spec mutate zk_rebalance · highwater spec mutate --list
    """
    from highwater.spec.mutation import report

    if list_:
        print_names(report.rows(folders or [], mutants, seed, proofs=proofs), ("mutant", "change"), as_json=json_)
        return
    emit = (lambda line: None) if json_ else typer.echo
    judged = report.run(folders or [], emit, proofs=proofs, count=mutants, seed=seed, limit_s=limit, jobs=jobs)
    if json_:
        print_json(report.summary(judged))
    raise typer.Exit(report.exit_code(judged, at_least))


@spec_app.command("prove")
def prove_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PROTOCOL]...", help="Protocols to prove; all if none is named.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of z3.")] = 0,
    drops: Annotated[
        bool, typer.Option("--drops", help="Also check each protocol without each of its guards.")
    ] = False,
    profile: Annotated[
        str, typer.Option(help="fast; deep: also --drops, --research, all states compared with TLA+.")
    ] = "fast",
    research: Annotated[
        bool,
        typer.Option("--research", help="Also prove hw_truncation with crashes that lose a suffix inside the ISR."),
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Prove the protocols for any number of brokers, members, partitions, offsets and epochs, with z3.

    Exit code 0 only if every protocol is proved (--research does not count). An open proof prints a counterexample to
    induction. Without a guard a promise must break, or the guard must be proved redundant; if protocols are named,
    prints the steps that break the promise.

    Examples: highwater spec prove · highwater spec prove isr_commit --drops
    """
    from highwater.spec.models import PROFILES
    from highwater.spec.proofs import report
    from highwater.spec.proofs.run import run, run_research

    if profile not in PROFILES:
        raise UsageError(f"no profile {profile!r}", hint=f"known: {', '.join(PROFILES)}")
    deep, wanted = profile != "fast", names or [*report.PROTOCOLS, report.RESEARCH]
    protocols = [report.load(name) for name in wanted]
    to_prove = [protocol for protocol in protocols if protocol.name != report.RESEARCH]
    emit = (lambda line: None) if json_ else typer.echo
    proofs, dropped, verdict = run(to_prove, emit, seed=seed, drops=drops, deep=deep, verbose=bool(names))
    requested = research or deep or report.RESEARCH in (names or ())
    found = run_research(emit, seed=seed, requested=requested) if requested or not names else {}
    if json_:
        print_json({**report.summary(proofs, dropped), "research": found})
    raise typer.Exit(EXIT_OF_VERDICT[verdict])


@spec_app.command("draw")
def draw_command(
    name: Annotated[
        str, typer.Argument(metavar="GUARD|MODEL", help="The guard or model to draw; see highwater guards.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The SVG file to write; NAME.svg if not given.")
    ] = None,
    states: Annotated[int, typer.Option(help="For a model: the maximum number of states.")] = 40,
) -> None:
    """Draw an SVG: for a guard, the counterexample without it; for a model, its first states.

    Examples: highwater spec draw TruncateByEpoch · highwater spec draw MCHwTruncation --states 25 -o states.svg
    """
    from highwater.spec.check import check, known_names
    from highwater.spec.draw import draw_counterexample, draw_states
    from highwater.spec.guards import load_guards
    from highwater.spec.models import load_models

    if name in load_guards():
        results = check(models=[], guards=[name], jobs=1, controls=False)
        picture = draw_counterexample(next((result for result in results if result.outcome.trace), results[0]))
    elif name in load_models():
        picture = draw_states(load_models()[name], states)
    else:
        raise unknown_name("model or guard", name, known_names(), "highwater spec check --list")
    path = out or Path(f"{name}.svg")
    path.write_text(picture)
    typer.echo(f"wrote {path}")


def guards_command(
    list_: Annotated[bool, typer.Option("--list", help="Only the names, each with its rule.")] = False,
    json_: JsonOption = False,
) -> None:
    """Print the guards, and what detects the absence of each: model, simulator, audit, suite.

    Examples: highwater guards · highwater guards --list · highwater guards --json
    """
    from highwater.spec.guards import load_guards

    guards = load_guards().values()
    if list_:
        print_names(((g.id, g.rule) for g in guards), ("guard", "rule"), as_json=json_)
        return
    if json_:
        rows = [{"guard": g.id, "rule": g.rule, "source": g.source, "witnesses": g.texts} for g in guards]
        print_json({"guards": rows})
        return
    for guard in guards:
        print(guard.id)
        for check, text in zip(CHECKS, guard.texts.values(), strict=True):
            print(hanging(f"  {check:<11}", text))


def print_json(value: Any) -> None:
    """Print a value as one JSON object."""
    import msgspec

    encode: Callable[[Any], bytes] = msgspec.json.encode
    typer.echo(encode(value).decode())

"""The command `highwater explore`."""

import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from highwater.results import LINE_EVERY_S

if TYPE_CHECKING:
    from highwater.fuzz.explore.explorer import Coverage, Explorer

TARGET_HELP: Final = (
    "simulator[:N] (the reference in virtual time), reference[:N], kfake[:N], librdkafka-mock, apache-kafka[:VERSION], "
    "tansu, nisshi, HOST:PORT or FILE.toml"
)
FOLDER: Final = Path("explore")
INTERRUPTED: Final = "interrupted"


def explore_command(
    target: Annotated[str, typer.Argument(help=TARGET_HELP)] = "",
    seconds: Annotated[float, typer.Option(min=0.1, help="Time limit; shrinking may take longer.")] = 60.0,
    most: Annotated[int, typer.Option(min=1, help="End after so many differences.")] = 1_000,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 1,
    program: Annotated[
        list[str] | None, typer.Option(help="Walk only this program (see --list), or those that match; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of findings (default: explore/<target>).")] = None,
    guard_off: Annotated[
        list[str] | None,
        typer.Option(help="Switch off this guard of the reference, see highwater guards; repeatable."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the programs and their clauses; run nothing.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Draw walks from models of the protocol on a broker; shrink each wrong answer to the shortest walk that shows it.

    A walk is a program of the suite with drawn choices: requests that are valid, at a limit, one past it, or wrong in
    one place, in any version that the broker advertises; each reply is compared with a model. Hypothesis draws and
    shrinks the walks. Every walk uses fresh topics, groups and ids, and deletes what it can.

    Each difference is a folder: README.md, the walk for highwater replay, and a test that needs no Hypothesis and can
    be copied into a suite. Exit code 1 if there is one; 3 if no difference was met again, if no walk fitted, or if
    the run was interrupted. How-to: docs/exploring.md.

    Examples: highwater explore localhost:9092 --seconds 120 ·
    highwater explore simulator:3 --guard-off FenceStaleFetch ·
    highwater explore kfake --program transactions --program 'offset*'
    """
    from highwater.conformance import targets
    from highwater.errors import UsageError
    from highwater.fuzz.explore.explorer import Explorer
    from highwater.fuzz.explore.finding import write_findings
    from highwater.fuzz.explore.ground import Ground

    chosen = _chosen(program or [])
    if list_:
        _list(chosen)
        return
    if not target:
        raise UsageError("no target", hint=f"give one: {TARGET_HELP}")
    targets.check_reachable(target)
    opened = targets.launch_target(target, guards_off=tuple(guard_off or ()))
    try:
        explorer = Explorer(Ground(opened), chosen, seconds, seed, _Progress(target, seconds), most)
        try:
            explorer.run()
        except KeyboardInterrupt:
            explorer.ended = INTERRUPTED
        version = opened.version
    finally:
        opened.close()
    differences = list(explorer.differences.values())
    folder = out or FOLDER / target.replace(":", "-").replace("/", "-").replace(",", "+")
    written = write_findings(folder, differences, target, version, seed)
    summary = _summary(explorer, target, version, [str(path) for path in written])
    if json_:
        import msgspec

        typer.echo(msgspec.json.encode(summary).decode())
    else:
        _print(summary, target)
    raise typer.Exit(_exit_code(explorer))


def _chosen(patterns: list[str]) -> list[str]:
    """Return the programs that match one of the patterns, or all. Raises UsageError for one that matches none."""
    from fnmatch import fnmatchcase

    from highwater.conformance.cases.programs import PROGRAMS
    from highwater.names import unknown_name

    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in PROGRAMS):
            raise unknown_name("program", pattern, PROGRAMS, "highwater explore --list")
    return [name for name in PROGRAMS if not patterns or any(fnmatchcase(name, each) for each in patterns)]


def _list(names: list[str]) -> None:
    from highwater.conformance.cases.programs import PROGRAMS
    from highwater.fuzz.explore.finding import clause_of

    for name in names:
        what = PROGRAMS[name].__name__.removeprefix("test_").replace("_", " ")
        typer.echo(f"{name:<24} {clause_of(name):<7} {what}")


class _Progress:
    """Prints a line of what was done every ten seconds."""

    def __init__(self, target: str, seconds: float) -> None:
        self._target, self._seconds, self._printed = target, seconds, time.monotonic()

    def __call__(self, explorer: "Explorer") -> None:
        if time.monotonic() >= self._printed + LINE_EVERY_S:
            self._printed = time.monotonic()
            covered = explorer.coverage
            print(
                f"{self._target}: {explorer.elapsed:.0f} of {self._seconds:.0f} s, "
                f"{covered.walks.total():,} walks, {covered.replies:,} replies compared, "
                f"{len(covered.transitions)} transitions, {len(explorer.differences)} differences",
                file=sys.stderr, flush=True,
            )  # fmt: skip


def _summary(explorer: "Explorer", target: str, version: str, folders: list[str]) -> dict[str, Any]:
    covered, elapsed = explorer.coverage, explorer.elapsed
    smallest = sorted(explorer.differences.values(), key=lambda each: each.smallest.size)
    return {
        "target": target, "version": version, "seed": explorer.seed, "seconds": round(elapsed, 1),
        "ended": explorer.ended, "walks": dict(covered.walks), "steps": covered.steps.total(),
        "replies": covered.replies, "replies_per_second": round(covered.replies / max(elapsed, 0.001)),
        "unfit": {name: why for name, why in covered.unfit.items() if not covered.walks[name]},
        "transitions": transitions_by_api(covered), "never_met": never_met(covered),
        "differences": [
            {
                "folder": folder, "program": each.smallest.program, "kind": each.smallest.kind,
                "failure": each.smallest.failure, "steps": len(each.smallest.path),
                "replies": len(each.smallest.replies), "steps_at_first": each.first, "met": each.met,
                "repeated": each.repeated, "confirmed": each.is_confirmed, "after_seconds": round(each.after_s, 1),
            }
            for folder, each in zip(folders, smallest, strict=True)
        ],
    }  # fmt: skip


def transitions_by_api(covered: "Coverage") -> dict[str, dict[str, Any]]:
    """Return by API the versions that were used, and how often each error code was the answer."""
    from highwater.conformance.expectations import code_text

    found: dict[str, dict[str, Any]] = defaultdict(lambda: {"versions": [], "errors": {}})
    for api, version in sorted(covered.versions):
        found[api]["versions"].append(version)
    for transition, count in sorted(covered.transitions.items()):
        found[transition.api]["errors"][code_text(transition.error)] = count
    return dict(found)


def never_met(covered: "Coverage") -> dict[str, list[str]]:
    """Return by API the error codes that the programs of this run met in `met.json`, and no walk of it did."""
    from highwater.conformance.expectations import code_text
    from highwater.fuzz.explore.met import read_met

    met = read_met()
    known = {(api, code) for name in covered.walks for api, codes in met.get(name, {}).items() for code in codes}
    missing: dict[str, list[str]] = defaultdict(list)
    for api, code in sorted(known - {tuple(each) for each in covered.transitions}):
        missing[api].append(code_text(code))
    return dict(missing)


def _print(summary: dict[str, Any], target: str) -> None:
    for each in summary["differences"]:
        flaky = "" if each["confirmed"] else "flaky, "
        typer.echo(f"{each['program']}: {flaky}{each['kind']}: {each['failure']}")
        typer.echo(f"  {each['steps']} steps (first met with {each['steps_at_first']}), {each['met']} walks met it")
        typer.echo(f"  replay: highwater replay {each['folder']} {target}")
    for why in dict.fromkeys(summary["unfit"].values()):
        names = ", ".join(name for name, reason in summary["unfit"].items() if reason == why)
        typer.echo(f"not walked: {names}: {why}")
    for api, found in summary["transitions"].items():
        versions = found["versions"]
        errors = ", ".join(f"{error} × {count:,}" for error, count in found["errors"].items())
        typer.echo(f"{api} {versions[0]}-{versions[-1]}: {errors}")
    for api, codes in summary["never_met"].items():
        typer.echo(f"never met: {api}: {', '.join(codes)}")
    verdict = f"{len(summary['differences'])} differences" if summary["differences"] else "no difference"
    walks = sum(summary["walks"].values())
    typer.echo(
        f"{walks:,} walks of {len(summary['walks'])} programs, {summary['steps']:,} steps, {summary['replies']:,} "
        f"replies compared in {summary['seconds']} s ({summary['replies_per_second']:,} a second), "
        f"seed {summary['seed']}, {summary['ended']}: {verdict}"
    )


def _exit_code(explorer: "Explorer") -> int:
    from highwater.errors import ExitCode

    if any(each.is_confirmed for each in explorer.differences.values()):
        return ExitCode.VIOLATED
    undecided = explorer.differences or not explorer.coverage.walks or explorer.ended == INTERRUPTED
    return ExitCode.UNDECIDED if undecided else ExitCode.HELD

"""`highwater conform`: which clauses a broker keeps, breaks or lacks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from highwater.conformance.reports.files import ReportFiles
    from highwater.conformance.runner import Options


PAGE: Final = "results/conformance.html"


class ConformCommand(TyperCommand):
    """`--html` may stand without a file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for at, argument in enumerate(args):
            if argument == "--html" and (at + 1 == len(args) or args[at + 1].startswith("-")):
                Path(PAGE).parent.mkdir(exist_ok=True)
                args.insert(at + 1, PAGE)
        return super().parse_args(ctx, args)


def conform_command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="reference[:N], apache-kafka[:VERSION][:N], kfake[:N], librdkafka-mock[:N], nisshi, HOST:PORT or "
            "FILE.toml; several make a matrix."
        ),
    ] = None,
    area: Annotated[list[str] | None, typer.Option(help="Only this area, e.g. FRM; repeatable.")] = None,
    clause: Annotated[list[str] | None, typer.Option(help="Only this clause or case; repeatable.")] = None,
    level: Annotated[str, typer.Option(help="Leave out what is below: must, should or may.")] = "may",
    strict: Annotated[bool, typer.Option("--strict", help="A broken SHOULD counts.")] = False,
    kafka_version: Annotated[str, typer.Option(help="The target's era, e.g. 2.8.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cases and run none.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for a reply.")] = 5.0,
    self_test: Annotated[bool, typer.Option("--self-test", help="Plant each defect that a case says it sees.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Cases that run side by side; those that stop nodes run alone.")] = 4,
    no_slow: Annotated[bool, typer.Option("--no-slow", help="Leave out cases that wait for time-outs.")] = False,
    repeat: Annotated[int, typer.Option(min=1, help="Run each case so often: other verdicts are `flaky`.")] = 1,
    command_config: Annotated[
        Path | None, typer.Option(help="Client properties of TLS and SASL, as Apache Kafka's tools take.")
    ] = None,
    guard_off: Annotated[
        list[str] | None, typer.Option(help="A guard that the reference is to lack, see highwater guards; repeatable.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Do not delete the topics and groups that were made.")] = False,
    html: Annotated[
        Path | None, typer.Option(help=f"Write a page with the bytes behind each verdict; {PAGE} without a file.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the matrix as Markdown here.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here.")] = None,
    badge: Annotated[Path | None, typer.Option(help="Write an SVG badge here; one target.")] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List the clauses: id, level and sentence; run nothing.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every case, with its clause's sentence.")] = False,
) -> None:
    """Hold brokers to the clauses of the protocol; several targets make a matrix.

    Exit code 1 for a broken MUST (or an expectation that no longer holds), 3 when something could not be decided.
    With --self-test it is the cases that are tried: 1 when one passes a broker with a defect that it must see.

    Examples: highwater conform reference:3 · highwater conform localhost:9092 librdkafka-mock --area FRM
    """
    from highwater.errors import ExitCode, UsageError

    if list_:
        _list_clauses(json_)
        raise typer.Exit(ExitCode.HELD)
    if targets and len(targets) == 1 and not dry_run:
        _check_target(targets[0])
    from highwater.conformance.reports.files import ReportFiles
    from highwater.conformance.runner import Options

    if level not in ("must", "should", "may"):
        raise UsageError(f"expected must, should or may, not {level!r}", where="--level")
    options = Options(
        areas=[each.upper() for each in area or []], clauses=clause or [], level=level, kafka_version=kafka_version,
        dry_run=dry_run, timeout_s=timeout, keep=keep, jobs=jobs, no_slow=no_slow, repeat=repeat,
        command_config=command_config, guards_off=guard_off or [],
    )  # fmt: skip
    _check(list(options.areas), list(options.clauses))
    if dry_run:
        _list_cases(options, json_)
        raise typer.Exit(ExitCode.HELD)
    if self_test:
        raise typer.Exit(_self_test(targets or ["reference:3"], options, json_, verbose))
    if not targets:
        raise UsageError("no target", where="conform", hint="say which broker, e.g. reference:3")
    files = ReportFiles(html=html, markdown=markdown, junit=junit, badge=badge)
    raise typer.Exit(_run(targets, options, files, strict, json_, verbose))


def _list_clauses(json_: bool) -> None:
    from highwater.names import print_names
    from highwater.spec.clauses import load_clauses

    rows = ((clause.id, clause.level, clause.sentence) for clause in load_clauses().values())
    print_names(rows, ("clause", "level", "sentence"), as_json=json_)


def _check_target(name: str) -> None:
    from highwater.conformance.targets import check_reachable, check_target

    check_target(name)
    check_reachable(name)


def _check(areas: list[str], clauses: list[str]) -> None:
    """An area or clause that nobody wrote down would select nothing, and nothing is not a pass."""
    from highwater.errors import UsageError
    from highwater.spec.clauses import find_clause, load_clauses

    known = sorted({each.area for each in load_clauses().values()})
    for area in areas:
        if area not in known:
            raise UsageError(f"no area {area!r}", where="--area", hint=f"one of: {', '.join(known)}")
    for each in clauses:
        find_clause(each.partition("[")[0])


def _run(targets: list[str], options: "Options", files: "ReportFiles", strict: bool, json_: bool, verbose: bool) -> int:
    import msgspec

    from highwater.conformance.report import report_of
    from highwater.conformance.reports.console import show
    from highwater.conformance.runner import Interrupted, run_suite
    from highwater.conformance.verdicts import exit_code
    from highwater.results import progress
    from highwater.signals import interruptible

    files.check(len(targets))
    try:
        with interruptible(), progress("conforming", 0, quiet=json_) as step:
            report = run_suite(targets, options, lambda target, result: step())
    except Interrupted as interrupted:
        report = interrupted.report
    files.write(report_of(report))
    if json_:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        show(report_of(report), strict=strict, verbose=verbose)
    return exit_code(report, strict=strict)


def _self_test(targets: list[str], options: "Options", json_: bool, verbose: bool) -> int:
    import msgspec

    from highwater.conformance.self_test.runner import run_self_test
    from highwater.conformance.self_test.trials import exit_code, show
    from highwater.errors import UsageError
    from highwater.results import progress
    from highwater.signals import interruptible

    if len(targets) != 1:
        raise UsageError("expected one target whose brokers are spoiled", where="--self-test")
    with interruptible(), progress("planting", 0, quiet=json_) as step:
        report = run_self_test(targets[0], options, step)
    if json_:
        typer.echo(msgspec.json.encode({"self_test": report}).decode())
    else:
        show(report, verbose=verbose)
    return exit_code(report)


def _list_cases(options: "Options", json_: bool) -> None:
    import msgspec

    from highwater.conformance.runner import run_suite
    from highwater.spec.clauses import find_clause

    cases = run_suite(["reference"], options)["targets"][0]["cases"]
    if json_:
        listed = [{key: case[key] for key in ("case", "clause", "level")} for case in cases]
        typer.echo(msgspec.json.encode({"cases": listed}).decode())
        return
    for case in cases:
        sentence = find_clause(case["clause"]).sentence if case["clause"] else case["message"]
        typer.echo(f"{case['case']:<32} {case['level']:<6} {sentence}")
    typer.echo(f"{len(cases)} cases of {len({case['clause'] for case in cases})} clauses")


# --------------------------------------------------------------------------------------------------
# `highwater diff`: what changed from one run of the suite to another.


def diff_command(
    before: Annotated[Path, typer.Argument(help="What highwater conform --json printed.")],
    after: Annotated[Path, typer.Argument(help="The same, later.")],
    strict: Annotated[bool, typer.Option("--strict", help="A broken SHOULD counts.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write what changed as Markdown here.")] = None,
) -> None:
    """Compare two runs: what broke, what was mended, what is no longer tried, what is new.

    Exit code 1 when something broke that was kept, 3 when something could not be decided.

    Example: highwater conform localhost:9092 --json > new.json; highwater diff old.json new.json
    """
    import msgspec

    from highwater.conformance.report import read_report
    from highwater.conformance.reports import compare_text as comparison
    from highwater.conformance.reports.compare import compare, exit_code

    found = compare(read_report(before), read_report(after))
    if markdown:
        markdown.write_text(comparison.markdown(found), encoding="utf-8")
    if json_:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        typer.echo("\n".join(comparison.lines(found)))
    raise typer.Exit(exit_code(found, strict=strict))

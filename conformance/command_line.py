"""`highwater conform` checks brokers against the clauses of the protocol; `highwater diff` compares two runs."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from highwater.conformance.reports.files import ReportFiles
    from highwater.conformance.runner import OnProgress, Options
    from highwater.conformance.running.verdicts import CaseResult
    from highwater.results import Steps


PAGE: Final = "results/conformance.html"
SHOWN_DIFFERENCES: Final = 100
FEATURES: Final = {
    "protocol": ("FRM", "API"),
    "metadata": ("MD",),
    "produce": ("PRD",),
    "fetch": ("FET", "LST"),
    "groups": ("GRP", "OFF"),
    "idempotence": ("IDM",),
    "transactions": ("TXN", "IDM"),
    "replication": ("REP", "CTL"),
    "admin": ("ADM", "FLD", "QTA", "TEL"),
    "security": ("SEC", "ACL"),
    "share-groups": ("SHR",),
    "streams-groups": ("STR",),
    "zookeeper-groups": ("ZKR",),
}
"""The areas of the clauses of each feature."""


class ConformCommand(TyperCommand):
    """Accept `--html` without a file: the page is then written to `PAGE`."""

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
            help="reference[:N], simulator[:N], apache-kafka[:VERSION][:N], kfake[:N], librdkafka-mock[:N], tansu, "
            "nisshi, kroxylicious, HOST:PORT or FILE.toml; several targets give a matrix."
        ),
    ] = None,
    area: Annotated[list[str] | None, typer.Option(help="Run only this area, e.g. FRM; repeatable.")] = None,
    feature: Annotated[
        list[str] | None, typer.Option(help=f"Run only this feature: {', '.join(FEATURES)}; repeatable.")
    ] = None,
    clause: Annotated[
        list[str] | None, typer.Option(help="Run only this clause or case, or a pattern: TXN-1?, 'FET-*'; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave out this clause or case, or a pattern; repeatable.")
    ] = None,
    since: Annotated[
        str, typer.Option(help="Run only clauses that first applied to this Kafka version or later.")
    ] = "",
    until: Annotated[str, typer.Option(help="Run only clauses that applied to this Kafka version already.")] = "",
    level: Annotated[str, typer.Option(help="Run clauses of this level and above: must, should or may.")] = "may",
    strict: Annotated[bool, typer.Option("--strict", help="Count a broken SHOULD as a failure.")] = False,
    kafka_version: Annotated[str, typer.Option(help="Kafka version whose rules the target follows, e.g. 2.8.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cases and run none.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for a reply.")] = 5.0,
    self_test: Annotated[bool, typer.Option("--self-test", help="Check that cases detect their defects.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Cases to run in parallel on one cluster.")] = 4,
    clusters: Annotated[
        int, typer.Option(min=0, help="Clusters to launch, all but one for cases that stop nodes; 0: as many as suit.")
    ] = 0,
    no_slow: Annotated[bool, typer.Option("--no-slow", help="Leave out cases that wait for time-outs.")] = False,
    long: Annotated[
        bool, typer.Option("--long", help="Also run cases that send tens of thousands of requests.")
    ] = False,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each case; differing verdicts give `flaky`.")] = 1,
    audit: Annotated[
        bool, typer.Option("--audit", help="Also audit what the client of each case saw; always done in virtual time.")
    ] = False,
    command_config: Annotated[
        Path | None, typer.Option(help="Client properties for TLS and SASL, as for Apache Kafka's tools.")
    ] = None,
    guard_off: Annotated[
        list[str] | None, typer.Option(help="Switch off this guard of the reference, see highwater guards; repeatable.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Do not delete the topics and groups of the cases.")] = False,
    expect: Annotated[
        Path | None, typer.Option(help="Known deviations of this broker, with reasons; only others fail the run.")
    ] = None,
    write_expect: Annotated[
        Path | None, typer.Option(help="Write such a file with the deviations of this run, for you to add the reasons.")
    ] = None,
    against: Annotated[
        str, typer.Option(help="Another target: compare the values in the replies of both, also where both pass.")
    ] = "",
    html: Annotated[
        Path | None, typer.Option(help=f"Write an HTML page with the bytes behind each verdict; default {PAGE}.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the matrix as Markdown to this file.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    badge: Annotated[
        Path | None, typer.Option(help="Write an SVG badge to this file; needs exactly one target.")
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List id, level and sentence of the chosen clauses, with --html as a page.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print every case with the sentence of its clause.")
    ] = False,
) -> None:
    """Check brokers against the clauses of the protocol; several targets give a matrix.

    Exit code 1 for a broken MUST or an expectation that no longer holds, 3 for a case without a verdict, or if no case
    was decided.
    With --self-test the cases are tested: exit code 1 if a case passes on a broker with a defect that it declares.

    Examples: highwater conform reference:3 · highwater conform localhost:9092 --feature transactions --exclude TXN-24
    · highwater conform localhost:9092 --expect known.toml --junit results.xml
    """
    from highwater.errors import ExitCode, UsageError

    if targets and len(targets) == 1 and not (dry_run or list_):
        _check_target(targets[0])
    from highwater.conformance.patterns import check_patterns
    from highwater.conformance.reports.files import ReportFiles
    from highwater.conformance.runner import Options

    if level not in ("must", "should", "may"):
        raise UsageError(f"the level must be must, should or may, not {level!r}", where="--level")
    options = Options(
        areas=_areas(area or [], feature or []), clauses=clause or [], excluded=exclude or [], since=since, until=until,
        expect=expect, level=level, kafka_version=kafka_version,
        dry_run=dry_run, timeout_s=timeout, keep=keep, jobs=jobs, clusters=clusters, no_slow=no_slow, long=long,
        repeat=repeat, audit=audit, command_config=command_config, guards_off=guard_off or [],
    )  # fmt: skip
    check_patterns(options.clauses, "--clause")
    check_patterns(options.excluded, "--exclude")
    if list_:
        _list_clauses(options, json_, html)
        raise typer.Exit(ExitCode.HELD)
    if dry_run:
        _list_cases(options, json_)
        raise typer.Exit(ExitCode.HELD)
    if self_test:
        raise typer.Exit(_self_test(targets or ["simulator:3"], options, json_, verbose))
    if not targets:
        raise UsageError("no target", where="conform", hint="name a broker, e.g. reference:3")
    if against:
        raise typer.Exit(_compare(targets, against, options, json_, verbose))
    files = ReportFiles(html=html, markdown=markdown, junit=junit, badge=badge)
    raise typer.Exit(_run(targets, options, files, write_expect, strict, json_, verbose))


def _list_clauses(options: "Options", json_: bool, page: Path | None) -> None:
    """List the clauses that the options choose, on a page if one is given."""
    import msgspec

    from highwater.names import print_names
    from highwater.spec.clauses import load_clauses

    clauses = [clause for clause in load_clauses().values() if options.choice.has_clause(clause)]
    if page is not None:
        from highwater.conformance.reports.clause_list import write_clause_page
        from highwater.conformance.runner import run_suite

        every_case = msgspec.structs.replace(options, dry_run=True, long=True, no_slow=False)
        cases = run_suite(["reference"], every_case)["targets"][0]["cases"]
        write_clause_page(page, clauses, len({case["clause"] for case in cases}))
        typer.echo(f"Wrote {page}.")
        return
    rows = ((clause.id, clause.level, clause.sentence) for clause in clauses)
    print_names(rows, ("clause", "level", "sentence"), as_json=json_)


def _check_target(name: str) -> None:
    from highwater.conformance.targets import check_reachable, check_target

    check_target(name)
    check_reachable(name)


def _areas(names: list[str], features: list[str]) -> list[str]:
    """Return the areas of all names; raise UsageError for an unknown one: it would select no case, as if all passed."""
    from highwater.names import unknown_name
    from highwater.spec.clauses import load_clauses

    known = sorted({clause.area for clause in load_clauses().values()})
    for area in names:
        if area.upper() not in known:
            raise unknown_name("area", area, known, "highwater conform --list")
    for feature in features:
        if feature not in FEATURES:
            raise unknown_name("feature", feature, FEATURES, "highwater conform --help")
    return [*(area.upper() for area in names), *(area for feature in features for area in FEATURES[feature])]


def _run(
    targets: list[str], options: "Options", files: "ReportFiles", write_expect: Path | None, strict: bool, json_: bool,
    verbose: bool,
) -> int:  # fmt: skip
    import msgspec

    from highwater.conformance.report import report_of
    from highwater.conformance.reports.console import show
    from highwater.conformance.runner import Interrupted, run_suite
    from highwater.conformance.running.verdicts import (
        decides_nothing,
        exit_code,
        expectations_text,
        read_expectations,
    )
    from highwater.errors import UsageError
    from highwater.results import progress

    files.check(len(targets))
    if write_expect is not None and len(targets) != 1:
        raise UsageError("one file has the deviations of one broker", where="--write-expect", hint="name one target")
    try:
        with progress("conforming", 0, quiet=json_) as step:
            report = run_suite(targets, options, _shown(step))
    except Interrupted as interrupted:
        report = interrupted.report
    for path in files.write(report_of(report)):
        typer.echo(f"Wrote {path}.", err=True)
    if write_expect is not None:
        (target,) = report_of(report).targets
        kept = read_expectations(options.expect) if options.expect else []
        write_expect.write_text(expectations_text(target.cases, target.expectations, kept))
        typer.echo(f"Wrote {write_expect}.", err=True)
    if json_:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        show(report_of(report), strict=strict, verbose=verbose)
    for target in report_of(report).targets:
        if decides_nothing(target.cases):
            typer.echo(f"No case was decided, so the run says nothing about {target.target}.", err=True)
    return exit_code(report, strict=strict)


def _shown(step: "Steps") -> "OnProgress":
    """Return what shows a result in the progress: how many cases of the target have ended, and how many have failed."""
    from highwater.conformance.running.verdicts import BROKEN

    failed: Counter[str] = Counter()

    def show_result(target: str, result: "CaseResult", selected: int) -> None:
        if target not in failed:
            step.total += selected
        failed[target] += result.verdict in BROKEN
        step.what = f"{target}, {failed[target]} failed"
        step()

    return show_result


def _compare(targets: list[str], other: str, options: "Options", json_: bool, verbose: bool) -> int:
    import msgspec

    from highwater.conformance.report import report_of
    from highwater.conformance.runner import run_suite
    from highwater.conformance.values import compare_values, lines
    from highwater.errors import UsageError
    from highwater.results import progress

    if len(targets) != 1:
        raise UsageError("two brokers are compared", where="--against", hint="name one target beside --against")
    with_values = msgspec.structs.replace(options, values=True)
    with progress("comparing", 0, quiet=json_) as step:
        report = report_of(run_suite([*targets, other], with_values, _shown(step)))
    here, there = report.targets
    found = compare_values(here.name, there.name, here.cases, there.cases)
    if json_:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        typer.echo("\n".join(lines(found, 0 if verbose else SHOWN_DIFFERENCES)))
    return found.exit_code


def _self_test(targets: list[str], options: "Options", json_: bool, verbose: bool) -> int:
    import msgspec

    from highwater.conformance.self_test.runner import run_self_test
    from highwater.conformance.self_test.trials import exit_code, show
    from highwater.errors import UsageError
    from highwater.results import progress

    if len(targets) != 1:
        raise UsageError("the self-test needs exactly one target", where="--self-test")
    with progress("planting", 0, quiet=json_) as step:
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


def diff_command(
    before: Annotated[Path, typer.Argument(help="Output of highwater conform --json.")],
    after: Annotated[Path, typer.Argument(help="Output of a later run.")],
    strict: Annotated[bool, typer.Option("--strict", help="Count a broken SHOULD as a failure.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write the comparison as Markdown to this file.")] = None,
) -> None:
    """Compare two runs of the suite: cases that broke, were fixed, were skipped or are new.

    Exit code 1 if a case that passed now fails, 3 if a case has no verdict.

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


def matrix_command(
    runs: Annotated[list[Path], typer.Argument(help="Outputs of highwater conform --json.")],
    html: Annotated[Path, typer.Option(help="The page to write.")] = Path(PAGE),
    markdown: Annotated[
        Path | None, typer.Option(help="Also write a small table here: a row for each area, a column for each target.")
    ] = None,
) -> None:
    """Publish stored runs as one page: the newest run of each target beside the others, and the history of each.

    Example: highwater conform localhost:9092 --json > runs/$(date +%F).json; highwater matrix runs/*.json
    """
    from highwater.conformance.report import read_report
    from highwater.conformance.reports.files import make_parent_folder
    from highwater.conformance.reports.history import merge_runs
    from highwater.conformance.reports.markdown import areas_markdown
    from highwater.conformance.reports.page import page

    make_parent_folder(html)
    report, history = merge_runs([read_report(path) for path in runs])
    html.write_text(page(report, history), encoding="utf-8")
    if markdown is not None:
        make_parent_folder(markdown)
        markdown.write_text(areas_markdown(report), encoding="utf-8")
    counted = sum(len(past.runs) for past in history)
    typer.echo(f"{html}: {len(history)} targets, {counted} runs")

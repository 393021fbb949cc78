"""Command lines of `highwater audit` and `highwater report`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

if TYPE_CHECKING:
    from rich.console import Console

    from highwater.errors import Verdict
    from highwater.reports.execution.partitions import Engine
    from highwater.reports.verdicts import AuditResult

RANGES_SHOWN = 4
CONFIG_KEYS = (
    "acks, idempotence, isolation, min_insync_replicas, unclean_election, retention, compaction, "
    "transaction_timeout_ms, retention_ms, patience_ms, offset_expiry, workload"
)


def audit_command(
    histories: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders, patterns of them, addresses (hdfs://, s3://, file://, s3a://) or - (standard input)."
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local, spark, or auto: Spark for histories that are too large for one machine.")
    ] = "auto",
    config: Annotated[
        list[str] | None, typer.Option(help=f"KEY=VALUE that replaces a setting of the header; keys: {CONFIG_KEYS}.")
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="ndjson, jepsen-edn, ...; detected from the content by default.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write an HTML page of the history to this file; for several histories a comparison."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Keep the history in this folder as Parquet; if it holds the history already, read it from there."
        ),
    ] = None,
    master: Annotated[str | None, typer.Option(help="Master URL of Spark; default local[2,4].")] = None,
    conf: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for Spark; repeatable.")] = None,
    follow: Annotated[
        bool,
        typer.Option(
            help="Audit a folder whose files still arrive: print the verdict so far, until the file _SUCCESS exists."
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="With --follow: keep what was read in this folder, and continue there after an interruption."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option(help="Print Spark's plan of the audit of a dataset, instead of auditing it.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the rules: number, name and sentence.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Audit histories: report every anomaly with two operations that show it.

    Exit code 0: no promise of the configuration was broken. 1: a promise was broken. 3: missing settings or unreadable
    lines decide; give missing settings with --config.

    Several histories give one line each. Formats: docs/audit/formats.md.

    Examples: highwater audit results/20260101T120000Z-demo/off · highwater audit history.edn --config acks=all
    · highwater audit 'store/kafka*/2026*' --html compared.html
    """
    from highwater.errors import EXIT_OF_VERDICT, UsageError
    from highwater.reports.audit import audit
    from highwater.reports.execution.engines import engine_for
    from highwater.reports.importers.inputs import histories as histories_of
    from highwater.reports.importers.sources import seekable

    if list_:
        _list_rules(json=json_)
        return
    if not histories:
        raise UsageError("no history", where="audit", hint="name a file or folder; docs/audit/formats.md lists formats")
    overrides = dict(_override(text) for text in config or [])
    checker = engine_for(engine, master, conf or ())
    if follow:
        if html is not None or out is not None:
            raise UsageError("not with --follow", where="--html, --out", hint="audit the history when it is complete")
        raise typer.Exit(EXIT_OF_VERDICT[_follow(histories, overrides, checker, checkpoint, json=json_)])
    paths = [path for text in histories for path in histories_of(text)]
    if explain:
        _explain(paths, checker)
        return

    def audit_one(path: str) -> "AuditResult":
        dataset = out / path.strip("/.").replace("/", "-") if out and len(paths) > 1 else out
        with seekable(path) as readable:
            result = audit(readable, overrides=overrides, engine=checker, format_=format_, out=dataset)
            result = msgspec.structs.replace(result, history=path)
            if html is not None and len(paths) == 1:
                from highwater.reports.report import report_history

                typer.echo(f"page: {report_history(readable, result, html, config or ())}", err=True)
        return result

    if len(paths) > 1:
        raise typer.Exit(EXIT_OF_VERDICT[_many(paths, audit_one, html, json=json_)])
    result = audit_one(paths[0])
    if json_:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        show(result)
    raise typer.Exit(EXIT_OF_VERDICT[result.verdict])


def _list_rules(*, json: bool) -> None:
    from highwater.names import print_names
    from highwater.reports.anomalies import anomalies

    rows = ((str(number), anomaly.name, anomaly.sentence) for number, anomaly in anomalies().items())
    print_names(rows, ("rule", "name", "sentence"), as_json=json)


def _explain(paths: list[str], engine: "Engine") -> None:
    """Print the plan of each dataset; UsageError for another engine than Spark."""
    from highwater.errors import UsageError
    from highwater.reports.dataset.reader import read_dataset
    from highwater.reports.execution.spark import Spark

    if not isinstance(engine, Spark):
        raise UsageError("only Spark has a plan", where="--explain", hint="add --engine spark")
    engine.session()  # its file system reads addresses
    for path in paths:
        typer.echo(engine.explain(read_dataset(path)))


def _many(paths: list[str], audit_one: Callable[[str], "AuditResult"], html: Path | None, *, json: bool) -> "Verdict":
    """Print a line for each history, and write the page that compares them."""
    from highwater.reports.compare import Outcome, compare_outcomes
    from highwater.reports.runs import audit_runs

    outcomes: list[Outcome] = []
    verdict = audit_runs(paths, audit_one, lambda result: outcomes.append(Outcome.of(result)), json=json)
    if html is not None:
        typer.echo(f"page: {compare_outcomes(outcomes, html)}", err=True)
    return verdict


def _follow(
    histories: list[str], overrides: dict[str, Any], engine: "Engine", checkpoint: Path | None, *, json: bool
) -> "Verdict":
    """Print a line on stderr after each batch of files, then the verdict; a Spark engine also finds the files."""
    from highwater.errors import UsageError
    from highwater.reports.execution.spark import Spark
    from highwater.reports.follow import follow, poll_folder
    from highwater.reports.streaming import Streamed

    if len(histories) != 1:
        raise UsageError("expected one folder", where="--follow", hint="follow one history at a time")

    def report(so_far: "AuditResult") -> None:
        findings = ", ".join(f"{finding.name} {finding.count}" for finding in so_far.findings if not finding.expected)
        typer.echo(
            f"{so_far.operations:,} operations so far: {so_far.verdict}{findings and f' ({findings})'}", err=True
        )

    arrivals = Streamed(engine, checkpoint) if isinstance(engine, Spark) else poll_folder
    result = follow(Path(histories[0]), report, overrides, engine, arrivals, checkpoint)
    if json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        show(result)
    return result.verdict


def _override(text: str) -> tuple[str, Any]:
    """Parse KEY=VALUE into a key and a value of the header's type; UsageError if it is not valid."""
    from highwater.errors import UsageError
    from highwater.names import unknown_name
    from highwater.spec.formats.history import Config

    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"expected KEY=VALUE, not {text!r}", where="--config", hint=f"keys: {CONFIG_KEYS}")
    if key not in CONFIG_KEYS.split(", "):
        raise unknown_name("setting", key, CONFIG_KEYS.split(", "), "highwater audit --help", where="--config")
    try:
        config = msgspec.convert({key: value}, Config, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), where=f"--config {text}") from error
    return key, getattr(config, key)


def show(result: Any) -> None:
    """Print the table of rules, each finding with its witnesses, and then what was not judged and not covered."""
    from rich.console import Console

    from highwater.names import number_of

    console = Console(highlight=False)
    console.print(f"{result.history}: {result.verdict}", markup=False)
    judged = [row for row in result.rules if row.verdict != "not judged"]
    _show_rules(console, judged)
    for finding in result.findings:
        if finding.severity != "information":
            _show_finding(console, finding)
    _show_quarantine(console, result.quarantine)
    console.print()
    not_judged: dict[str, list[str]] = {}
    for row in result.rules:
        if row.verdict == "not judged":
            not_judged.setdefault(row.why, []).append(row.name)
    for why, names in not_judged.items():
        console.print(f"Not judged, since {why}: {', '.join(names)}.")
    if result.coverage is not None:
        console.print("\n" + "\n".join(result.coverage.lines()))
    if not result.operations:
        console.print("\nThe history holds no operation: is this the right file?")
    of_rules = f"{len(judged)} of {len(result.rules)} rules judged"
    console.print(f"\n{number_of(result.operations, 'operation')} audited, {of_rules}: {result.verdict}")


def _show_rules(console: "Console", judged: list[Any]) -> None:
    from rich.table import Table

    table = Table(box=None)
    for column in ("rule", "anomaly", "verdict", "found"):
        table.add_column(column)
    for row in judged:
        counts = ", ".join(f"{count} {severity}" for severity, count in row.counts.items())
        table.add_row(str(row.rule), row.name, row.verdict, ": ".join(filter(None, (counts, row.why))))
    console.print(table)


def _show_finding(console: "Console", finding: Any) -> None:
    from highwater.reports.page.conclusions import conclusions

    console.print(f"\n{finding.name} (rule {finding.rule}): {finding.count} {finding.severity}. {finding.sentence}")
    for part in finding.ranges[:RANGES_SHOWN]:
        console.print(f"  {part.words}", markup=False)
    if len(finding.ranges) > RANGES_SHOWN:
        console.print(f"  and {len(finding.ranges) - RANGES_SHOWN:,} more ranges of offsets")
    for evidence in finding.witnesses[:3]:
        place = conclusions().place(finding.rule, evidence.partition, evidence.offset)
        if [place] != [part.words for part in finding.ranges]:
            console.print(f"  {place}", markup=False)
        for witness in evidence.operations:
            until = witness.returned if witness.returned is not None else "never"
            console.print(f"    {witness.role}: {witness.words} (events {witness.invoked} to {until})")


def _show_quarantine(console: "Console", quarantine: Any) -> None:
    from highwater.names import number_of

    if not quarantine.count:
        return
    unused = number_of(quarantine.count, "line")
    console.print(f"\n{unused} could not be used, {quarantine.mattering:,} of which may matter:")
    for bad in quarantine.lines[:5]:
        console.print(f"  line {bad.line}: {bad.reason}", markup=False)


def report_command(
    runs: Annotated[list[Path], typer.Argument(help="Results folders; with --compare also folders of them.")],
    compare: Annotated[
        Path | None, typer.Option(help="Write one page instead that compares faults, guards and anomalies.")
    ] = None,
) -> None:
    """Write the page of a run: one HTML file that opens offline.

    --compare FILE takes folders with runs at any depth, and files with the output of `highwater audit --json`.

    Examples: highwater report results/20260101T120000Z-chaos · highwater report results --compare compared.html
    """
    from highwater.reports.compare import compare as compare_runs
    from highwater.reports.report import report

    if compare is not None:
        typer.echo(str(compare_runs(runs, compare)))
        return
    for run in runs:
        typer.echo(str(report(run)))

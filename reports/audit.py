"""Audit a history: read it, check every partition and the run, and describe findings with two witnesses."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError, Verdict, worst
from highwater.reports.anomalies import Anomaly, Severity, anomalies
from highwater.reports.columns import Fate
from highwater.reports.dataset.reader import is_dataset
from highwater.reports.dataset.storage import is_remote
from highwater.reports.execution.checkpoints import resume_checkpoints
from highwater.reports.execution.engines import Pool
from highwater.reports.execution.partitions import Engine, SameProcess
from highwater.reports.execution.reading import read
from highwater.reports.execution.spark import Spark
from highwater.reports.importers.formats import open_history
from highwater.reports.ingest.events import Ingest
from highwater.reports.ingest.history import Ingested
from highwater.reports.ingest.incarnations import incarnation_of
from highwater.reports.ingest.inventory import WITHOUT_OFFSET
from highwater.reports.objects import audit_objects
from highwater.reports.rules.checks.groups import with_names
from highwater.reports.rules.checks.outcomes import shown_commits
from highwater.reports.rules.findings import Promise, RuleFindings, Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.run import check_run
from highwater.reports.rules.step_findings import StepFinding
from highwater.reports.verdicts import AuditResult, Coverage, Finding, RuleRow, RuleVerdict
from highwater.reports.witnesses import describe
from highwater.spec.formats.history import Config, Event, begins_fault, kinds_of_faults
from highwater.temporary import temporary_folder

IN_MEMORY_BYTES: Final = 256 << 20
"""Bytes of NDJSON that are read into memory: about a million operations, which need as much memory again."""
PACKED: Final = 12  # compression ratio of a .gz history
COUNTED: Final = ("acknowledged", "refused", "unknown", "reads", "records_read", "ends_reached", "faults_met")


def audit(
    where: Path | str,
    *,
    overrides: dict[str, Any] | None = None,
    engine: Engine | None = None,
    format_: str | None = None,
    out: Path | None = None,
) -> AuditResult:
    """Audit one history in the format `format_`, or the detected one; UsageError if nothing of it can be read.

    With `out`, keep it there as a dataset.
    """
    opened = None
    if out is not None and ":/" in str(out):
        raise UsageError(
            "a dataset is written to a disk only", where=f"--out {out}", hint="write it to a folder and copy that"
        )
    if isinstance(engine, Spark) and is_remote(where):
        engine.session()  # its file system reads the address
    if not is_dataset(where):
        opened = open_history(str(where), format_)
        if opened.config.workload != "log":
            return audit_objects(opened, str(where))
    if isinstance(engine, Spark) and out is None and opened is not None and not engine.is_local:
        hint = "name a folder that all executors see, with --out"
        raise UsageError("the executors cannot read a temporary folder of this machine", where=str(where), hint=hint)
    with _place(where, out, isinstance(engine, Spark)) as folder:
        return audit_history(read(where, overrides, format_, folder, opened), str(where), engine)


@contextmanager
def _place(where: Path | str, out: Path | None, shared: bool) -> Iterator[Path | None]:
    """Yield the folder for the dataset: `out`, None to read into memory, or a temporary folder for a large history."""
    path = Path(where)
    large = path.is_file() and path.stat().st_size * (PACKED if path.suffix == ".gz" else 1) >= IN_MEMORY_BYTES
    if out is not None or not (large or shared):
        yield out
        return
    with temporary_folder("audit-") as folder:
        yield folder / "dataset"


def audit_events(config: Config, events: Iterable[Event], name: str) -> AuditResult:
    """Audit events in memory, in this process; they are numbered in their order, and have no header."""
    reading = Ingest()
    for event in events:
        reading.take(event)
    return audit_history(reading.ingested(config), name, SameProcess())


def audit_history(history: Ingested, name: str, engine: Engine | None = None) -> AuditResult:
    """Audit a history that was read, in a local pool unless another engine is given."""
    engine = engine or Pool()
    _note_shown_commits(engine, history)
    with resume_checkpoints(engine, history) as map_partitions:
        findings_by_partition, step_findings = check_run(
            map_partitions,
            history.tables,
            Promise.of(history.config, history.shown_commits),
            without_offset=WITHOUT_OFFSET in history.inventory.data,
        )
    deleted = _deleted_partitions(history)
    findings_by_partition = [
        (key, replace(f, weight=Weight.INFORMATION) if f.rule == Rule.UNSEEN and key in deleted else f)
        for key, f in findings_by_partition
    ]
    findings = []
    for rule, anomaly in anomalies().items():
        for severity in Severity:
            parts = [
                (key, f)
                for key, f in findings_by_partition
                if f.rule == rule and _severity(anomaly, f, history) is severity
            ]
            steps = [t for t in step_findings if t.rule == rule and _severity(anomaly, t, history) is severity]
            if parts or steps:
                findings.append(describe(anomaly, severity, parts, steps, history))
    findings.sort(key=lambda finding: (list(Severity).index(finding.severity), finding.rule))
    rules = [_rule_row(anomaly, findings, history) for anomaly in anomalies().values()]
    return AuditResult(
        verdict=_verdict(rules, history),
        coverage=_coverage(rules, history),
        operations=history.operations,
        history=name,
        format=history.format,
        config=history.config,
        quarantine=history.quarantine,
        rules=rules,
        findings=findings,
        faults=kinds_of_faults(history.faults),
    )


def _note_shown_commits(engine: Engine, history: Ingested) -> None:
    """Note the transactions of unknown outcome that reads prove to have committed, before the rules run."""
    shown = shown_commits(partial(engine.map_partitions, history), with_names(history.tables))
    history.shown_commits = tuple(sorted({*history.shown_commits, *shown}))
    for txn in shown:
        history.tables.transactions.fate[txn] = Fate.COMMITTED


def _deleted_partitions(history: Ingested) -> set[str]:
    """Return the partitions of topics that were deleted: their unread records are gone with them."""
    ended = history.inventory.ended_topics
    if not ended:
        return set()
    found = {key: incarnation_of(key) for key in history.partitions}
    return {key for key, (topic, life) in found.items() if life < ended.get(topic, 0)}


def _is_explained(anomaly: Anomaly, history: Ingested) -> bool:
    """Return whether the settings that allow an anomaly allow it here: some of them do so only when a broker fails."""
    allowed = set(anomaly.allowed_by(history.config))
    return not allowed <= ALLOW_AROUND_FAULTS or bool(kinds_of_faults(history.faults))


ALLOW_AROUND_FAULTS: Final = {"acks=1", "unclean_election=true"}
"""Settings that allow a loss when a leader fails; without a failure Kafka loses nothing under them."""
VERDICT_OF_RULE: Final = {
    RuleVerdict.HELD: Verdict.VALID, RuleVerdict.NOT_JUDGED: Verdict.VALID, RuleVerdict.VIOLATED: Verdict.INVALID,
    RuleVerdict.UNDECIDED: Verdict.UNKNOWN,
}  # fmt: skip


def _verdict(rules: list[RuleRow], history: Ingested) -> Verdict:
    """Return the worst verdict of the rules; never VALID if no rule was judged or a quarantined line matters."""
    verdicts = [VERDICT_OF_RULE[row.verdict] for row in rules]
    if all(row.verdict is RuleVerdict.NOT_JUDGED for row in rules) or history.quarantine.mattering:
        verdicts.append(Verdict.UNKNOWN)
    return worst(verdicts)


def _coverage(rules: list[RuleRow], history: Ingested) -> Coverage:
    found = {row.rule: sum(row.counts.values()) for row in rules}
    counted = {name: getattr(history.inventory, name) for name in COUNTED}
    return Coverage(
        **counted,
        lost=found[Rule.LOST_WRITE],
        unread=found[Rule.UNSEEN],
        partitions=len(history.partitions),
        faults=sum(map(begins_fault, history.faults)),
        trailer=history.quarantine.trailer,
    )


def _severity(anomaly: Anomaly, finding: RuleFindings | StepFinding, history: Ingested) -> Severity:
    certain = finding.weight is Weight.CERTAIN
    severity = anomaly.severity if certain else anomaly.judge(history.config)
    if finding.weight is Weight.INFORMATION:
        return Severity.INFORMATION
    if finding.weight is Weight.UNDECIDED and severity is Severity.VIOLATION:
        return Severity.UNDECIDED
    if severity is Severity.EXPECTED and not _is_explained(anomaly, history):
        return Severity.UNDECIDED
    if severity is Severity.VIOLATION and history.quarantine.leaves_open(anomaly.rule):
        return Severity.UNDECIDED
    return severity


def _rule_row(anomaly: Anomaly, findings: list[Finding], history: Ingested) -> RuleRow:
    mine = {finding.severity: finding.count for finding in findings if finding.rule == anomaly.rule}
    unseen = sum(f.count for f in findings if f.rule == Rule.UNSEEN and f.severity is Severity.UNDECIDED)
    verdict, why = RuleVerdict.HELD, ""
    if anomaly.rule is Rule.LOST_WRITE and unseen and Severity.VIOLATION not in mine:
        verdict, why = RuleVerdict.UNDECIDED, f"{unseen:,} acknowledged records were never read"
    elif Severity.VIOLATION in mine:
        verdict = RuleVerdict.VIOLATED
    elif Severity.UNDECIDED in mine:
        verdict, why = RuleVerdict.UNDECIDED, _what_decides(anomaly, history)
    elif not mine and (missing := anomaly.missing_data(history.inventory.data, history.config)):
        verdict, why = RuleVerdict.NOT_JUDGED, f"the history lacks {', '.join(missing)}"
    return RuleRow(
        rule=anomaly.rule, name=anomaly.name, sentence=anomaly.sentence, verdict=verdict, why=why, counts=mine
    )


def _what_decides(anomaly: Anomaly, history: Ingested) -> str:
    """Return what the user can do to decide a rule."""
    if missing := anomaly.missing_settings(history.config):
        return " ".join(f"--config {key}=..." for key in missing) + " decides"
    if anomaly.judge(history.config) is Severity.EXPECTED:
        allowed = " and ".join(anomaly.allowed_by(history.config))
        return f"{allowed} allows it around a fault, and this history records none"
    if history.quarantine.leaves_open(anomaly.rule):
        return "lines that could not be used may explain it"
    return f"{anomaly.decided_by} would decide"

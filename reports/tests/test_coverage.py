"""A verdict says what it covered: nothing that was acknowledged and not accounted for is called valid."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from highwater.errors import UsageError
from highwater.reports.audit import audit
from highwater.reports.command_line import show
from highwater.reports.dataset.schema import bucket_file
from highwater.reports.importers.tests.jepsen_runs import healthy as jepsen_run
from highwater.reports.importers.tests.jepsen_runs import lines
from highwater.reports.report import report_history
from highwater.reports.rules.rule import Rule
from highwater.reports.tests.histories import History
from highwater.reports.verdicts import AuditResult
from highwater.spec.formats.history import Config

REAL = Path(__file__).parents[2] / "examples" / "histories" / "verifiable-apache-kafka-4.3.1"
PROMISED = {"acks": "all", "unclean_election": False, "retention": False, "compaction": False, "idempotence": True}


def verdict_on(result: AuditResult, rule: Rule) -> str:
    return next(row.verdict for row in result.rules if row.rule == rule)


def unread_of(result: AuditResult) -> int:
    assert result.coverage is not None
    return result.coverage.unread


def test_a_log_without_any_reader_is_undecided() -> None:
    result = audit(REAL / "producer.log", overrides=PROMISED)
    assert (result.verdict, unread_of(result)) == ("unknown", 400)
    assert verdict_on(result, Rule.LOST_WRITE) == verdict_on(result, Rule.UNSEEN) == "undecided"


def test_a_reader_that_stops_early_leaves_the_rest_undecided(tmp_path: Path) -> None:
    for name in ("producer.log", "consumer.log"):
        text = (REAL / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(text if name == "producer.log" else _records_below(text, 248)))
    result = audit(tmp_path, overrides=PROMISED)
    assert (result.verdict, unread_of(result)) == ("unknown", 152)
    assert verdict_on(result, Rule.LOST_WRITE) == verdict_on(result, Rule.UNSEEN) == "undecided"


def _records_below(text: list[str], end: int) -> list[str]:
    """Drop everything that the consumer logged from offset `end` on."""
    found = []
    for line in text:
        event: dict[str, Any] = json.loads(line)
        if event.get("offset", -1) >= end:
            continue
        for part in event.get("partitions", []):
            part["maxOffset"], part["count"] = end - 1, end
        found.append(json.dumps(event) + "\n")
    return found


@pytest.mark.parametrize("missing", [0, 1, 30])
def test_a_tail_that_no_poll_returned_is_undecided(tmp_path: Path, missing: int) -> None:
    run = jepsen_run(400, keys=1)
    sent = max(value[2][1] for op in run.ops if op[":f"] == ":send" and op[":type"] == ":ok" for value in op[":value"])
    for op in run.ops:
        if op[":f"] == ":poll" and op[":type"] == ":ok":
            for _, polled in op[":value"]:
                polled[2:] = [[pair for pair in pairs if pair[1] <= sent - missing] for pairs in polled[2:]]
    (tmp_path / "history.edn").write_bytes(lines(run.ops))
    result = audit(tmp_path / "history.edn", overrides=PROMISED)
    assert (result.verdict, unread_of(result)) == (("unknown", missing) if missing else ("valid", 0))


def test_an_acknowledged_record_without_offset_must_be_read_too(tmp_path: Path) -> None:
    for read, verdict in ((True, "valid"), (False, "unknown")):
        h = History()
        h.send(1, 0)
        h.send(2)  # acknowledged at an unknown offset
        h.fetch(0, (0, 1), *([(1, 2)] if read else []), end=2 if read else 1)
        result = audit(h.write(tmp_path / "history.ndjson"))
        assert (result.verdict, unread_of(result)) == (verdict, 0 if read else 1)


@pytest.mark.parametrize("setting", [{"acks": "1"}, {"unclean_election": True}])
def test_an_unread_record_decides_nothing_if_the_settings_allow_its_loss(
    tmp_path: Path, setting: dict[str, Any]
) -> None:
    h = History()
    h.send(1, 0)
    h.send(2, 1)
    h.fetch(0, (0, 1), end=1)
    path = h.write(tmp_path / "history.ndjson")
    assert audit(path, overrides=setting).verdict == "unknown"  # without a fault these settings lose nothing
    h.kill()
    path = h.write(tmp_path / "history.ndjson")
    assert audit(path).verdict == "unknown"
    assert audit(path, overrides=setting).verdict == "valid"


@pytest.mark.parametrize("setting", [{"acks": "1"}, {"unclean_election": True}])
def test_a_loss_that_no_fault_explains_is_undecided(tmp_path: Path, setting: dict[str, Any]) -> None:
    h = History()
    for value in range(3):
        h.send(value, value)
    h.fetch(0, (0, 0), (2, 2), end=3)
    result = audit(h.write(tmp_path / "history.ndjson"), overrides=setting)
    (finding,) = [finding for finding in result.findings if finding.rule == Rule.LOST_WRITE]
    assert (result.verdict, finding.severity) == ("unknown", "undecided")
    why = next(row.why for row in result.rules if row.rule == Rule.LOST_WRITE)
    assert why.endswith("allows it around a fault, and this history records none")


def test_a_rule_whose_data_the_history_lacks_is_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    h = History()
    h.send(1, 0)
    h.fetch(0, (0, 1), end=1)
    path = h.write(tmp_path / "history.ndjson")
    result = audit(path)
    assert result.verdict == "valid"
    judged = {row.rule for row in result.rules if row.verdict == "held"}
    assert {Rule.LOST_WRITE, Rule.UNSEEN, Rule.HIGH_WATERMARK_REGRESSION} <= judged
    assert not judged & {Rule.TORN_TRANSACTION, Rule.DOUBLE_OWNERSHIP, Rule.REPLICA_DIVERGENCE, Rule.STUCK}
    show(result)
    printed = capsys.readouterr().out
    assert "Not judged, since the history lacks replica dumps: replica-divergence." in printed
    assert "Acknowledged sends: 1, of which 0 lost and none unread." in printed
    assert "Little was at stake: this history has no fault." in printed
    page = report_history(str(path), result, tmp_path / "page.html").read_text()
    assert "Acknowledged sends: 1, of which 0 lost and none unread." in page
    assert "the history lacks replica dumps" in page


def test_findings_are_printed_before_what_was_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    h = History()
    for value in range(3):
        h.send(value, value)
    h.fetch(0, (0, 0), (2, 2), end=3)
    show(audit(h.write(tmp_path / "history.ndjson")))
    printed = capsys.readouterr().out
    parts = ("lost-write (rule", "Not judged, since", "Acknowledged sends:", "operations audited")
    places = [printed.index(part) for part in parts]
    assert places == sorted(places)


def test_a_stale_read_is_undecided_while_it_is_not_known_that_acknowledgements_prove_an_end(tmp_path: Path) -> None:
    h = History(Config())
    for value in range(3):
        h.send(value, value, leader_epoch=5)
    h.list_offsets(1, epoch=5)
    h.fetch(0, (0, 0), (1, 1), (2, 2), end=3, epoch=5)
    path = h.write(tmp_path / "history.ndjson")
    result = audit(path)
    (row,) = [row for row in result.rules if row.rule == Rule.STALE_READ]
    assert (result.verdict, row.verdict, row.why) == ("unknown", "undecided", "--config acks=... decides")
    assert audit(path, overrides={"acks": "all"}).verdict == "invalid"
    assert audit(path, overrides={"acks": "1"}).verdict == "valid"


@pytest.mark.parametrize("fetching", [9, 57])
def test_a_witness_names_the_process_of_the_history(fetching: int, tmp_path: Path) -> None:
    h = History()
    for value in range(3):
        h.send(value, value, process=21)
    h.fetch(0, (0, 0), (2, 2), end=3, process=fetching)
    (finding,) = [each for each in audit(h.write(tmp_path / "history.ndjson")).findings if each.rule == Rule.LOST_WRITE]
    assert [each.process for each in finding.witnesses[0].operations] == [21, fetching]


def test_a_cluster_that_answers_nothing_after_the_faults_is_not_judged_for_progress(tmp_path: Path) -> None:
    def verdict(*, answered: bool) -> tuple[str, str]:
        h = History()
        h.send(1, 0)
        h.fetch(0, (0, 1), end=1)
        h.kill()
        h.phase("final")
        if answered:
            h.fetch(0, (0, 1), end=1)
        else:
            h.begin(60, "fetch", position=0, leader_epoch=0)
            h.end(60, "info")
        result = audit(h.write(tmp_path / "history.ndjson"), overrides={"patience_ms": 4})
        return next((row.verdict, row.why) for row in result.rules if row.rule == Rule.STUCK)

    assert verdict(answered=True)[0] == "held"
    lacking = "the history lacks high watermarks of the final phase or descriptions of groups"
    assert verdict(answered=False) == ("not judged", lacking)


def test_the_page_repeats_the_audit_with_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = REAL / "producer.log"
    result = audit(path, overrides=PROMISED)
    page = report_history(str(path), result, tmp_path / "page.html", ["acks=all", "idempotence=true"]).read_text()
    assert f"highwater audit {path} --config=acks=all --config=idempotence=true" in page
    show(result)
    assert " : " not in capsys.readouterr().out


def test_a_history_in_which_nothing_was_judged_is_undecided(tmp_path: Path) -> None:
    result = audit(History().write(tmp_path / "history.ndjson"))
    assert result.verdict == "unknown"
    assert {row.verdict for row in result.rules} == {"not judged"}


def test_a_dataset_has_the_same_coverage_as_its_history(tmp_path: Path) -> None:
    path = REAL.parent / "follower-reads-apache-kafka-4.3.1.ndjson.gz"
    audit(path, out=tmp_path / "dataset")
    here, stored = audit(path), audit(tmp_path / "dataset")
    assert stored.coverage == here.coverage
    assert stored.rules == here.rules


def test_every_rule_names_data_that_histories_can_have() -> None:
    from highwater.reports.anomalies import anomalies
    from highwater.reports.ingest.inventory import DATA

    for anomaly in anomalies().values():
        assert anomaly.data, anomaly.name
        for name in anomaly.data:
            assert name.startswith("the setting ") or set(name.split(" or ")) <= DATA, (anomaly.name, name)


# -- an account of the input -------------------------------------------------------------------------

SEND = '{"index":0,"time_ns":0,"process":0,"type":"invoke","f":"send","topic":"t","partition":0,"value":1}\n'
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"index":1,"time_ns":0,"process":5,"type":"invoke","f":"consume"}', "'consume' is no operation"),
        ('{"index":1,"time_ns":0,"process":0,"type":"ok","f":"send","ofset":0}', "unknown field `ofset`"),
        ('{"index":1,"time_ns":0,"process":0,"type":"ok","f":"send","value":' + DEEP + "}", "recursion depth"),
    ],
    ids=["unknown operation", "misspelt field", "nested deeply"],
)
def test_a_line_that_means_nothing_is_counted(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "history.ndjson").write_text(SEND + line + "\n")
    result = audit(tmp_path / "history.ndjson", overrides=PROMISED)
    assert (result.verdict, result.quarantine.mattering) == ("unknown", 1)
    assert reason in result.quarantine.lines[0].reason


def test_edn_that_is_nested_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history.edn").write_text("{:process 0 :type :invoke :f :send :value " + DEEP + "}\n")
    with pytest.raises(UsageError, match="nested more than 200 deep"):
        audit(tmp_path / "history.edn", overrides=PROMISED)


def _swap(dataset: Path) -> None:
    for here, there in ((0, 99), (1, 0), (99, 1)):
        bucket_file(dataset, here).rename(bucket_file(dataset, there))


def _halve(dataset: Path) -> None:
    table = pq.read_table(bucket_file(dataset, 0))
    pq.write_table(table.slice(0, len(table) // 2), bucket_file(dataset, 0))


def _empty(dataset: Path) -> None:
    pq.write_table(pq.read_table(bucket_file(dataset, 0)).slice(0, 0), bucket_file(dataset, 0))


def _drop_records(dataset: Path) -> None:
    """Remove the records of all reads, and keep the rows."""
    table = pq.read_table(bucket_file(dataset, 0))
    for name in ("record_offset", "record_value"):
        column = pa.array([[] for _ in range(len(table))], table.schema.field(name).type)
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    pq.write_table(table, bucket_file(dataset, 0))


@pytest.mark.parametrize("damage", [_swap, _halve, _empty, _drop_records])
def test_a_dataset_without_its_rows_is_damaged(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    audit(REAL.parent / "compaction-apache-kafka-4.3.1.ndjson.gz", out=tmp_path / "dataset")
    damage(tmp_path / "dataset")
    with pytest.raises(UsageError, match=r"damaged: it holds .* of .* operations"):
        audit(tmp_path / "dataset")

"""Logs of Kafka's verifiable tools: real ones of Apache Kafka 4.3.1, and changed ones with anomalies."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from highwater.errors import UsageError
from highwater.reports.audit import audit
from highwater.reports.importers.formats import open_history
from highwater.reports.importers.inputs import histories
from highwater.reports.verdicts import AuditResult

REAL = Path("examples/histories/verifiable-apache-kafka-4.3.1")
PROMISED = {"acks": "all", "unclean_election": False, "retention": False, "compaction": False, "idempotence": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(REAL, tmp_path / "run")
    return tmp_path / "run"


def audited(folder: Path) -> tuple[AuditResult, dict[str, int]]:
    (where,) = histories(str(folder))
    result = audit(where, overrides=PROMISED)
    return result, {each.name: each.count for each in result.findings if each.severity == "violation"}


def rewrite(path: Path, change: Any) -> None:
    """Replace each line by the result of `change`; None removes it."""
    lines = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines if line is not None))


def test_a_real_run_is_valid(folder: Path) -> None:
    result, found = audited(folder)
    assert (result.verdict, result.format, result.quarantine.count, found) == ("valid", "verifiable", 0, {})
    assert result.operations >= 401


def test_a_record_that_the_consumer_skipped_is_lost(folder: Path) -> None:
    rewrite(folder / "consumer.log", lambda line: None if line.get("value") == "77" else line)
    assert audited(folder)[1]["lost-write"] == 1


def test_a_record_without_a_send_is_a_phantom_only_if_all_sends_are_known(folder: Path) -> None:
    rewrite(folder / "producer.log", lambda line: None if line.get("value") == "77" else line)
    assert audited(folder)[1] == {"phantom-read": 1}
    rewrite(folder / "producer.log", lambda line: None if line["name"] == "tool_data" else line)
    assert audited(folder)[1] == {}


def test_a_record_at_two_offsets_is_a_duplicate(folder: Path) -> None:
    def twice(line: Any) -> Any:
        return {**line, "value": "5"} if line.get("value") == "77" and line["name"] == "record_data" else line

    rewrite(folder / "consumer.log", twice)
    assert {"duplicate", "inconsistent-offsets"} <= set(audited(folder)[1])


def test_a_poll_without_records_is_read_from_its_offset_range(folder: Path) -> None:
    rewrite(folder / "consumer.log", lambda line: None if line["name"] == "record_data" else line)
    result, found = audited(folder)
    assert (result.verdict, found) == ("valid", {})
    for change, verdict in ({"maxOffset": 300, "count": 301}, "unknown"), ({"count": 300}, "unknown"):

        def changed(line: Any, change: Any = change) -> Any:
            parts = [{**part, **change} for part in line.get("partitions", [])]
            return {**line, "partitions": parts} if line["name"] == "records_consumed" else line

        rewrite(folder / "consumer.log", changed)
        assert audited(folder)[0].verdict == verdict


def test_a_failed_send_may_have_any_offset(folder: Path) -> None:
    def failed(line: Any) -> Any:
        return {**line, "name": "producer_send_error", "partition": None} if line.get("value") == "77" else line

    rewrite(folder / "producer.log", failed)
    assert audited(folder)[1] == {}


def test_producers_with_equal_values_are_refused(folder: Path) -> None:
    shutil.copy(folder / "producer.log", folder / "producer2.log")
    with pytest.raises(UsageError, match="--value-prefix"):
        open_history(str(folder))


def test_a_truncated_line_is_quarantined_and_other_output_ignored(folder: Path) -> None:
    path = folder / "consumer.log"
    path.write_text("WARN of log4j\n" + path.read_text() + '{"timestamp":1,"name":"record_da')
    result, found = audited(folder)
    assert (result.verdict, result.quarantine.count, found) == ("unknown", 1, {})
    assert "consumer.log" in result.quarantine.lines[0].reason


def test_one_log_is_a_history_too() -> None:
    for name, verdict in ("producer.log", "unknown"), ("consumer.log", "valid"):
        assert audit(REAL / name, overrides=PROMISED).verdict == verdict

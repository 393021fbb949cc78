"""The histories in `examples/`: the audit of each matches its row in the table of the README."""

import gzip
import re
from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.reports.audit import audit
from highwater.reports.page.lanes import windows
from highwater.spec.formats.history import NEMESIS, read_history

FOLDER = Path("examples/histories")
ROW = re.compile(r"\| `(?P<file>[^`]+)` \|[^|]+\| (?P<verdict>valid|invalid)(: (?P<lost>\d+) acknowledged)?")
ROWS = [row for row in map(ROW.match, (FOLDER / "README.md").read_text().splitlines()) if row]


def test_every_example_has_its_row() -> None:
    assert sorted(row["file"] for row in ROWS) == sorted(path.name for path in FOLDER.glob("*.gz"))
    assert len(ROWS) >= 4


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["file"]))
def test_the_audit_of_an_example_matches_its_row(row: "re.Match[str]") -> None:
    result = audit(FOLDER / row["file"])
    assert result.verdict == row["verdict"]
    lost = [finding.count for finding in result.findings if finding.name == "lost-write"]
    assert lost == ([int(row["lost"])] if row["lost"] else [])


def test_followers_served_the_readers_of_their_racks() -> None:
    leaders: dict[str, str] = {}
    fetches = {"leader": 0, "follower": 0}
    for event in read_history(FOLDER / "follower-reads-apache-kafka-4.3.1.ndjson.gz")[1]:
        if event.f == "metadata" and event.type == "ok":
            leaders |= {key: str(leader) for key, (leader, _) in (event.value or {}).items()}
        elif event.f == "fetch" and event.type == "ok" and event.value:
            fetches["leader" if leaders[f"{event.topic}-{event.partition}"] == event.node else "follower"] += 1
    assert min(fetches.values()) > 500


def test_compacted_records_are_lost_only_without_the_compaction_setting() -> None:
    history = FOLDER / "compaction-apache-kafka-4.3.1.ndjson.gz"
    assert audit(history).findings == []
    without = audit(history, overrides={"compaction": False})
    assert without.verdict == "invalid"
    assert [finding.name for finding in without.findings] == ["truncated-after-read"]


def test_the_page_shades_the_faults_of_an_example() -> None:
    _, events = read_history(FOLDER / ROWS[0]["file"])
    found = windows([event for event in events if event.process == NEMESIS], duration_s=60)
    assert [(window.kind, window.node) for window in found] == [("bounce", "1"), ("kill", "1"), ("kill", "2")]
    assert all(window.start_s < window.end_s for window in found)


def test_a_truncated_compressed_history_is_reported(tmp_path: Path) -> None:
    whole = (FOLDER / ROWS[0]["file"]).read_bytes()
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    *_, bad = audit(tmp_path / "cut.gz").quarantine.lines
    assert "cannot be decompressed further" in bad.reason
    (tmp_path / "other.gz").write_bytes(b"no gzip at all")
    with pytest.raises(UsageError, match="the format is unknown"):
        audit(tmp_path / "other.gz")
    (tmp_path / "empty.gz").write_bytes(gzip.compress(b""))
    assert audit(tmp_path / "empty.gz").verdict == "unknown"

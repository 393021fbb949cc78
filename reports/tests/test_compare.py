"""The page that compares runs: each anomaly with the faults and missing guards of the runs that have it."""

import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from highwater.command_line import application
from highwater.errors import UsageError
from highwater.reports.audit import audit
from highwater.reports.compare import ALL_GUARDS, NO_FAULTS, compare
from highwater.reports.report import report
from highwater.reports.tests.test_kernel import healthy
from highwater.reports.tests.test_report import broken
from highwater.reports.verdicts import write_verdict
from highwater.results import Run, write_json


def three_runs(root: Path) -> Path:
    """Write a valid run, an invalid one with a kill in its history, and one with a schedule and a guard off."""
    for name, history in (("a", healthy()), ("b", broken()), ("c", broken())):
        folder = root / name
        folder.mkdir(parents=True)
        write_verdict(folder, audit(history.write(folder / "history.ndjson")))
    write_json(root / "c" / "about.json", {"guards_off": ["AckAfterCommit"]})
    write_json(root / "c" / "schedule.json", {"duration_ms": 1, "faults": [{"kind": "pause"}, {"kind": "cut"}]})
    command = ["highwater", "chaos", "--guard", "FenceOldLeader=off"]
    write_json(root / "b" / "run.json", Run(what="chaos", started="", command=command, target="reference:3"))
    report(root / "b")
    return root


def rows(page: Path, title: str) -> dict[str, list[str]]:
    """Return the cells of a matrix by cause."""
    table = page.read_text().split(f"<h3>{title}</h3>")[1].split("</table>")[0]
    found = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[1:]]
    return {row[0]: row[1:] for row in found}


def test_each_fault_and_guard_has_the_anomalies_of_its_runs(tmp_path: Path) -> None:
    page = compare([three_runs(tmp_path / "runs")], tmp_path / "compared.html")
    assert rows(page, "By fault") == {
        "": ["runs", "lost-write"], NO_FAULTS: ["1", ""], "kill": ["1", "1"], "pause": ["1", "1"], "cut": ["1", "1"],
    }  # fmt: skip
    by_guard = rows(page, "By guard that was off")
    assert {cause: cells for cause, cells in by_guard.items() if cause} == {
        ALL_GUARDS: ["1", ""], "AckAfterCommit": ["1", "1"], "FenceOldLeader": ["1", "1"],
    }  # fmt: skip
    assert rows(page, "By target")["reference:3"] == ["1", "1"]
    assert '<a href="runs/b/report.html">' in page.read_text()


def test_the_printed_audits_of_several_histories_are_compared_too(tmp_path: Path) -> None:
    root = three_runs(tmp_path / "runs")
    results = [audit(root / name / "history.ndjson") for name in "ab"]
    printed = tmp_path / "audits.json"
    printed.write_bytes(msgspec.json.encode({"verdict": "invalid", "histories": results}))
    page = compare([printed], tmp_path / "compared.html")
    assert rows(page, "By fault") == {"": ["runs", "lost-write"], NO_FAULTS: ["1", ""], "kill": ["1", "1"]}


def test_a_folder_without_verdicts_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        compare([tmp_path], tmp_path / "compared.html")
    (tmp_path / "odd.json").write_text("[1]")
    with pytest.raises(UsageError, match="not a verdict"):
        compare([tmp_path / "odd.json"], tmp_path / "compared.html")


def test_audit_writes_a_page_of_one_history_and_a_comparison_of_several(tmp_path: Path) -> None:
    root = three_runs(tmp_path / "runs")
    one, many = tmp_path / "one.html", tmp_path / "many.html"
    printed = CliRunner().invoke(application("audit"), ["audit", str(root / "b"), "--html", str(one), "--json"])
    assert printed.exit_code == 1
    assert msgspec.json.decode(printed.stdout)["verdict"] == "invalid"
    assert "A promise was broken: 1 lost-write" in one.read_text()
    (root / "broken").mkdir()
    (root / "broken" / "history.ndjson").write_text("no history at all")
    printed = CliRunner().invoke(application("audit"), ["audit", str(root), "--html", str(many)])
    assert printed.exit_code == 1
    assert "1 unknown" in many.read_text()
    assert "the format is unknown" in many.read_text()
    assert rows(many, "By fault")["kill"] == ["1", "1"]
    assert rows(many, "By guard that was off")["AckAfterCommit"] == ["1", "1"]

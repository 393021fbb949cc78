"""Stored runs as one matrix with history."""

import re
from pathlib import Path

import msgspec
import pytest

from highwater.command_line import main
from highwater.conformance.report import Report, TargetReport
from highwater.conformance.reports.compare import VerdictChange
from highwater.conformance.reports.history import NAMED, merge_runs
from highwater.conformance.reports.markdown import areas_markdown
from highwater.conformance.reports.page import page
from highwater.conformance.running.verdicts import CaseVerdict
from highwater.conformance.tests.sample_reports import HOSTILE, failed, passed, report, target


def run(day: int, *targets: TargetReport) -> Report:
    found = report(*targets)
    stamp = msgspec.structs.replace(found.run, started=f"2026-01-{day:02}T00:00:00+00:00")
    return msgspec.structs.replace(found, run=stamp)


OLD = run(1, target("a:1", failed("PRD-1"), passed("PRD-2"), passed("MD-1")), target("b:1", passed("PRD-1")))
NEW = run(2, target("a:1", passed("PRD-1"), failed("PRD-2"), passed("MD-1"), passed("MD-2")))


@pytest.mark.parametrize("files", [[OLD, NEW], [NEW, OLD]])
def test_the_newest_run_of_each_target_is_its_column(files: list[Report]) -> None:
    merged, history = merge_runs(files)
    assert {column.target: len(column.cases) for column in merged.targets} == {"a:1": 4, "b:1": 1}
    assert merged.run.started.startswith("2026-01-02")
    runs = {past.target: [(each.day, each.kept, each.must) for each in past.runs] for past in history}
    assert runs == {"a:1": [("2026-01-02", 3, 4), ("2026-01-01", 2, 3)], "b:1": [("2026-01-01", 1, 1)]}


def test_changes_are_named_and_counted() -> None:
    _, history = merge_runs([OLD, NEW])
    newest, first = history[0].runs
    assert newest.named == {VerdictChange.BROKE: ["PRD-2"], VerdictChange.FIXED: ["PRD-1"]}
    assert newest.counted == {VerdictChange.ADDED: 1}
    assert (first.named, first.counted) == ({}, {})


def test_many_changes_are_cut() -> None:
    cases = [f"MD-1[{number}]" for number in range(NAMED + 5)]
    _, (past,) = merge_runs([run(1, target("a:1", *map(passed, cases))), run(2, target("a:1", *map(failed, cases)))])
    assert past.runs[0].named[VerdictChange.BROKE] == [*cases[:NAMED], "5 more"]


def test_the_line_rises_with_the_share() -> None:
    _, history = merge_runs([OLD, NEW])
    (_, before), (_, after) = (tuple(map(float, point.split(","))) for point in history[0].line.split())
    assert after < before  # SVG counts from the top


def test_the_page_has_all_runs_and_no_foreign_markup() -> None:
    hostile = run(3, target(HOSTILE, passed("PRD-1")))
    merged, history = merge_runs([OLD, NEW, hostile])
    html = page(merged, history)
    assert html.count("2026-01-01") == 2
    assert "<script>alert" not in html
    assert "History" not in page(merged)


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, found in (("old", OLD), ("new", NEW)):
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(found))
    html = tmp_path / "site" / "index.html"
    with pytest.raises(SystemExit) as ended:
        main(["matrix", str(tmp_path / "old.json"), str(tmp_path / "new.json"), "--html", str(html)])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{html}: 2 targets, 3 runs\n"
    assert "2026-01-02" in html.read_text()


def test_the_table_counts_the_decided_cases_of_each_area() -> None:
    skipped = msgspec.structs.replace(passed("PRD-2"), verdict=CaseVerdict.UNSUPPORTED)
    one, other = target("a:1", passed("PRD-1"), failed("PRD-1[late]"), skipped), target("b:1", skipped)
    text = areas_markdown(merge_runs([run(1, one, other)])[0])
    assert "| Produce | 1 / 2 | – |" in text
    assert "| **all** | **1 / 2** | **–** |" in text
    assert "| not decided | 1 | 1 |" in text
    assert re.search(r"a:1.*: 3 cases; b:1.*: 1 cases", text)

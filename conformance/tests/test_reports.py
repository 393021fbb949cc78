"""Reports are complete and valid for any text that a target returns."""

import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import markupsafe
import msgspec
import pytest

from highwater.conformance.report import Report, TargetReport
from highwater.conformance.reports.badge import badge
from highwater.conformance.reports.clause_list import clause_page
from highwater.conformance.reports.console import show
from highwater.conformance.reports.files import ReportFiles
from highwater.conformance.reports.junit import junit
from highwater.conformance.reports.markdown import areas_markdown, escape, markdown
from highwater.conformance.reports.page import failure_groups, page
from highwater.conformance.reports.sources import link_source
from highwater.conformance.running.verdicts import CaseVerdict, Expectation
from highwater.conformance.tests.sample_reports import HOSTILE, STAMP, failed, passed, report, result, target
from highwater.errors import UsageError
from highwater.spec.clauses import load_clauses

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
RENDERERS = [page, markdown, junit]


def two() -> Report:
    """Return a report of a target with one failure, and of librdkafka's mock with an expected failure."""
    one = target(
        "localhost:9092", passed("API-3"), failed("PRD-7"), result("MD-9", CaseVerdict.NON_STRICT, "a SHOULD"),
        result("FET-9", CaseVerdict.UNSUPPORTED, "Fetch v7 or newer is not advertised"),
        result("LST-1", CaseVerdict.FLAKY, "fail, then pass"),
    )  # fmt: skip
    return report(one, target("librdkafka-mock", failed("API-3"), passed("PRD-7")))


def hostile() -> Report:
    return report(target(HOSTILE, failed("PRD-7", HOSTILE), result(f"PRD-4[{HOSTILE}]", CaseVerdict.ERROR, HOSTILE)))


def clause_blocks(text: str) -> dict[str, str]:
    return {
        found[1]: found[0]
        for found in re.finditer(r'<details class="clause" id="([^"]*)".*?</div></details>', text, re.S)
    }


# -- the page ---------------------------------------------------------------------------------------


def test_the_page_shows_expected_and_actual_value_and_the_bytes() -> None:
    text = page(two())
    clause = clause_blocks(text)["PRD-7"]
    assert load_clauses()["PRD-7"].sentence in clause
    assert "expected <code>2</code><br>actual <code>0</code>" in clause
    assert "<p>error code</p>" in clause
    assert "error_message: &#39;error code: expected 2, actual 0&#39;" in clause
    assert "00000000  00 00 00" in clause
    assert 'href="#PRD-7-t1"' in clause
    assert 'id="PRD-7-t1"' in clause
    assert "Fetch v7 or newer is not advertised" in clause_blocks(text)["FET-9"]
    for stamp in ("highwater 0", "Apache Kafka 0", "2026-01-02T03:04:05", "level must", "metadata.version 1-27"):
        assert stamp in text


def test_the_page_has_the_fingerprint_of_a_run_that_can_be_repeated() -> None:
    repeatable = target("simulator:1", msgspec.structs.replace(passed("PRD-7"), fingerprint="ab"))
    assert f"fingerprint {repeatable.fingerprint}:" in page(report(repeatable))
    assert "fingerprint" not in page(report(target("a:1", passed("PRD-7"))))


def test_the_page_shows_the_known_deviations_of_a_target() -> None:
    clause = clause_blocks(page(two()))["API-3"]
    assert "Known deviation of this target: the reply is laid out in the flexible form" in clause
    assert 'href="https://github.com/confluentinc/librdkafka' in clause
    assert 'class="c fail known"' in clause
    assert "data-differs" in clause


def test_equal_failures_are_grouped_apart_from_expected_ones() -> None:
    cases = [failed(f"PRD-7[v{version}]") for version in range(3)]
    known = Expectation(clause="PRD-7[v1]", verdict=CaseVerdict.FAIL, reason="a reason", link="javascript:alert(1)")
    failures = list(failure_groups(0, "a:1", [*cases, failed("PRD-7[v9]", "otherwise")], [known], 100_000))
    reported = [([result.case for result in failure.results], failure.known is known) for failure in failures]
    assert reported == [(["PRD-7[v0]", "PRD-7[v2]"], False), (["PRD-7[v1]"], True), (["PRD-7[v9]"], False)]
    assert [failure.link for failure in failures] == ["", "", ""], "only http and https addresses become links"


def test_the_page_loads_no_external_resource() -> None:
    text = page(two())
    assert not re.search(r"<(?:link|iframe|img|object)\b|\bsrc=|@import|url\(", text)
    assert len(re.findall(r"<script\b", text)) == 1


class Balance(HTMLParser):
    """Counts scripts and checks that all elements are closed."""

    VOID = frozenset({"meta", "input", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        # HTML allows omitting `</option>` and `</p>`, but the template has them
        assert self.open.pop() == tag


@pytest.mark.parametrize("shown", [two, hostile, report], ids=["two targets", "hostile", "no target"])
def test_the_page_is_well_formed_and_has_one_script(shown: Callable[[], Report]) -> None:
    parser = Balance()
    parser.feed(page(shown()))
    assert (parser.open, parser.scripts) == ([], 1)


def test_a_page_of_five_targets_that_fail_every_case_is_below_2_mb() -> None:
    cases = [failed(f"{clause}[v{n}]", f"{n} {'x' * 100}") for clause in list(load_clauses())[:100] for n in range(7)]
    text = page(report(*(target(f"broker-{n}:9092", *cases) for n in range(5))))
    assert len(text.encode()) < 2_000_000, "the page must stay small enough to open"


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here; Debian's package is `chromium`")
def test_a_browser_opens_the_clause_that_an_address_names(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(two()))
    shown = subprocess.run(
        [BROWSER or "", *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"{path.as_uri()}#PRD-7-t1"],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    assert "5 of 5 clauses" in shown
    assert re.findall(r'<details class="clause" id="([^"]*)"[^>]*open=""', shown) == ["PRD-7"]


def test_the_page_of_clauses_has_each_of_them_and_no_reference_to_another_file() -> None:
    text = clause_page(load_clauses().values(), checked=7)
    parser = Balance()
    parser.feed(text)
    assert (parser.open, parser.scripts) == ([], 1)
    assert set(re.findall(r'<article id="([^"]+)"', text)) == load_clauses().keys()
    assert all(str(markupsafe.escape(clause.sentence)) in text for clause in load_clauses().values())
    assert not re.search(r"<link|src=|@import", text)


# -- Markdown, JUnit, badge, console ------------------------------------------------------------------


def test_markdown_has_the_matrix_and_each_deviation_with_its_clause() -> None:
    lines = markdown(two()).splitlines()
    assert "| PRD-7 | MUST | FAIL | pass |" in lines
    assert any(line.startswith("- **API-3** fail: ") for line in lines)
    assert any("Expected: the reply is laid out in the flexible form" in line for line in lines)
    assert any(escape(load_clauses()["PRD-7"].sentence) in line for line in lines)


def test_every_form_says_what_was_left_out_and_how_long_each_part_took(capsys: pytest.CaptureFixture[str]) -> None:
    times = {"set-up": 2.4, "cases": 93.6, "tear-down": 0.2}
    shown = report(msgspec.structs.replace(target("one", passed("TXN-1")), left_out=["TXN-38"], seconds=times))
    show(shown)
    for text in (capsys.readouterr().out, markdown(shown).replace("\\", ""), page(shown)):
        assert "set-up 2 s, cases 94 s, tear-down 0 s" in text
        assert "(--long): TXN-38" in text


def test_cases_are_sorted_by_clause_and_version() -> None:
    rows = markdown(report(target("a:1", *map(passed, ("PRD-10", "PRD-9", "FRM-1")))))
    assert re.findall(r"^\| ([A-Z]+-\d+)", rows, re.M) == ["FRM-1", "PRD-9", "PRD-10"]
    cases = [failed(f"PRD-7[v{version}]", str(version)) for version in (12, 4, 9)]
    reported = re.findall(r"\*\*PRD-7\\\[v(\d+)", markdown(report(target("a:1", *cases))))
    assert reported == ["4", "9", "12"]
    assert re.findall(r"<code>PRD-7\[v(\d+)\]</code><span", page(report(target("a:1", *cases)))) == reported


def test_text_of_a_target_is_escaped_in_markdown() -> None:
    text = markdown(hostile())
    assert not re.search(r"(?<!\\)<script|(?<!\\)\[a\]", text)
    assert all(len(re.findall(r"(?<!\\)\|", line)) in (0, 4, 6) for line in text.splitlines())


def test_junit_has_the_elements_and_counts_of_its_format() -> None:
    suites = ElementTree.fromstring(junit(two()))
    assert (suites.tag, suites.attrib) == ("testsuites", {})
    for number, suite in enumerate(suites):
        assert [child.tag for child in suite if child.tag != "testcase"] == ["properties", "system-out", "system-err"]
        assert suite[0].tag == "properties"
        assert suite.attrib.keys() == {
            "id", "name", "package", "hostname", "timestamp", "tests", "failures", "errors", "skipped", "time",
        }  # fmt: skip
        assert (suite.get("id"), suite.get("timestamp")) == (str(number), "2026-01-02T03:04:05")
        cases = suite.findall("testcase")
        assert all(case.attrib.keys() == {"name", "classname", "time"} for case in cases)
        assert suite.get("time") == f"{sum(float(case.get('time', 0)) for case in cases):.3f}"
    first = suites[0]
    counted = [first.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counted == ["5", "2", "1", "1"]


def test_junit_has_expected_actual_and_exchange() -> None:
    suites = ElementTree.fromstring(junit(two()))
    failure = suites.find("testsuite/testcase[@name='PRD-7']/failure")
    assert failure is not None
    assert failure.get("message") == "fail: error code: expected 2, actual 0"
    text = failure.text or ""
    assert "expected: 2\nactual: 0" in text
    assert load_clauses()["PRD-7"].sentence in text
    assert "error_code: 17" in text
    known = suites.find("testsuite[2]/testcase[@name='API-3']/skipped")
    assert known is not None
    assert (known.get("message") or "").startswith("expected fail: the reply is laid out")


def test_junit_is_well_formed_for_hostile_text() -> None:
    suites = ElementTree.fromstring(junit(hostile()))
    messages = [element.get("message", "") for element in suites.iter() if element.tag in ("failure", "error")]
    assert len(messages) == 2
    assert all("<script>" in message and "\x1b" not in message for message in messages)


@pytest.mark.parametrize(
    ("shown", "text", "colour"),
    [
        (target("a:1", passed("PRD-7"), passed("PRD-4")), "2 of 2 MUST", "#2c7a34"),
        (target("a:1", passed("PRD-7"), failed("PRD-4")), "1 of 2 MUST", "#c0392b"),
        (target("librdkafka-mock", passed("FRM-1"), failed("API-3")), "1 of 2 MUST", "#8f6200"),
        (target("a:1", passed("PRD-7"), result("LST-1", CaseVerdict.ERROR)), "1 of 2 MUST", "#8f6200"),
        (target("a:1", result("LST-1", CaseVerdict.UNSUPPORTED)), "0 of 0 MUST", "#666666"),
        (target(HOSTILE), "0 of 0 MUST", "#666666"),
    ],
    ids=["kept", "broken", "broken as expected", "undecided", "nothing tried", "hostile"],
)
def test_the_badge_counts_must_cases(shown: TargetReport, text: str, colour: str) -> None:
    svg = ElementTree.fromstring(badge(shown))
    assert svg.get("aria-label") == f"kafka conformance: {text}"
    assert colour in {rectangle.get("fill") for rectangle in svg.iter() if rectangle.tag.endswith("rect")}


def test_the_console_marks_failures_and_of_a_target_with_known_ones_the_unexpected(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(report(*two().targets, target("librdkafka-mock", failed("FRM-1"))))
    reported = capsys.readouterr().out.splitlines()
    assert "FAIL PRD-7: error code: expected 2, actual 0" in reported
    assert "non-strict MD-9: a SHOULD" in reported
    assert "flaky LST-1: fail, then pass" in reported
    assert "UNEXPECTED FAIL FRM-1: error code: expected 2, actual 0" in reported
    assert any(line.startswith("expected API-3: fail: the reply is laid out") for line in reported)
    assert not any("FAIL API-3" in line for line in reported)
    show(two(), strict=True)
    assert "NON-STRICT MD-9: a SHOULD" in capsys.readouterr().out.splitlines()


def test_the_console_groups_cases_that_fail_alike_and_says_how_to_run_one_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The clause was repeated for each of eight cases, and nothing said where their bytes are."""
    cases = [failed(f"PRD-7[v{version}]") for version in range(8)]
    options = {"kafka_version": "2.8", "guards_off": ["A", "B"], "jobs": 2}
    run = msgspec.structs.replace(STAMP, options=options)
    show(msgspec.structs.replace(report(target("a:1", *cases, failed("PRD-7[v9]", "otherwise"))), run=run))
    reported = capsys.readouterr().out
    assert "FAIL PRD-7[v0], PRD-7[v1], PRD-7[v2] and 5 more: error code: expected 2, actual 0\n" in reported
    assert "FAIL PRD-7[v9]: otherwise\n" in reported
    assert reported.count(load_clauses()["PRD-7"].sentence) == 1
    assert (
        "highwater conform a:1 --kafka-version 2.8 --guard-off A --guard-off B --clause 'PRD-7[v0]' --html\n"
        in reported
    )


def test_the_console_counts_what_was_not_decided_instead_of_listing_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A small broker had 420 rows of `-` around 31 others, and no reason."""
    names = [f"FET-{number}" for number in range(1, 20)]
    lacking = [
        result(name, CaseVerdict.UNSUPPORTED, f"Fetch v{number % 7} is absent") for number, name in enumerate(names)
    ]
    not_run = [result(f"MD-{number}", CaseVerdict.NOT_RUN, "the target died") for number in range(1, 6)]
    shown = report(target("a:1", passed("PRD-7"), *lacking, *not_run))
    show(shown)
    reported = capsys.readouterr().out
    assert "FET-1" not in reported
    assert "24 cases were not decided (--verbose lists them):\n    5 not run: the target died\n" in reported
    assert "    3 unsupported: Fetch v0 is absent\n" in reported
    assert re.search(r"    \d+ for 3 other reasons\n", reported)
    show(shown, verbose=True)
    reported = capsys.readouterr().out
    assert all(f"{name}: unsupported Fetch" in reported for name in names)


def test_every_report_has_the_cases_that_were_not_run() -> None:
    shown = report(target("a:1", passed("PRD-7"), result("MD-1", CaseVerdict.NOT_RUN, "the target died")))
    skipped = ElementTree.fromstring(junit(shown)).find("testsuite/testcase[@name='MD-1']/skipped")
    assert skipped is not None
    assert skipped.get("message") == "not run: the target died"
    assert "not run: the target died" in clause_blocks(page(shown))["MD-1"]
    assert "| MD-1 | MUST | not run |" in markdown(shown).splitlines()
    assert "| of these not run | 1 |" in areas_markdown(shown).splitlines()


def test_an_empty_run_and_an_aborted_suite_are_reported() -> None:
    broken_off = target("a:1", result("suite", CaseVerdict.ERROR, "pytest's code 3"))
    for render in RENDERERS:
        assert "no case" in render(report(target("a:1"))) or render is junit
        assert "code 3" in render(report(broken_off))
    assert ElementTree.fromstring(junit(report(target("a:1"))))[0].get("tests") == "0"


# -- errors and source links ------------------------------------------------------------------------


def test_an_unwritable_report_path_is_refused_before_the_run(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    with pytest.raises(UsageError, match="the folder cannot be created"):
        ReportFiles(html=in_the_way / "page.html").check(1)
    with pytest.raises(UsageError, match="the path is a folder"):
        ReportFiles(html=tmp_path).check(1)
    with pytest.raises(UsageError, match="one target, not 2"):
        ReportFiles(badge=tmp_path / "badge.svg").check(2)
    ReportFiles(html=tmp_path / "page.html", badge=tmp_path / "badge.svg").check(1)


def test_the_folder_of_a_report_is_made_before_the_run(tmp_path: Path) -> None:
    files = ReportFiles(markdown=tmp_path / "results" / "today" / "suite.md")
    files.check(1)
    files.write(two())
    assert "PRD-7" in (tmp_path / "results" / "today" / "suite.md").read_text(encoding="utf-8")


def test_sources_link_to_their_documents() -> None:
    wiki = "https://cwiki.apache.org/confluence/"
    pieces = list(link_source("KIP-890; KAFKA-17754, kafka-0.7-design"))
    assert [text for text, _ in pieces] == ["KIP-890", "; ", "KAFKA-17754", ", kafka-0.7-design"]
    assert pieces[0][1].startswith(wiki)
    assert pieces[2][1] == "https://issues.apache.org/jira/browse/KAFKA-17754"
    assert pieces[3][1] == ""
    for clause in load_clauses().values():
        assert "".join(text for text, _ in link_source(clause.source)) == clause.source

"""The report page works offline in a real browser and shows the findings."""

import re
from html import unescape
from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.reports.audit import audit
from highwater.reports.page.tests.browser import browser, needs_browser
from highwater.reports.recorder.clients import FOLDER
from highwater.reports.report import AGAIN, report, report_history
from highwater.reports.tests.histories import History
from highwater.reports.tests.test_kernel import healthy, lost
from highwater.reports.verdicts import write_verdict
from highwater.results import write_json
from highwater.spec.formats.history import NEMESIS, Event


def a_run(root: Path) -> Path:
    """Write a results folder as the demo does: a valid half, and one with a lost write under a fault."""
    for name, history in (("1-good", healthy()), ("2-bad", broken())):
        folder = root / name
        folder.mkdir()
        write_verdict(folder, audit(history.write(folder / "history.ndjson")))
        write_json(folder / "about.json", {"title": f"Half {name}", "story": "A <b>story</b> & more."})
    write_json(
        root / "simulate.json",
        {"seeds": 3, "events": 1234, "simulated_seconds": 9.5, "acknowledged": 77, "findings": []},
    )
    return root


def broken() -> History:
    history = healthy()
    for f in ("kill", "restart"):
        index = len(history.events)
        history.events.append(
            Event(index=index, time_ns=index * 1_000_000, process=NEMESIS, type="info", f=f, node="2", value="leader")
        )
    lost(history)
    return history


def test_the_page_loads_nothing_from_the_network(tmp_path: Path) -> None:
    text = report(a_run(tmp_path)).read_text()
    assert not re.findall(r"(?:https?:)?//[\w-]+\.\w+", text)
    assert not re.search(r"<(?:link|iframe|img)\b|<script[^>]*\bsrc|url\(|@import", text)
    assert "default-src 'none'" in text
    assert "A &lt;b&gt;story&lt;/b&gt; &amp; more." in text
    assert len(text) < 2_000_000


def test_the_page_of_a_run_begins_with_the_clients_of_the_user(tmp_path: Path) -> None:
    """The history of the tool may be empty then. The commands are those that audit and that run again."""
    for folder, history in ((tmp_path, healthy()), (tmp_path / FOLDER, broken()), (tmp_path / "a", healthy())):
        folder.mkdir(exist_ok=True)
        write_verdict(folder, audit(history.write(folder / "history.ndjson")))
    again = "highwater chaos reference:3 --workload none --clients 'python app.py'"
    (tmp_path / AGAIN).write_text(again)
    text = unescape(report(tmp_path).read_text())
    audited = re.findall(r"To audit again: <code>(.*?)</code>", text)
    assert audited == [f"highwater audit {folder}" for folder in (tmp_path / FOLDER, tmp_path, tmp_path / "a")]
    assert re.findall(r"To run again: <code>(.*?)</code>", text) == [again]


def test_values_of_clients_are_escaped_in_the_page(tmp_path: Path) -> None:
    history = healthy()
    history.begin(9, "</script><script>alert(1)</script>", value="<img src=x>")
    history.end(9, "fail", error="</script>")
    result = audit(history.write(tmp_path / "history.ndjson"))
    text = report_history(str(tmp_path / "history.ndjson"), result, tmp_path / "page.html").read_text()
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert text.count("</script>") == 2


@needs_browser
def test_a_browser_shows_findings_faults_and_the_timeline(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    with browser(tmp_path / "profile") as page:
        page.open(report(run))
        text = page.ask("document.body.textContent")
        for words in ("A promise was broken: 1 lost-write", "was acknowledged", "read past its place without it",
                      "it is lost", "1,234 events", "broker 2 down"):  # fmt: skip
            assert words in text
        assert text.count("not run") >= 3
        whole = page.ask(f"({SPAN})('t2')")
        page.ask("document.querySelector('#t2 [data-do=first]').click()")
        assert page.ask("document.querySelector('#t2').dataset.finding") == "0"
        assert "lost-write, t-0, offset" in page.ask("document.querySelector('#t2 .where').textContent")
        assert page.ask(f"({SPAN})('t2')") < whole
        page.ask("document.querySelector('#t2 canvas.main').focus()")
        for key, grows in (("+", -1), ("-", 1), ("Home", 1)):
            before = page.ask(f"({SPAN})('t2')")
            page.press(key)
            assert (page.ask(f"({SPAN})('t2')") - before) * grows > 0, key
        assert page.ask(f"({SPAN})('t2')") == whole
        assert page.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@needs_browser
def test_the_timeline_has_tooltips_and_findings_link_to_it(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    with browser(tmp_path / "profile") as page:
        page.open(report(run), width=390, dark=True)
        assert page.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.ask("document.querySelector('[data-timeline=t2][data-finding]').click()")
        assert page.ask("document.activeElement.className") == "main"
        where = """(() => { const t = timelines.get('t2'), box = t.main.getBoundingClientRect();
          const n = t.place.get(t.findings[0].operations[0]);
          return [box.x + (t.x(t.start[n]) + t.x(t.end[n])) / 2, box.y + 26 + t.data.lane[n] * 17 + 8]; })()"""
        page.move(*page.ask(where))
        tooltip = page.ask("document.querySelector('#t2 .tip').textContent")
        assert "witness of a finding" in tooltip
        assert "send t-0, offset" in tooltip


SPAN = "id => { const d = document.getElementById(id).dataset; return d.to - d.from; }"


def test_a_folder_without_results_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no results of a run"):
        report(tmp_path)
    with pytest.raises(UsageError, match="no such results folder"):
        report(tmp_path / "nowhere")

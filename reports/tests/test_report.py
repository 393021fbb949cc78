"""The page opens offline in a real browser and shows what was found."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from reports.audit import audit, write_verdict
from reports.report import report
from reports.tests.histories import History
from reports.tests.test_kernel import healthy, lost
from spec.formats.history import NEMESIS, Event
from spec.formats.run import write_json
from spec.formats.verdict import UsageError

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def a_run(root: Path) -> Path:
    """A folder as the demo leaves it: one healthy half, one with a lost write under a fault."""
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


def test_the_page_asks_nobody_for_anything(tmp_path: Path) -> None:
    text = report(a_run(tmp_path)).read_text()
    names_of_formats = re.compile(r'xmlns(:\w+)?="[^"]*"|<!--.*?-->|rdf:\w+="[^"]*"', re.DOTALL)
    assert not re.findall(r"(?:https?:)?//[\w.-]+\.\w+", names_of_formats.sub("", text))
    assert not re.search(r"<(?:link|script|iframe|img)\b", text)
    assert "A &lt;b&gt;story&lt;/b&gt; &amp; more." in text
    assert len(text) < 2_000_000


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here; Debian's package is `chromium`")
def test_a_browser_shows_findings_faults_and_plots(tmp_path: Path) -> None:
    page = report(a_run(tmp_path))
    shown = subprocess.run(
        [BROWSER or "", *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    assert "lost-write" in shown
    assert "was acknowledged" in shown
    assert "read past its place without it" in shown
    assert "broker 2 down" in shown
    assert shown.count('aria-label="timeline of clients and faults"') == 2
    assert shown.count('aria-label="latency and throughput"') == 2
    assert "1,234 events" in shown
    assert shown.count("not run") >= 3


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no verdict"):
        report(tmp_path)
    with pytest.raises(UsageError, match="no such results folder"):
        report(tmp_path / "nowhere")

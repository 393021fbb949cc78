"""Several histories by folder, pattern and address; detection of formats; effects of invalid lines on verdicts."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from highwater.command_line import application
from highwater.errors import UsageError
from highwater.reports.importers import native, sources
from highwater.reports.importers.formats import FORMATS, open_history
from highwater.reports.importers.inputs import histories
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.importers.tests.jepsen_runs import healthy, lines
from highwater.reports.tests.histories import History
from highwater.reports.tests.test_kernel import healthy as healthy_of_ours

CONFIG = ["--config", "acks=all", "--config", "unclean_election=false"]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(application("audit"), ["audit", *arguments])
    if isinstance(result.exception, UsageError):
        return 2, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def store(folder: Path, runs: int) -> Path:
    """Make a Jepsen store: a folder for each run, with the same history twice, and a link to the latest."""
    for number in range(runs):
        here = folder / "kafka" / f"2026-{number:03}"
        here.mkdir(parents=True)
        (here / "history.edn").write_bytes(lines(healthy(20, seed=number).ops))
        (here / "history.txt").write_text("0\t:invoke\t:poll\t[[:poll]]\n")
        (here / "results.edn").write_text("{:valid? true}")
    (folder / "latest").symlink_to(folder / "kafka" / "2026-000")
    return folder


def test_a_store_of_runs_is_audited_run_by_run(tmp_path: Path) -> None:
    folder = store(tmp_path, 12)
    (folder / "kafka" / "2026-005" / "history.edn").write_text("nothing of the kind\n")
    (folder / "kafka" / "2026-007" / "history.edn").write_bytes(b"")
    code, text = run(str(folder), *CONFIG)
    assert (code, len(histories(str(folder)))) == (3, 12)
    assert "12 histories: 10 valid, 2 unknown" in text
    assert "the format is unknown" in text
    code, text = run(str(folder), *CONFIG, "--json")
    summary = json.loads(text)
    assert (summary["verdict"], len(summary["histories"])) == ("unknown", 12)


def test_a_pattern_opens_its_matches_and_a_folder_without_histories_is_an_error(tmp_path: Path) -> None:
    folder = store(tmp_path, 3)
    assert len(histories(f"{folder}/kafka/2026-00[01]")) == 2
    assert len(histories(f"{folder}/**/history.edn")) == 3
    (tmp_path / "empty").mkdir()
    for nothing in (str(tmp_path / "empty"), f"{folder}/none*"):
        with pytest.raises(UsageError, match="no history found here"):
            histories(nothing)


def test_addresses_are_opened_by_pyarrow_and_compression_is_seen_in_the_content(tmp_path: Path) -> None:
    path = tmp_path / "packed"
    path.write_bytes(gzip.compress(lines(healthy(20).ops)))
    events = list(open_history(path.as_uri()).events)
    assert events == list(open_history(str(path)).events)
    assert len(events) > 40
    with pytest.raises(UsageError, match="cannot read this history"):
        open_history("file:///nowhere/history.edn")
    with pytest.raises(UsageError, match="cannot read this history"):
        open_history("nosuch://bucket/history.edn")


def test_a_format_may_be_named_and_an_unknown_one_is_an_error(tmp_path: Path) -> None:
    path = healthy_of_ours().write(tmp_path / "strange")
    assert run(str(path))[0] == 0
    assert run(str(path), "--format", "ndjson")[0] == 0
    code, text = run(str(path), "--format", "jepsen-edn")
    assert (code, "nothing of it can be read as jepsen-edn" in text) == (2, True)
    code, text = run(str(path), "--format", "csv")
    assert (code, all(name in text for name in FORMATS)) == (2, True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"index":%d,"time_ns":0,"process":9,"type":"ok","f":"send"}', "has not invoked"),
        (b'{"index":3,"time_ns":0,"process":9,"type":"ok","f":"send"}', "repeated or out of order"),
        (b'{"index":%d,"time_ns":0,"process":9,"type":"info","f":"seek","value":["t"]}', "seek"),
        (b'{"index":%d,"time_ns":0,"process":9,"type":"invoke","f":"send","value":1}', "no topic and partition"),
        (b'{"index":%d,"time_ns":0,"process":9,"type":"invoke","f":"fetch","position":-2}', "no event"),
        (
            b'{"index":%d,"time_ns":0,"process":9,"type":"ok","f":"fetch","high_watermark":9223372036854775808}',
            "no eve",
        ),
        (b'{"index":%d,"time_ns":0,"process":9,"type":"ok","f":"poll","value":{"t-0":[[-5,1]]}}', "poll"),
        (b'{"index":%d,"time_ns":0,"process":9,"type":"ok","f":"poll","value":{"t":[[5,1]]}}', "poll"),
        (b'{"index":%d,"time_ns":0,"process":9,"type":"ok","f":"poll","value":[1]}', "poll"),
        (b"\xff\xfe\x00", "no event"),
    ],
)
def test_an_invalid_line_makes_the_verdict_unknown(tmp_path: Path, line: bytes, reason: str) -> None:
    history = healthy_of_ours()
    path = history.write(tmp_path / "history.ndjson")
    after = len(history.events) + 1
    path.write_bytes(path.read_bytes() + (line % after if b"%d" in line else line) + b"\n")
    code, text = run(str(path), "--json")
    bad = json.loads(text)["quarantine"]["lines"]
    assert code == 3
    assert [each["line"] for each in bad] == [after + 1]
    assert reason in bad[0]["reason"]


def test_an_invalid_line_of_the_nemesis_does_not_affect_the_verdict(tmp_path: Path) -> None:
    history = healthy_of_ours()
    path = history.write(tmp_path / "history.ndjson")
    path.write_bytes(path.read_bytes() + b'{"process":"nemesis","type":"info","f":"kill"\n')
    code, text = run(str(path))
    assert (code, "1 line could not be used, 0 of which may matter" in text) == (0, True)


def test_a_line_without_end_takes_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK", 100)
    monkeypatch.setattr(sources, "LINE_LIMIT", 1000)
    path = healthy_of_ours().write(tmp_path / "history.ndjson")
    path.write_bytes(path.read_bytes() + b"x" * 100_000)
    code, text = run(str(path), "--json")
    assert (code, "longer than" in text) == (3, True)


@pytest.mark.parametrize("content", [b"", b"\n\n", gzip.compress(b"")], ids=["nothing", "blank lines", "compressed"])
def test_an_empty_history_is_unknown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "history").write_bytes(content)
    assert run(str(tmp_path / "history"))[0] == 3


def test_a_history_of_faults_alone_is_unknown(tmp_path: Path) -> None:
    history = History()
    history.phase("final")
    assert run(str(history.write(tmp_path / "history.ndjson")))[0] == 3


def test_a_bad_line_among_many_is_named_by_its_number_and_the_lines_around_it_are_read(tmp_path: Path) -> None:
    history = healthy_of_ours()
    path = history.write(tmp_path / "history.ndjson")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:5], b"\n", b"{\n", *lines[5:], b"\xff"]))
    found = Quarantine()
    _, events = native.read(str(path), found)
    assert sum(1 for _ in events) == len(lines) - 3  # header, trailer, and the event due at the bad line
    assert [each.line for each in found.lines] == [7, 8, len(lines) + 3]


def test_a_pipe_and_standard_input_are_audited_like_the_file(tmp_path: Path) -> None:
    path = Path(healthy_of_ours().write(tmp_path / "history.ndjson"))
    command = [sys.executable, "-m", "highwater", "audit", "--json"]
    expected = json.loads(subprocess.run([*command, path], capture_output=True, check=False).stdout)
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    for name in ("-", str(fifo)):
        with subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin
            sink = process.stdin if name == "-" else fifo.open("wb")
            sink.write(path.read_bytes())
            sink.close()
            assert process.stdout
            assert json.loads(process.stdout.read()) == expected | {"history": name}

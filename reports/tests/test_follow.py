"""Following a folder: the verdict covers the files so far, and at the end the whole history."""

import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Generator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from highwater.errors import UsageError
from highwater.reports.audit import audit
from highwater.reports.execution.engines import Pool
from highwater.reports.execution.partitions import Engine
from highwater.reports.execution.spark import Spark
from highwater.reports.follow import END, Arrivals, follow, poll_folder
from highwater.reports.streaming import Streamed
from highwater.reports.synth.write import synth
from highwater.reports.verdicts import AuditResult

pytestmark = pytest.mark.timeout(900)  # Spark starts slowly on a busy machine
PIECES = {"local": 5, "spark": 2}
PLANTED = {3: 1, 4: 1, 17: 1, 25: 1}


def pieces(folder: Path, count: int = 5) -> list[bytes]:
    """A history, cut in the middle of operations."""
    synth(folder / "history.ndjson", operations=1_500, seed=9, planted=PLANTED)
    lines = (folder / "history.ndjson").read_bytes().splitlines(keepends=True)
    size = -(-len(lines) // count)
    return [b"".join(lines[start : start + size]) for start in range(0, len(lines), size)]


def put(folder: Path, name: str, data: bytes) -> None:
    hidden = folder / f".{name}"
    hidden.write_bytes(data)
    hidden.rename(folder / name)


@pytest.fixture(
    params=[pytest.param("local"), pytest.param("spark", marks=pytest.mark.xdist_group("spark"))], scope="module"
)
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "local":
        return Pool()
    request.getfixturevalue("local_spark")
    return Spark()


def arrivals_of(engine: Engine) -> Arrivals:
    return Streamed(engine) if isinstance(engine, Spark) else poll_folder


def test_the_verdict_is_updated_and_finally_equals_that_of_a_batch_audit(tmp_path: Path, engine: Engine) -> None:
    coming = tmp_path / "co [m] ing"
    coming.mkdir()
    count = PIECES["spark" if isinstance(engine, Spark) else "local"]
    rest = dict(enumerate(pieces(tmp_path, count)))
    so_far: list[AuditResult] = []
    put(coming, "0", rest.pop(0))

    def report(result: AuditResult) -> None:
        """Add the next piece once the previous one was audited."""
        so_far.append(result)
        number = len(so_far)
        put(coming, str(number), rest.pop(number)) if rest else (coming / END).touch()

    (coming / "no file").mkdir()
    (coming / "empty").touch()
    whole = follow(coming, report, None, engine, arrivals_of(engine))
    batch = audit(tmp_path / "history.ndjson")
    assert msgspec.to_builtins(whole.findings) == msgspec.to_builtins(batch.findings)
    assert (whole.verdict, whole.operations) == (batch.verdict, batch.operations)
    assert {finding.rule: finding.count for finding in whole.findings} == PLANTED
    counts = [result.operations for result in so_far]
    assert len(so_far) == count
    assert counts == sorted(set(counts))
    assert all({finding.rule for finding in result.findings} <= {5, *PLANTED} for result in so_far)


def test_an_interruption_returns_the_verdict_of_the_files_so_far(tmp_path: Path, engine: Engine) -> None:
    coming = tmp_path / "coming"
    coming.mkdir()
    first, second = pieces(tmp_path, 2)
    put(coming, "a b%20c", first)

    def report(_: AuditResult) -> None:
        put(coming, "later", second)
        signal.raise_signal(signal.SIGINT)

    found = follow(coming, report, None, engine, arrivals_of(engine))
    (tmp_path / "first.ndjson").write_bytes(first)
    cut = audit(tmp_path / "first.ndjson")  # without its trailer
    assert {f.rule: f.count for f in found.findings} == {f.rule: f.count for f in cut.findings}


def test_follow_waits_for_the_first_file(tmp_path: Path) -> None:
    coming = tmp_path / "coming"
    coming.mkdir()
    found: list[AuditResult] = []
    reader = threading.Thread(target=lambda: found.append(follow(coming, lambda _: None)))
    reader.start()
    for number, piece in enumerate(pieces(tmp_path)):
        put(coming, str(number), piece)
    (coming / END).touch()
    reader.join(timeout=600)
    assert found[0].findings == audit(tmp_path / "history.ndjson").findings


def test_files_may_arrive_in_any_order(tmp_path: Path) -> None:
    coming = tmp_path / "coming"
    coming.mkdir()
    rest = dict(enumerate(pieces(tmp_path)))
    put(coming, "9", rest.pop(0))
    put(coming, "8", rest.pop(4))
    while rest:
        put(coming, f"{len(rest)}", rest.pop(max(rest)))
    (coming / END).touch()
    found = follow(coming, lambda _: None)
    assert found.findings == audit(tmp_path / "history.ndjson").findings
    assert found.quarantine.count == 0


def test_a_file_that_never_arrives_is_reported_as_missing_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("highwater.reports.follow.LATE", 1)
    coming = tmp_path / "coming"
    coming.mkdir()
    rest = pieces(tmp_path)
    for number in (0, 2, 3, 4):
        put(coming, str(number), rest[number])
    (coming / END).touch()
    found = follow(coming, lambda _: None)
    assert found.verdict in {"unknown", "invalid"}
    assert "missing: " in found.quarantine.lines[0].reason


@pytest.mark.long
def test_a_large_history_is_not_audited_for_every_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("highwater.reports.follow.SMALL", 0)
    coming = tmp_path / "coming"
    coming.mkdir()
    parts = pieces(tmp_path, 40)
    put(coming, "00", parts[0])
    audited: list[int] = []

    def batches(folder: Path, stop: threading.Event, known: Collection[Path]) -> Generator[list[Path]]:
        for number, part in enumerate(parts[1:], 1):
            put(folder, f"{number:02}", part)
            yield [folder / f"{number:02}"]

    found = follow(coming, lambda result: audited.append(result.operations), arrivals=batches)
    assert found.findings == audit(tmp_path / "history.ndjson").findings
    assert all(later > 1.1 * before for before, later in pairwise(audited))
    assert sum(audited) < 8 * found.operations


KILLED = """
import sys
from pathlib import Path
from highwater.reports.follow import follow, poll_folder
from highwater.reports.streaming import Streamed
from highwater.reports.execution.spark import Spark
folder, checkpoint = Path(sys.argv[1]), Path(sys.argv[2])
arrivals = Streamed(Spark(), checkpoint) if sys.argv[3] == "spark" else poll_folder
found = follow(folder, lambda result: print(result.operations, flush=True), None, None, arrivals, checkpoint)
print("end", found.operations, [(f.rule, f.count) for f in found.findings], flush=True)
"""


@pytest.mark.parametrize(
    "engine_name", ["local", pytest.param("spark", marks=[pytest.mark.soak, pytest.mark.xdist_group("spark")])]
)
def test_a_process_that_was_killed_continues_from_its_checkpoint(tmp_path: Path, engine_name: str) -> None:
    coming = tmp_path / "coming"
    coming.mkdir()
    first, *rest = pieces(tmp_path, 3)
    put(coming, "0", first)
    command = [sys.executable, "-c", KILLED, str(coming), str(tmp_path / "checkpoint"), engine_name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        before = int(process.stdout.readline())
        process.kill()
    (coming / "0").write_bytes(b"")  # what was read once is not read again
    for number, part in enumerate(rest, 1):
        put(coming, str(number), part)
    (coming / END).touch()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    batch = audit(tmp_path / "history.ndjson")
    found = [(f.rule, f.count) for f in batch.findings]
    assert done.stdout.splitlines()[-1] == f"end {batch.operations} {found}"
    assert 0 < before < batch.operations


def test_a_checkpoint_of_another_folder_is_rejected(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / END).touch()
    follow(tmp_path / "one", lambda _: None, checkpoint=tmp_path / "checkpoint")
    with pytest.raises(UsageError, match="a checkpoint of"):
        follow(tmp_path / "two", lambda _: None, checkpoint=tmp_path / "checkpoint")


def test_a_missing_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        follow(tmp_path / "nowhere", lambda _: None)

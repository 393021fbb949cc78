"""Following a folder: the verdict covers the files so far, and at the end the whole history."""

import signal
import threading
from collections.abc import Iterator
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
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "local":
        yield Pool()
        return
    spark = Spark()
    try:
        session = spark.session()
    except UsageError as error:
        pytest.skip(f"no Spark here: {error}")
    yield spark
    session.stop()


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
    assert found.findings == audit(tmp_path / "first.ndjson").findings


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


def test_a_missing_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        follow(tmp_path / "nowhere", lambda _: None)

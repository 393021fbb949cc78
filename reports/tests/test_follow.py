"""While files come the verdict is that of what came; in the end it is that of the whole."""

import threading
from pathlib import Path

import msgspec
import pytest

from reports.audit import AuditResult, audit
from reports.follow import END, follow
from reports.synth.write import synth
from spec.formats.verdict import UsageError

PIECES = 5
PLANTED = {3: 1, 4: 1, 17: 1, 25: 1}


def pieces(folder: Path) -> list[bytes]:
    """A history, cut in the middle of operations."""
    synth(folder / "history.ndjson", operations=1_500, seed=9, planted=PLANTED)
    lines = (folder / "history.ndjson").read_bytes().splitlines(keepends=True)
    size = -(-len(lines) // PIECES)
    return [b"".join(lines[start : start + size]) for start in range(0, len(lines), size)]


def put(folder: Path, name: str, data: bytes) -> None:
    hidden = folder / f".{name}"
    hidden.write_bytes(data)
    hidden.rename(folder / name)


def test_the_verdict_is_updated_and_ends_as_that_of_the_batch(tmp_path: Path) -> None:
    coming = tmp_path / "coming"
    coming.mkdir()
    rest = dict(enumerate(pieces(tmp_path)))
    so_far: list[AuditResult] = []
    put(coming, "0", rest.pop(0))

    def tell(result: AuditResult) -> None:
        """The next piece comes when the one before was judged."""
        so_far.append(result)
        number = len(so_far)
        put(coming, str(number), rest.pop(number)) if rest else (coming / END).touch()

    whole = follow(coming, tell)
    batch = audit(tmp_path / "history.ndjson")
    assert msgspec.to_builtins(whole.findings) == msgspec.to_builtins(batch.findings)
    assert (whole.verdict, whole.operations) == (batch.verdict, batch.operations)
    assert {finding.rule: finding.count for finding in whole.findings} == PLANTED
    counts = [result.operations for result in so_far]
    assert len(so_far) == PIECES
    assert counts == sorted(set(counts))
    assert all({finding.rule for finding in result.findings} <= {5, *PLANTED} for result in so_far)


def test_it_waits_for_who_has_not_begun(tmp_path: Path) -> None:
    coming = tmp_path / "coming"
    coming.mkdir()
    found: list[AuditResult] = []
    reader = threading.Thread(target=lambda: found.append(follow(coming, lambda _: None)))
    reader.start()
    for number, piece in enumerate(pieces(tmp_path)):
        put(coming, str(number), piece)
    (coming / END).touch()
    reader.join(timeout=120)
    assert found[0].findings == audit(tmp_path / "history.ndjson").findings


def test_a_folder_that_there_is_not_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        follow(tmp_path / "nowhere", lambda _: None)

"""The archive of loaded classes: one writer at a time, and Java does use it."""

import subprocess
from pathlib import Path

import pytest

from highwater import java_classes
from highwater.java_classes import ClassArchive
from highwater.toolchain import java, tlc_jar


def loaded(flags: list[str]) -> str:
    """Return where a Java program of the TLC jar loads its classes from."""
    command = [str(java().executable), *flags, "-Xlog:class+load", "-cp", str(tlc_jar().path), "tla2sany.SANY"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout


def test_the_first_run_writes_an_archive_that_the_next_one_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_classes, "cache_folder", lambda: tmp_path / "cache")
    first, other = ClassArchive("sany", "1"), ClassArchive("sany", "1")
    assert first.using() == []
    assert first.claim()
    assert not other.claim(), "two runs would write it"
    without = loaded(first.writing(tmp_path))
    first.keep(tmp_path)
    assert not other.claim()
    assert "tla2sany.SANY source: file:" in without
    assert "tla2sany.SANY source: shared objects file (top)" in loaded(other.using())
    assert ClassArchive("sany", "2").using() == [], "an archive of another jar is none of this one"


def test_a_run_that_wrote_nothing_leaves_the_claim_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_classes, "cache_folder", lambda: tmp_path / "cache")
    first, other = ClassArchive("sany", "1"), ClassArchive("sany", "1")
    assert first.claim()
    first.keep(tmp_path)
    assert other.claim()
    other.release()

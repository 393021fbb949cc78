"""`Disk`, the file system port on a real disk."""

import os
from pathlib import Path

import pytest

from highwater.reference.drivers.files import Disk


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that collects the inodes that are fsynced, in order."""
    inodes: list[int] = []
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        inodes.append(os.fstat(descriptor).st_ino)
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return inodes


def test_a_renamed_file_is_flushed_at_a_clean_stop_and_the_marker_last(tmp_path: Path, flushed: list[int]) -> None:
    disk = Disk(tmp_path)
    disk.write("checkpoint.tmp", b"1")
    disk.rename("checkpoint.tmp", "checkpoint")
    disk.write("marker", b"x")
    disk.flush_all()
    disk.close()
    inodes = [(tmp_path / name).stat().st_ino for name in ("checkpoint", "marker")]
    assert flushed[-2:] == inodes
    assert not (tmp_path / "checkpoint.tmp").exists()


def test_a_rename_replaces_the_open_file_of_that_name(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for content in (b"old", b"newer"):
        disk.write("hidden", content)
        disk.rename("hidden", "name")
        assert disk.read("name", 0, 100) == content
    disk.append("name", b"!")
    disk.write("hidden", b"another")
    assert (tmp_path / "name").read_bytes() == b"newer!"
    disk.close()


def test_a_full_disk_leaves_nothing_of_an_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path)
    disk.append("log", b"whole")
    plain = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: plain(descriptor, data[:3]))
    with pytest.raises(OSError, match="No space left"):
        disk.append("log", b"partial")
    assert (tmp_path / "log").read_bytes() == b"whole"
    disk.close()

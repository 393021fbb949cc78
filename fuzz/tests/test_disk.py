"""The fault-injection file system: its record of unflushed data against a model, and a mount if this machine can."""

import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.fuzz.chaos.disk.bit_rot import rot_newest_segment
from highwater.fuzz.chaos.disk.mount import Disk, missing_for_disk
from highwater.fuzz.chaos.disk.unflushed import PAGE, UnflushedFiles
from highwater.fuzz.schedule import Fault
from highwater.reference.wire.log_entries import entries, entry_crc_valid
from highwater.reference.wire.records import build_batch

NAMES = st.sampled_from(["/a", "/b"])
STEPS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.integers(0, 12), st.binary(min_size=1, max_size=8)),
    st.tuples(st.just("truncate"), NAMES, st.integers(0, 12), st.just(b"")),
    st.tuples(st.just("flush"), NAMES, st.just(0), st.just(b"")),
    st.tuples(st.just("rename"), NAMES, st.just(0), st.just(b"")),
    st.tuples(st.just("delete"), NAMES, st.just(0), st.just(b"")),
)
REASON = missing_for_disk()
needs_mount = pytest.mark.skipif(bool(REASON), reason=f"a mount needs {REASON}")


class Model:
    """The content of each file now, and after a crash."""

    def __init__(self) -> None:
        self.now: dict[str, bytes] = {}
        self.durable: dict[str, bytes] = {}

    def take(self, step: str, name: str, offset: int, data: bytes) -> None:
        content = self.now.get(name, b"")
        match step:
            case "write":
                padded = content.ljust(offset, b"\0")
                self.now[name] = padded[:offset] + data + padded[offset + len(data) :]
            case "truncate":
                self.now[name] = content[:offset].ljust(offset, b"\0")
            case "flush":
                self.durable[name] = content
            case "rename":
                for files in (self.now, self.durable):
                    files.pop("/c", None)
                    if name in files:
                        files["/c"] = files.pop(name)
            case "delete":
                self.now.pop(name)
                self.durable.pop(name, None)


def apply(files: UnflushedFiles, step: str, name: str, offset: int, data: bytes) -> None:
    real = files.real(name)
    match step:
        case "write":
            if not real.exists():
                files.created(name)
                real.touch()
            files.overwriting(name, offset, len(data))
            with real.open("r+b") as file:
                file.seek(offset)
                file.write(data)
        case "truncate":
            files.overwriting(name, offset, max(0, files.size(name) - offset))
            os.truncate(real, offset)
        case "flush":
            files.flush(name)
        case "rename":
            real.rename(files.real("/c"))
            files.renamed(name, "/c")
        case "delete":
            real.unlink()
            files.deleted(name)


@settings(deadline=None)  # file operations are slow on a busy machine
@given(st.lists(STEPS, max_size=20))
def test_a_crash_restores_every_file_to_its_last_flush(steps: list[tuple[str, str, int, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files, model = UnflushedFiles(Path(folder)), Model()
        for step in steps:
            if step[0] == "write" or step[1] in model.now:
                apply(files, *step)
                model.take(*step)
        files.lose()
        assert {f"/{path.name}": path.read_bytes() for path in Path(folder).iterdir()} == model.durable


def test_a_torn_file_keeps_the_first_pages_appended_since_the_last_flush(tmp_path: Path) -> None:
    files = UnflushedFiles(tmp_path)
    apply(files, "write", "/log", 0, b"old")
    files.flush("/log")
    apply(files, "write", "/log", 3, b"n" * 3 * PAGE)
    files.lose(pages=2)
    assert files.real("/log").read_bytes() == b"old" + b"n" * 2 * PAGE


@needs_mount
def test_a_mounted_disk_fails_flushes_rejects_writes_and_loses_unflushed_data(tmp_path: Path) -> None:
    with closing(Disk(tmp_path / "backing", tmp_path / "disk")) as disk:
        log = disk.mount / "log"
        with log.open("wb", buffering=0) as file:
            file.write(b"flushed")
            os.fsync(file.fileno())
            file.write(b" and not")
            disk.execute("fail 1")
            with pytest.raises(OSError, match="Input/output error"):
                os.fsync(file.fileno())
            disk.execute("full 1")
            with pytest.raises(OSError, match="No space left"):
                file.write(b"?")
        disk.execute("lose 0")
        assert log.read_bytes() == b"flushed"
        assert disk.mount.is_mount()
    assert not disk.mount.is_mount()


@needs_mount
def test_a_disk_is_unmounted_when_its_parent_process_dies(tmp_path: Path) -> None:
    script = "import os, sys; from pathlib import Path; from highwater.fuzz.chaos.disk.mount import Disk; " \
        "folder = Path(sys.argv[1]); Disk(folder / 'backing', folder / 'disk'); os.kill(os.getpid(), 9)"  # fmt: skip
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    while (tmp_path / "disk").is_mount():
        pass
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_a_kill_needs_a_disk_only_to_lose_data() -> None:
    from highwater.fuzz.chaos.capabilities import wants_disk

    needed = {lose: wants_disk(Fault(at_ms=0, kind="kill", nodes=("1",), options={"lose": lose}))
            for lose in ("nothing", "unflushed", "torn")}  # fmt: skip
    assert needed == {"nothing": False, "unflushed": True, "torn": True}


def test_rot_flips_one_bit_that_a_checksum_covers(tmp_path: Path) -> None:
    assert not rot_newest_segment(tmp_path, 0)
    batch = build_batch([(0, b"key", b"value", ())])
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(batch)
    assert rot_newest_segment(tmp_path, 12_345)
    flipped = [old ^ new for old, new in zip(batch, segment.read_bytes(), strict=True)]
    assert sum(difference.bit_count() for difference in flipped) == 1
    ((position, header),) = entries(segment.read_bytes())
    assert not entry_crc_valid(segment.read_bytes(), position, header)

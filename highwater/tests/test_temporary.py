"""Temporary folders: none is left by a process that ends, and none for long by one that is killed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from highwater.temporary import MEMORY, MIN_FREE, temporary_in_memory

MAKE = "import highwater.temporary as t; f = t.make_folder('x-'); (f / 'data').write_text('1'); print(f, flush=True)"
WAIT = f"{MAKE}; import sys; sys.stdin.read()"


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(tmp_path)}


def run(code: str, environment: dict[str, str]) -> Path:
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return Path(ran.stdout.strip())


def test_a_process_that_ends_leaves_no_folder(elsewhere: dict[str, str]) -> None:
    folder = run(MAKE, elsewhere)
    assert folder.parent.parent == Path(elsewhere["TMPDIR"]) / f"highwater-{os.getuid()}"
    assert not folder.parent.exists()


def test_the_next_process_removes_the_folders_of_killed_ones_only(elsewhere: dict[str, str]) -> None:
    killed, running = (
        subprocess.Popen(
            [sys.executable, "-c", WAIT], env=elsewhere, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    )
    try:
        assert killed.stdout is not None
        assert running.stdout is not None
        left, kept = Path(killed.stdout.readline().strip()), Path(running.stdout.readline().strip())
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (left / "data").exists()
        run(MAKE, elsewhere)
        assert not left.parent.exists()
        assert (kept / "data").exists()
    finally:
        for process in (killed, running):
            process.kill()
            process.communicate()


def test_a_folder_in_another_place_is_removed_there(elsewhere: dict[str, str], tmp_path: Path) -> None:
    place = tmp_path / "cache"
    place.mkdir()
    make = f"import highwater.temporary as t, pathlib; f = t.make_folder(place=pathlib.Path({str(place)!r}))"
    killed = subprocess.run([sys.executable, "-c", f"{make}; import os; os.kill(os.getpid(), 9)"], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = (path for path in (place / f"highwater-{os.getuid()}").iterdir() if path.is_dir())
    run(f"{make}; print(f)", elsewhere)
    assert not left.exists()


@pytest.mark.parametrize(
    ("room", "given", "found"),
    [
        (MIN_FREE, None, {"TMPDIR": MEMORY}),
        pytest.param(MIN_FREE - 1, None, {}, id="no room"),
        pytest.param(MIN_FREE, "/elsewhere", {}, id="a folder is given"),
    ],
)
def test_folders_are_in_memory_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, room: int, given: str | None, found: dict[str, str]
) -> None:
    if not Path(MEMORY).is_dir():
        pytest.skip(f"no {MEMORY} on this system")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=room))
    monkeypatch.delenv("TMPDIR", raising=False)
    if given:
        monkeypatch.setenv("TMPDIR", given)
    assert temporary_in_memory() == found

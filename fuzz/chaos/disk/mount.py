"""Mounts a file system below the log of a node that can lose unflushed data, be slow, fail or be full."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing
from ctypes.util import find_library
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from highwater.errors import UsageError
from highwater.fuzz.chaos.disk.file_system import unmount
from highwater.fuzz.chaos.nemesis import Inject, Undo
from highwater.fuzz.schedule import Fault
from highwater.reference.drivers.simulation.chance import Chance

MOUNT_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.02
TORN_PAGES: Final = 8
LIBRARY: Final = "FUSE_LIBRARY_PATH"
"""Environment variable that mfusepy reads first to find libfuse."""


def missing_for_disk() -> str:
    """Return what this machine lacks to mount the file system, or an empty string."""
    if os.geteuid() != 0:
        return "root, to mount it"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse"
    if find_spec("mfusepy") is None:
        return "the package mfusepy"
    if not os.environ.get(LIBRARY) and find_library("fuse3") is None and find_library("fuse") is None:
        return "libfuse3"
    return ""


class Disk:
    """A fault-injection file system, mounted at `mount`; its files are stored in `backing`."""

    def __init__(self, backing: Path, mount: Path) -> None:
        self.mount = mount
        backing.mkdir(parents=True)
        mount.mkdir(parents=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "highwater.fuzz.chaos.disk.file_system", str(backing), str(mount)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True,
        )  # fmt: skip
        try:
            self._await_mount()
        except BaseException:
            self.close()
            raise

    def _await_mount(self) -> None:
        deadline = time.monotonic() + MOUNT_TIMEOUT_S
        while not self.mount.is_mount():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise UsageError("the fault-injection file system could not be mounted", where=str(self.mount))
            time.sleep(POLL_S)

    def execute(self, command: str) -> None:
        """Send a command such as `lose 0` to the file system; UsageError if it does not answer `ok`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        if self._process.stdout.readline() != "ok\n":
            raise UsageError(f"the file system did not execute {command!r}", where=str(self.mount))

    def close(self) -> None:
        """End the process, which unmounts the file system; unmount it here if the process is already dead."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(MOUNT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        unmount(self.mount)


def disk_faults(disks: dict[str, Disk], faults: dict[str, Inject], seed: int) -> dict[str, Inject]:
    """Return the faults on disks: a kill that loses unflushed data, and flushes or writes that are slow or fail.

    A failing or full disk ends with a bounce, because a node that stopped using its disk has to be restarted.
    """
    if not disks:
        return {}
    chance, plain = Chance(seed), dict(faults)

    def kill(fault: Fault, node: str) -> Undo:
        undo = plain["kill"](fault, node)
        lose = fault.option("lose")
        if node in disks and lose != "nothing":
            pages = chance.draw("torn", fault.at_ms, TORN_PAGES) if lose == "torn" else 0
            disks[node].execute(f"lose {pages}")
        return undo

    def slow(fault: Fault, node: str) -> Undo:
        disks[node].execute(f"slow {fault.number('ms')}")
        return lambda: disks[node].execute("slow 0")

    def broken(name: str) -> Inject:
        def begin(fault: Fault, node: str) -> Undo:
            disks[node].execute(f"{name} 1")

            def undo() -> None:
                disks[node].execute(f"{name} 0")
                plain["bounce"](fault, node)()

            return undo

        return begin

    return {"kill": kill, "slow_flush": slow, "fail_flush": broken("fail"), "full_disk": broken("full")}


def mount_disks(folder: Path, nodes: Iterable[str], stack: ExitStack) -> dict[str, Disk]:
    """Mount a disk for each node until the stack closes; return none if this machine does not support it."""
    if missing_for_disk():
        return {}
    return {
        node: stack.enter_context(closing(Disk(folder / f"backing-{node}", folder / f"disk-{node}"))) for node in nodes
    }

"""The node processes of a target; they are killed when the launcher ends."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from highwater.errors import UsageError

STOP_TIMEOUT_S: Final = 30.0
Name = int | str


class Nodes:
    """Starts and signals nodes by name; their output goes to `<name>.log` in `folder`."""

    def __init__(self, folder: Path, commands: Mapping[Name, Sequence[str]]) -> None:
        self._folder, self._commands = folder, commands
        self._processes: dict[Name, subprocess.Popen[bytes]] = {}
        self._guardian = subprocess.Popen(
            [sys.executable, "-m", "highwater.conformance.targets.guardian"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def start(self, name: Name) -> None:
        if self.is_running(name):
            return
        with self._log(name).open("ab") as log:
            started = subprocess.Popen(
                self._commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._processes[name] = started
        assert self._guardian.stdin is not None
        self._guardian.stdin.write(b"%d\n" % started.pid)
        self._guardian.stdin.flush()

    def is_running(self, name: Name) -> bool:
        process = self._processes.get(name)
        return process is not None and process.poll() is None

    def pid(self, name: Name) -> int:
        """Return the process id, 0 if the node is down."""
        return self._processes[name].pid if self.is_running(name) else 0

    def signal(self, name: Name, number: signal.Signals) -> None:
        """Signal the process group of the node."""
        if self.is_running(name):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._processes[name].pid, number)

    def kill(self, name: Name) -> None:
        self.signal(name, signal.SIGKILL)
        if name in self._processes:
            self._processes[name].wait()

    def stop(self, name: Name) -> None:
        """Stop the node with SIGTERM, or SIGKILL after a timeout."""
        self.signal(name, signal.SIGCONT)
        self.signal(name, signal.SIGTERM)
        if name in self._processes:
            try:
                self._processes[name].wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill(name)

    def check(self) -> None:
        """Raise UsageError with the last log line of a node that has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                lines = self._log(name).read_text(errors="replace").strip().splitlines()
                raise UsageError(f"node {name} ended: {lines[-1] if lines else 'no output'}", where=str(self._folder))

    def close(self) -> None:
        for name in self._processes:
            self.signal(name, signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
        assert self._guardian.stdin is not None
        self._guardian.stdin.close()
        self._guardian.wait()

    def _log(self, name: Name) -> Path:
        return self._folder / f"{name}.log"

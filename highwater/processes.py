"""Launch the processes of a cluster: start, signal and stop them by name, and leave none behind.

`python -m highwater.processes` is the guardian. It reads process ids from standard input, one a line; an id with a
minus is forgotten. The input ends when the launcher ends, even if it is killed; then the guardian kills the process
group of each id that it knows.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol

from highwater.errors import UsageError

STOP_TIMEOUT_S: Final = 30.0
SAFE_PATH: Final = {"PYTHONSAFEPATH": "1"}
"""The variable that does what `-P` does, also for processes that the process starts."""
Name = int | str


def python_command(*arguments: str) -> list[str]:
    """Return the command that runs a module of this package, such as `-m highwater.node`, with this Python.

    `-P` keeps the current folder out of the module path. With `-m`, Python would search it first, and import the folder
    `highwater` of a clone instead of the installed package.
    """
    return [sys.executable, "-P", *arguments]


class Process(Protocol):
    """What `Processes` uses of a child process; `subprocess.Popen` has it."""

    pid: int
    returncode: int | Any

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raises subprocess.TimeoutExpired."""
        ...


class Guardian:
    """A process that kills those it was given once this one has ended, in whatever way."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            python_command("-m", "highwater.processes"), stdin=subprocess.PIPE, start_new_session=True
        )

    def watch(self, pid: int) -> None:
        self._write(pid)

    def forget(self, pid: int) -> None:
        """Kill no process of this id any more: it has ended."""
        self._write(-pid)

    def _write(self, number: int) -> None:
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), b"%d\n" % number)  # one write, so that threads may share the guardian

    def close(self) -> None:
        """End the guardian; it kills what still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Processes:
    """Processes by name, each with a command line; their output goes to `<name>.log` in `folder`.

    Each process leads a group of its own, so that a signal also reaches what it started, and Ctrl-C reaches only the
    launcher, which stops them in order. `guarded=False` for processes that watch their parent themselves.
    """

    def __init__(
        self,
        folder: Path,
        commands: Mapping[Name, Sequence[str]],
        *,
        environments: Mapping[Name, Mapping[str, str]] | None = None,
        guarded: bool = True,
    ) -> None:
        self._folder, self._commands, self._environments = folder, dict(commands), environments or {}
        self._processes: dict[Name, Process] = {}
        self._guardian = Guardian() if guarded else None

    def start(self, name: Name) -> None:
        """Start a process that is not running."""
        if self.is_running(name):
            return
        with self._log(name).open("ab") as log:
            started = self._launch(name, log)
        self._processes[name] = started
        if self._guardian is not None:
            self._guardian.watch(started.pid)

    def change(self, name: Name, command: Sequence[str]) -> None:
        """Use another command line when a process is started next."""
        self._commands[name] = command

    def _launch(self, name: Name, log: IO[bytes]) -> Process:
        """Start the process of a name, as the leader of a group, with its output in `log`."""
        return subprocess.Popen(
            self._commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, **SAFE_PATH, **self._environments.get(name, {})},
        )  # fmt: skip

    def is_running(self, name: Name) -> bool:
        process = self._processes.get(name)
        return process is not None and process.poll() is None

    def pid(self, name: Name) -> int:
        """Return the process id, 0 if it is not running."""
        return self._processes[name].pid if self.is_running(name) else 0

    def signal(self, name: Name, number: signal.Signals) -> None:
        """Signal the group of a process that is running."""
        if self.is_running(name):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._processes[name].pid, number)

    def kill(self, name: Name) -> None:
        self.signal(name, signal.SIGKILL)
        if name in self._processes:
            self._processes[name].wait()

    def stop(self, name: Name, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Stop with SIGTERM, or SIGKILL after a timeout; a paused process is resumed first.

        Return False if it had to be killed.
        """
        self.signal(name, signal.SIGCONT)
        self.signal(name, signal.SIGTERM)
        if name in self._processes:
            try:
                self._processes[name].wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill(name)
                return False
        return True

    def started(self) -> list[Name]:
        """Return the names of all processes that were started and not forgotten."""
        return list(self._processes)

    def take_ended(self) -> dict[Name, int]:
        """Forget the processes that have ended; return the exit code of each."""
        codes = {name: process.returncode for name, process in self._processes.items() if process.poll() is not None}
        for name in codes:
            del self._processes[name]
        return codes

    def check(self, names: Collection[Name] | None = None) -> None:
        """Raise UsageError with the last log line of a process that is not running; of those started if not named."""
        for name in self._processes if names is None else names:
            if not self.is_running(name):
                lines = self._log(name).read_text(errors="replace").strip().splitlines()
                raise UsageError(f"node {name} ended: {lines[-1] if lines else 'no output'}", where=str(self._folder))

    def close(self) -> None:
        """Kill all processes."""
        for name in self._processes:
            self.signal(name, signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
        if self._guardian is not None:
            self._guardian.close()

    def _log(self, name: Name) -> Path:
        return self._folder / f"{name}.log"


def guard() -> None:
    """Kill the process groups whose ids standard input has, once it ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the launcher handles them; its end closes our input
        signal.signal(number, signal.SIG_IGN)
    known: set[int] = set()
    for pid in map(int, sys.stdin):
        known = known | {pid} if pid > 0 else known - {-pid}
    for pid in known:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    guard()

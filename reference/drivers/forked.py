"""Nodes in forks of this process: they start in hundredths of a second, since everything is imported already.

A fork copies only the thread that forks, so the process that starts nodes this way has one.
"""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Final

from highwater.errors import ExitCode, UsageError
from highwater.processes import Name, Process, Processes

POLL_S: Final = 0.005
NodeMain = Callable[[], None]


class ForkedProcess:
    """A forked child that runs `main`; has what `Processes` uses of `subprocess.Popen`."""

    def __init__(self, main: NodeMain, log: IO[bytes]) -> None:
        assert threading.active_count() == 1, "a fork copies no threads, only the locks that they hold"
        self.returncode: int | None = None
        gc.freeze()  # a collection in the child would copy all memory that it shares with this process
        self.pid = os.fork()
        if not self.pid:
            _run_child(main, log)
        with contextlib.suppress(OSError):  # the child does it too; the first of both makes it the leader of a group
            os.setpgid(self.pid, self.pid)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (timeout or float("inf"))
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(POLL_S)
        return code


def _run_child(main: NodeMain, log: IO[bytes]) -> None:
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        warnings.simplefilter("default")
        main()
        code = 0
    except UsageError as error:
        print(f"highwater: {error}", file=sys.stderr)
        code = ExitCode.USAGE
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)


class ForkedNodes(Processes):
    """The nodes of a cluster; `main_of` returns the function that runs the node of a name and configuration file."""

    def __init__(self, folder: Path, configs: Mapping[str, Path], main_of: Callable[[str, Path], NodeMain]) -> None:
        super().__init__(folder, {}, guarded=False)
        self._configs, self._main_of = configs, main_of

    def _launch(self, name: Name, log: IO[bytes]) -> Process:
        return ForkedProcess(self._main_of(str(name), self._configs[str(name)]), log)

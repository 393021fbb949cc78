"""Run the user's own clients under faults, and record their traffic (`highwater chaos --clients COMMAND`)."""

import asyncio
import os
import queue
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError
from highwater.fuzz.proxy.addresses import Address
from highwater.fuzz.proxy.upstream import Upstream
from highwater.processes import Guardian
from highwater.reports.recorder.run import Endpoints, record, start_recording

FOLDER: Final = "clients"
HISTORY: Final = "history.ndjson"
OUTPUT: Final = "output.txt"
BOOTSTRAP: Final = "BOOTSTRAP"
"""The environment variable that holds the bootstrap address for the command."""
WAIT_FOR_CHILDREN: Final = "trap : TERM\n"
"""The shell ignores SIGTERM and waits for its children, which receive the signal as well."""
FINISH_S: Final = 600.0


class UserClients:
    """Run a shell command whose clients connect through a recording proxy. Use as a context manager.

    SIGTERM signals that all faults are over; the command then reads what it needs and ends.
    """

    def __init__(self, command: str, bootstrap: str, folder: Path) -> None:
        self._command, self._folder = command, folder / FOLDER
        upstream = tuple(
            (address.rpartition(":")[0], int(address.rpartition(":")[2])) for address in bootstrap.split(",")
        )
        self._endpoints = Endpoints(("127.0.0.1", 0), Upstream(upstream))
        self._folder.mkdir()
        self._sink = (self._folder / HISTORY).open("wb")
        self._recording = start_recording(self._sink)
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._listening: queue.SimpleQueue[Address | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._record, daemon=True)
        self._failure: BaseException | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guardian = Guardian()

    @property
    def failure(self) -> str | None:
        """Describe a failed exit of the command; None if it succeeded."""
        code = self._process.returncode if self._process is not None else None
        return (
            None
            if code == 0
            else f"Your clients ended with exit code {code}. See their output in {self._folder / OUTPUT}."
        )

    def __enter__(self) -> "UserClients":
        self._thread.start()
        address = self._listening.get()
        if address is not None:
            environment = {**os.environ, BOOTSTRAP: f"{address[0]}:{address[1]}"}
            with (self._folder / OUTPUT).open("wb") as output:
                self._process = subprocess.Popen(
                    WAIT_FOR_CHILDREN + self._command, shell=True, env=environment, stdin=subprocess.DEVNULL,
                    stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            self._guardian.watch(self._process.pid)
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGKILL)
        self._guardian.close()
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()
        if self._failure is None:
            self._recording.finish()
        self._sink.close()
        if self._failure is not None:
            raise self._failure

    def _record(self) -> None:
        try:
            self._loop.run_until_complete(record(self._endpoints, self._recording, self._ended, self._listening.put))
        except (UsageError, OSError, RuntimeError) as error:
            self._failure = error
        self._listening.put(None)

    def record_fault(self, f: str, value: Any, node: str | None) -> None:
        """Record a nemesis event. Phases are skipped: they describe the load of this tool."""
        if f != "phase":
            self._loop.call_soon_threadsafe(self._recording.nemesis, f, value, node)

    def wait(self) -> None:
        """Wait until the command ends by itself. Raises UsageError if it does not in time."""
        if self._process is not None:
            try:
                self._process.wait(FINISH_S)
            except subprocess.TimeoutExpired as error:
                raise UsageError("your clients did not end", where=self._command, hint="see their output") from error

    def finish(self) -> None:
        """Send SIGTERM and wait for the command. Raises UsageError if it does not end in time."""
        if self._process is not None:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(FINISH_S)
            except subprocess.TimeoutExpired as error:
                hint = f"end within {FINISH_S:g} s of SIGTERM, which signals that all faults are over"
                raise UsageError("your clients did not end", where=self._command, hint=hint) from error

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the command and its children, which may have ended already."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return
            if number is signal.SIGKILL:
                self._process.wait()

"""`highwater chaos --clients COMMAND`: somebody's own clients under faults, and what they tell the cluster recorded."""

import asyncio
import os
import queue
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError
from highwater.processes import Guardian
from highwater.reports.recorder.addresses import Address
from highwater.reports.recorder.run import Ends, begun, record
from highwater.reports.recorder.upstream import Upstream

FOLDER: Final = "clients"
HISTORY: Final = "history.ndjson"
OUTPUT: Final = "output.txt"
BOOTSTRAP: Final = "BOOTSTRAP"
"""The variable that tells the command where to connect."""
ENDURING: Final = "trap : TERM\n"
"""The shell waits for what it started, which has the signal, too."""
FINISH_S: Final = 600.0


class Guests:
    """A shell command and the recorder that it talks through. Use as a context.

    SIGTERM tells the command that all is healed; it then reads what it wants to, and ends.
    """

    def __init__(self, command: str, bootstrap: str, folder: Path) -> None:
        self._command, self._folder = command, folder / FOLDER
        upstream = tuple((each.rpartition(":")[0], int(each.rpartition(":")[2])) for each in bootstrap.split(","))
        self._ends = Ends(("127.0.0.1", 0), Upstream(upstream))
        self._folder.mkdir()
        self._sink = (self._folder / HISTORY).open("wb")
        self._recording = begun(self._sink)
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._where: queue.SimpleQueue[Address | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._record, daemon=True)
        self._failure: BaseException | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guardian = Guardian()

    @property
    def complaint(self) -> str | None:
        """How the command ended, if not well."""
        code = self._process.returncode if self._process is not None else None
        return None if code == 0 else f"your clients ended with exit code {code}: see {self._folder / OUTPUT}"

    def __enter__(self) -> "Guests":
        self._thread.start()
        address = self._where.get()
        if address is not None:
            environment = {**os.environ, BOOTSTRAP: f"{address[0]}:{address[1]}"}
            with (self._folder / OUTPUT).open("wb") as output:
                self._process = subprocess.Popen(
                    ENDURING + self._command, shell=True, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            self._guardian.watch(self._process.pid)
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGKILL)
        self._guardian.close()
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()
        self._sink.close()
        if self._failure is not None:
            raise self._failure

    def _record(self) -> None:
        try:
            self._loop.run_until_complete(record(self._ends, self._recording, self._ended, self._where.put))
        except (UsageError, OSError, RuntimeError) as error:
            self._failure = error
        self._where.put(None)

    def told(self, f: str, value: Any, node: str | None) -> None:
        """Phases are those of our own load."""
        if f != "phase":
            self._loop.call_soon_threadsafe(self._recording.nemesis, f, value, node)

    def finish(self) -> None:
        """UsageError when the command does not end."""
        if self._process is not None:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(FINISH_S)
            except subprocess.TimeoutExpired as error:
                hint = f"end within {FINISH_S:g} s of SIGTERM, which says that all is healed"
                raise UsageError("your clients do not end", where=self._command, hint=hint) from error

    def _signal(self, number: signal.Signals) -> None:
        """To the command and all that it started, which may be gone."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return
            if number is signal.SIGKILL:
                self._process.wait()

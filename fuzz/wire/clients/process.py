"""Run a client under test: it must exit in time, without a signal, and within its memory limit."""

import os
import shlex
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from highwater.errors import UsageError
from highwater.fuzz.wire.oracles.responses import Failure, Oracle
from highwater.fuzz.wire.process import MEGABYTE, Process

PLACE: Final = "{bootstrap}"
POLL_S: Final = 0.02
SHELL_SIGNAL: Final = 128
SAID_MAX: Final = 4_000


class ClientExit(NamedTuple):
    """Exit code, output, and the failed oracle if any."""

    code: int
    output: str
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class ClientProcess:
    """`command` contains `{bootstrap}` in place of the brokers' address."""

    command: str
    deadline_s: float
    memory_mb: int

    def __post_init__(self) -> None:
        if PLACE not in self.command:
            raise UsageError(
                "the command has no placeholder for the address of the brokers",
                where=self.command,
                hint=f"add {PLACE} to the command",
            )

    def run(self, bootstrap: str) -> ClientExit:
        words = [word.replace(PLACE, bootstrap) for word in shlex.split(self.command)]
        with tempfile.TemporaryFile() as output_file:  # an unread pipe would block the client
            try:
                child = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=output_file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                what = f"cannot be run ({error.strerror})"
                raise UsageError(what, where=words[0], hint="give a command line") from error
            try:
                failure = self._watch(child)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                code = child.wait()
            output_file.seek(max(0, output_file.seek(0, os.SEEK_END) - SAID_MAX))
            output = output_file.read().decode(errors="replace")
        if failure is None and (code < 0 or code > SHELL_SIGNAL):
            failure = Failure(Oracle.ALIVE, f"died of signal {-code if code < 0 else code - SHELL_SIGNAL}")
        return ClientExit(code, output, failure)

    def _watch(self, child: "subprocess.Popen[bytes]") -> Failure | None:
        process, end = Process(child.pid, None), time.monotonic() + self.deadline_s
        while child.poll() is None:
            peak = process.memory()[1]
            if peak > self.memory_mb * MEGABYTE:
                return Failure(Oracle.MEMORY, f"takes {peak // MEGABYTE} MB, {self.memory_mb} MB are allowed")
            if time.monotonic() > end:
                return Failure(Oracle.DEADLINE, f"has not ended after {self.deadline_s:g} s")
            time.sleep(POLL_S)
        return None

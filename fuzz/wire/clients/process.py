"""A client that is watched: it must end in time, by itself, and take no more memory than it may."""

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
from highwater.fuzz.wire.oracles import Broken, Oracle
from highwater.fuzz.wire.process import MEGABYTE, Process

PLACE: Final = "{bootstrap}"
POLL_S: Final = 0.02
SHELL_SIGNAL: Final = 128
SAID_MAX: Final = 4_000


class Ended(NamedTuple):
    """Exit code, what it said, and what it broke."""

    code: int
    said: str
    broken: Broken | None


@dataclass(frozen=True, slots=True)
class Client:
    """`command` has `{bootstrap}` where the brokers' address belongs."""

    command: str
    deadline_s: float
    memory_mb: int

    def __post_init__(self) -> None:
        if PLACE not in self.command:
            raise UsageError("does not say where the brokers are", where=self.command, hint=f"put {PLACE} into it")

    def run(self, bootstrap: str) -> Ended:
        words = [word.replace(PLACE, bootstrap) for word in shlex.split(self.command)]
        with tempfile.TemporaryFile() as said:  # a pipe that nobody reads would make it wait
            try:
                child = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
                )
            except OSError as error:
                what = f"cannot be run ({error.strerror})"
                raise UsageError(what, where=words[0], hint="give a command line") from error
            try:
                broken = self._watch(child)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                code = child.wait()
            said.seek(max(0, said.seek(0, os.SEEK_END) - SAID_MAX))
            told = said.read().decode(errors="replace")
        if broken is None and (code < 0 or code > SHELL_SIGNAL):
            broken = Broken(Oracle.ALIVE, f"died of signal {-code if code < 0 else code - SHELL_SIGNAL}")
        return Ended(code, told, broken)

    def _watch(self, child: "subprocess.Popen[bytes]") -> Broken | None:
        process, end = Process(child.pid, None), time.monotonic() + self.deadline_s
        while child.poll() is None:
            peak = process.memory()[1]
            if peak > self.memory_mb * MEGABYTE:
                return Broken(Oracle.MEMORY, f"takes {peak // MEGABYTE} MB, {self.memory_mb} MB are allowed")
            if time.monotonic() > end:
                return Broken(Oracle.DEADLINE, f"has not ended after {self.deadline_s:g} s")
            time.sleep(POLL_S)
        return None

"""A target in a single launched process, which prints `ready ADDRESS,...` and ends when its standard input closes."""

import contextlib
import select
import subprocess
from collections.abc import Sequence
from typing import Final

from highwater.conformance.failures import TargetFailure
from highwater.conformance.targets.base import PROMPT
from highwater.conformance.targets.discovery import brokers_of
from highwater.conformance.targets.external import ExternalTarget
from highwater.errors import UsageError
from highwater.temporary import make_folder

READY_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 5.0


class ProcessTarget(ExternalTarget):
    """Target in a single process: nodes cannot be stopped separately, and a restart loses all data."""

    capabilities = frozenset({PROMPT})

    def __init__(self, name: str, version: str, command: Sequence[str]) -> None:
        self._own_name, self._command = name, command
        self._log = make_folder(f"{name}-") / "log"  # it outlives restarts
        self._launch()
        super().__init__(self._first)
        self.name, self.version, self.era = name, version, ""

    def _launch(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], READY_TIMEOUT_S)
        ready_line = self._process.stdout.readline().split() if readable else []
        if len(ready_line) != 2 or ready_line[0] != "ready":
            self.close()
            raise UsageError(
                f"the process did not start: {' '.join(ready_line) or 'it printed nothing'}", where=self._own_name
            )
        self._first = ready_line[1].split(",")[0]

    def revive(self) -> bool:
        self.close()
        self._launch()
        try:
            self.addresses = brokers_of(self._first)
        except TargetFailure:
            return False
        return True

    def close(self) -> None:
        """Close the standard input, which ends the process; kill it if it does not end in time."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

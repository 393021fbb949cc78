"""A target that is one process of ours: it says `ready ADDRESS,...` when it is, and ends with its input."""

import contextlib
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from highwater.conformance.failures import TargetFailure
from highwater.conformance.targets.base import PROMPT
from highwater.conformance.targets.discovery import brokers_of
from highwater.conformance.targets.external import ExternalTarget
from highwater.errors import UsageError

READY_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 5.0


class SpokenTarget(ExternalTarget):
    """It has no nodes that could be stopped one by one; brought back, it has forgotten everything."""

    capabilities = frozenset({PROMPT})

    def __init__(self, name: str, version: str, command: Sequence[str]) -> None:
        self._own_name, self._command = name, command
        self._log = NamedTemporaryFile(prefix=f"highwater-{name}-", suffix=".log")  # noqa: SIM115 - its last words
        self._launch()
        super().__init__(self._first)
        self.name, self.version = name, version

    def _launch(self) -> None:
        with Path(self._log.name).open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], READY_TIMEOUT_S)
        words = self._process.stdout.readline().split() if readable else []
        if len(words) != 2 or words[0] != "ready":
            self.close()
            raise UsageError(f"it did not start: {' '.join(words) or 'no word of it'}", where=self._own_name)
        self._first = words[1].split(",")[0]

    def revive(self) -> bool:
        self.close()
        self._launch()
        try:
            self.addresses = brokers_of(self._first)
        except TargetFailure:
            return False
        return True

    def close(self) -> None:
        """The end of its input is its end."""
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

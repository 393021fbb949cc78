"""librdkafka's mock cluster as a target, in a process of its own, since a target may abort."""

import contextlib
import select
import subprocess
import sys
from collections.abc import Mapping

from conformance.failures import TargetFailure
from conformance.targets.discovery import brokers_of
from conformance.targets.external import ExternalTarget
from spec.formats.verdict import UsageError

READY_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 5.0


class LibrdkafkaMock(ExternalTarget):
    settings: Mapping[str, int] = {}

    def __init__(self, brokers: int = 1) -> None:
        self._brokers = brokers
        self._launch()
        super().__init__(self._first)
        self.name, self.version = "librdkafka-mock", self._library

    def _launch(self) -> None:
        command = [sys.executable, "-m", "conformance.targets.mock_process", str(self._brokers)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], READY_TIMEOUT_S)
        words = self._process.stdout.readline().split() if readable else []
        if len(words) != 3 or words[0] != "ready":
            self.close()
            raise UsageError(
                "librdkafka's mock did not start", where="librdkafka-mock", mend="install the extra: highwater[clients]"
            )
        self._library, self._first = words[1], words[2].split(",")[0]

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

"""The target on the table: where it listens, its process, and how it is brought back when it has died."""

import re
import time
from contextlib import suppress
from typing import Final

from highwater.conformance.failures import TargetFailure
from highwater.conformance.targets.base import Target
from highwater.conformance.targets.commands import CommandTarget
from highwater.conformance.targets.external import ExternalTarget
from highwater.errors import UsageError
from highwater.fuzz.wire.connection import why_dead
from highwater.fuzz.wire.process import MEGABYTE, Process, listener, place_of

GONE_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.02
SPARE_SOCKETS: Final = 60
SETTLE_S: Final = 3.0
HEAP: Final = {"java": 1024}
"""MB that a process of that name may grow by within its own bounds."""
MEMORY_MB: Final = 256
BROKE_OFF: Final = re.compile(r"^Traceback \(most recent call last\):$", re.MULTILINE)
"""What a broker in Python logs of a handler that broke off. A JVM's log has stacks of requests that it refused, too."""


class Lab:
    """A target that we launched, or with `target` None the address of somebody's."""

    def __init__(self, address: str, target: Target | None = None, name: str = "", memory_mb: int = 0) -> None:
        self.address, self._target, self.name = address, target, name or address
        self.version = target.version if target is not None else "unknown"
        self._memory_mb = memory_mb
        self.restarts = 0
        self._look()

    def _look(self) -> None:
        self.process: Process | None = listener(self.address)
        self.memory_limit = self._limit()
        self._sockets = self.process.sockets() if self.process else 0
        self.begin()

    def _limit(self) -> int:
        command = ""
        if self.process is not None:
            with suppress(OSError):
                command = (self.process.folder / "comm").read_text().strip()
        return (self._memory_mb or HEAP.get(command, MEMORY_MB)) * MEGABYTE

    # -- what a step costs -----------------------------------------------------------------------

    def begin(self) -> None:
        """From here on memory and log count."""
        self._memory, self._log = 0, 0
        if self.process is not None:
            self.process.forget_peak()
            self._memory, self._log = self.process.memory()[0], self.process.log_size()

    def grown(self) -> str | None:
        """What it grew by since `begin`, if that is more than it may."""
        if self.process is None:
            return None
        peak = self.process.memory()[1]
        if peak - self._memory <= self.memory_limit:
            return None
        return (
            f"{(peak - self._memory) // MEGABYTE} MB more memory at its peak, on {self._memory // MEGABYTE} MB; "
            f"{self.memory_limit // MEGABYTE} MB are allowed"
        )

    @property
    def is_swollen(self) -> bool:
        """It has not given back what it took."""
        return self.process is not None and self.process.memory()[0] - self._memory > self.memory_limit

    def leaked(self, connections: int) -> str | None:
        """Sockets that it holds beyond those of our open connections, after a while to close them."""
        if self.process is None:
            return None
        end = time.monotonic() + SETTLE_S
        while (held := self.process.sockets() - connections - self._sockets) > SPARE_SOCKETS:
            if time.monotonic() > end:
                return f"holds {held} sockets more than at the start, {connections} connections are open"
            time.sleep(POLL_S)
        return None

    def said(self) -> str:
        """What it logged since `begin`."""
        return self.process.said_since(self._log) if self.process else ""

    def broke_off(self) -> str | None:
        """The place of an exception that it logged since `begin`, and lives on."""
        said = self.said()
        return place_of(said) if BROKE_OFF.search(said) else None

    # -- life and death --------------------------------------------------------------------------

    def why_dead(self) -> str | None:
        return why_dead(self.address)

    @property
    def is_ours(self) -> bool:
        """We launched it, and may kill it."""
        return self._target is not None and type(self._target) not in (ExternalTarget, CommandTarget)

    def revive(self) -> bool:
        """False when it stays dead, or is not ours to bring back."""
        if self._target is None:
            return self.why_dead() is None
        self.restarts += 1
        try:
            if not self._target.revive():
                return self.why_dead() is None
        except (UsageError, TargetFailure):
            return False
        self.address = next(iter(self._target.addresses.values()))
        self._look()
        return self.why_dead() is None

    def restart(self) -> bool:
        """End it and bring it back, when it hangs or has taken too much."""
        if self.process is None or not self.is_ours:
            return False
        self.process.kill()
        end = time.monotonic() + GONE_TIMEOUT_S
        while self.process.is_alive and time.monotonic() < end:
            time.sleep(POLL_S)
        return self.revive()

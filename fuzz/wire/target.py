"""The target under test: its address, its process, and how it is restarted after a crash."""

import re
import time
from collections.abc import Callable
from typing import Final

from highwater.conformance.failures import TargetFailure
from highwater.conformance.targets.base import Target
from highwater.conformance.targets.commands import CommandTarget
from highwater.conformance.targets.external import ExternalTarget
from highwater.errors import UsageError
from highwater.fuzz.wire.connection import why_dead
from highwater.fuzz.wire.oracles.leaks import JVM
from highwater.fuzz.wire.oracles.stalls import STALL_S
from highwater.fuzz.wire.process import MEGABYTE, Process, listening_process, place_of

GONE_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.02
SPARE_SOCKETS: Final = 60
SETTLE_S: Final = 3.0
RESTART_MAX_S: Final = 1.0
"""A target that restarts faster is restarted when it hangs, instead of waiting for it."""
HEAP: Final = {JVM: 1024}
"""Megabytes by which a process of that name may grow within its own heap limit."""
MEMORY_MB: Final = 256
TRACEBACK: Final = re.compile(r"^Traceback \(most recent call last\):$", re.MULTILINE)
"""Start of an uncaught exception in the log of a Python broker. A JVM also logs stacks of rejected requests."""


class FuzzTarget:
    """A broker to fuzz. `target` is None for an address that the user gave and this process did not launch.

    `launch` starts another instance of the same broker. A healthy client that waits for `stall_limit_s` is a stall.
    """

    def __init__(
        self, address: str, target: Target | None = None, name: str = "", memory_mb: int = 0,
        launch: Callable[[], Target] | None = None,
    ) -> None:  # fmt: skip
        self.address, self._target, self.name = address, target, name or address
        self.version = target.version if target is not None else "unknown"
        self._memory_mb, self._launch = memory_mb, launch
        self.restarts, self.restart_s, self.start_s = 0, 0.0, 0.0
        self.revivals = 0
        """How often it was dead and lives again: restarted, or started by others if this process did not launch it."""
        self.renewals = 0
        """How often it did not start with its data, so that it was started with empty data."""
        self.stall_limit_s = STALL_S
        self._attach()

    @property
    def has_twin(self) -> bool:
        """True if `twin` can start another instance."""
        return self._launch is not None

    def twin(self) -> "FuzzTarget":
        """Start another instance of the same broker; its user closes it."""
        assert self._launch is not None
        launched = self._launch()
        address = next(iter(launched.addresses.values()))
        twin = FuzzTarget(address, launched, self.name, self._memory_mb, self._launch)
        twin.stall_limit_s = self.stall_limit_s
        return twin

    def close(self) -> None:
        """Stop the broker, if this process launched it."""
        if self._target is not None:
            self._target.close()

    def _attach(self) -> None:
        self.process: Process | None = listening_process(self.address)
        self.memory_limit = self._limit()
        self._sockets = self.process.sockets() if self.process else 0
        self.start_measuring()

    def _limit(self) -> int:
        command = self.process.command if self.process is not None else ""
        return (self._memory_mb or HEAP.get(command, MEMORY_MB)) * MEGABYTE

    @property
    def why_no_leaks(self) -> str:
        """Return why a leak would not show in the resident memory; empty if it does."""
        if self.process is None or not self.memory():
            return "the memory of the process cannot be read"
        return "the heap of a JVM grows up to its limit whatever is sent" if self.process.command == JVM else ""

    def memory(self) -> int:
        """Return the resident bytes."""
        return self.process.memory()[0] if self.process is not None else 0

    def waited_for_processor_s(self) -> float:
        return self.process.waited_for_processor_s() if self.process is not None else 0.0

    # -- what a step costs -----------------------------------------------------------------------

    def start_measuring(self) -> None:
        """Start measuring memory and log output from now on."""
        self._memory, self._log = 0, 0
        if self.process is not None:
            self.process.forget_peak()
            self._memory, self._log = self.process.memory()[0], self.process.log_size()

    def excess_memory(self) -> str | None:
        """Return by how much the peak memory exceeds the limit since `start_measuring`; None if it does not."""
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
    def holds_excess_memory(self) -> bool:
        """True if the process has not released the memory that it allocated."""
        return self.process is not None and self.process.memory()[0] - self._memory > self.memory_limit

    def leaked_sockets(self, connections: int) -> str | None:
        """Return how many sockets exceed our connections, after waiting up to SETTLE_S; None if few."""
        if self.process is None:
            return None
        end = time.monotonic() + SETTLE_S
        while (held := self.process.sockets() - connections - self._sockets) > SPARE_SOCKETS:
            if time.monotonic() > end:
                return f"holds {held} sockets more than at the start, {connections} connections are open"
            time.sleep(POLL_S)
        return None

    def log_text(self) -> str:
        """Return what the target logged since `start_measuring`."""
        return self.process.log_since(self._log) if self.process else ""

    def logged_exception(self) -> str | None:
        """Return the place of an uncaught exception that was logged since `start_measuring`, or None."""
        log_text = self.log_text()
        return place_of(log_text) if TRACEBACK.search(log_text) else None

    # -- life and death --------------------------------------------------------------------------

    def why_dead(self, gives_up: Callable[[], bool] = lambda: False) -> str | None:
        """Return what the target did instead of answering; None if it answered, or `gives_up` returned True."""
        return why_dead(self.address, gives_up)

    def why_dead_within(self, seconds: float) -> str | None:
        """Return what the target did instead of answering, at once or within that time; None if it stays alive."""
        end = time.monotonic() + seconds
        while (dead := self.why_dead()) is None and time.monotonic() < end:
            time.sleep(POLL_S)
        return dead

    @property
    def is_launched(self) -> bool:
        """True if this process launched the target, and so may kill it."""
        return self._target is not None and type(self._target) not in (ExternalTarget, CommandTarget)

    @property
    def restarts_at_once(self) -> bool:
        """True if a restart costs less than waiting for requests that are stuck."""
        return self.is_launched and self.restart_s < RESTART_MAX_S

    def revive(self) -> bool:
        """Start the target again; False if it stays dead or was not launched by this process.

        If it does not start with its data, it is started with empty data. Otherwise one request that stores what the
        start cannot read would end the run, and no replay could find that request.
        """
        started = time.monotonic()
        try:
            is_alive = self._start_with_data(self._target) if self._target is not None else self.why_dead() is None
        except (UsageError, TargetFailure):
            is_alive = False
        if not is_alive:
            self.renewals += self._launch is not None
            is_alive = self._renew()
        self.start_s = time.monotonic() - started
        self.revivals += is_alive
        return is_alive

    def _start_with_data(self, target: Target) -> bool:
        started = time.monotonic()
        if target.revive():
            self.restarts += 1
            self._move_to(target)
            self.restart_s = time.monotonic() - started
        return self.why_dead() is None

    def _renew(self) -> bool:
        """Replace the target by a new instance, whose data is empty; False if there is none."""
        if self._launch is None:
            return False
        self.close()
        try:
            self._move_to(self._launch())
            self.restarts += 1
        except (UsageError, TargetFailure):
            return False
        return self.why_dead() is None

    def _move_to(self, target: Target) -> None:
        self._target, self.address = target, next(iter(target.addresses.values()))
        self._attach()

    def restart(self, *, empty: bool = False) -> bool:
        """Kill and start the target again, after a hang or excessive memory; with `empty` data, if that is possible."""
        if self.process is None or not self.is_launched:
            return False
        self.process.kill()
        end = time.monotonic() + GONE_TIMEOUT_S
        while self.process.is_alive and time.monotonic() < end:
            time.sleep(POLL_S)
        return (empty and self._renew()) or self.revive()

"""Targets of the self-test: one with a planted defect, and fake servers."""

from collections.abc import Mapping
from typing import Any

from highwater.conformance.self_test.fake_servers import FakeServer, FakeServerTransport, WaitClock
from highwater.conformance.self_test.faults import PlantedDefect
from highwater.conformance.self_test.transport import DefectiveTransport
from highwater.conformance.targets.base import REPEATABLE, CaseEnd, Target
from highwater.reference.client.transport import Transport


class DefectiveTarget:
    """A target with the planted defect in its transport; all other attributes are those of the real target."""

    def __init__(self, target: Target) -> None:
        self._target, self.fault = target, PlantedDefect()
        self.transport: Transport = DefectiveTransport(target, self.fault)

    @property
    def is_repeatable(self) -> bool:
        return REPEATABLE in self._target.capabilities

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


class FakeServerTarget:
    """A target whose addresses all lead to one fake server; starting and stopping nodes does nothing.

    It is repeatable: there is nothing to restart and nothing to delete after a case.
    """

    def __init__(self, target: Target, server: FakeServer) -> None:
        self._target = target
        self.capabilities = target.capabilities | {REPEATABLE}
        self.transport: Transport = FakeServerTransport(server, WaitClock(target.transport.clock))

    def begin_case(self, case: str, settings: Mapping[str, int] = {}) -> None:
        """Do nothing: the server has no state."""

    def end_case(self) -> CaseEnd:
        return CaseEnd("", "")

    def start_node(self, node: int | str) -> None:
        """Do nothing: there is no process."""

    stop_node = kill_node = pause_node = resume_node = start_node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

"""Faults of single messages (`highwater.fuzz.proxy.faults`) in the simulated network: those of requests that are lost,
late or repeated."""

from collections.abc import Callable
from typing import Final

from highwater.errors import UsageError
from highwater.fuzz.proxy.faults import MessageFault, parse_fault
from highwater.fuzz.proxy.matching import Faults, Subject
from highwater.reference.drivers.simulation.network import Link, Network, kind_of
from highwater.reference.effects import Request

LOSES: Final = frozenset({"drop", "close", "late"})
"""Actions that end the connection of a request, which is then not sent."""
COPIES: Final = frozenset({"repeat", "duplicate"})


class MessageFaults:
    """The faults of a network, whose `strike` this is; the client of a filter is the name of the sending host."""

    def __init__(self, network: Network, on_strike: Callable[[], None] = lambda: None) -> None:
        """Create them; `on_strike` is called for each request that is struck."""
        self._network = network
        self.faults = Faults(on_strike=lambda fault, subject: on_strike())

    def add(self, line: str) -> Callable[[], None]:
        """Add a fault and return what ends it. Raises UsageError for one that only a proxy has."""
        fault = parse_fault(line)
        if fault.side != "request" or fault.action not in LOSES | COPIES:
            hint = f"requests, and one of: {', '.join(sorted(LOSES | COPIES))}"
            raise UsageError("the simulator does not model this", where=f"fault {line!r}", hint=hint)
        armed = self.faults.add(fault)
        self._network.strike = self._strike
        return lambda: self.faults.remove(armed)

    def _strike(self, link: Link, request: Request) -> bool:
        name = kind_of(request).removesuffix("Request")
        fault = self.faults.strike(Subject(name, request.api_version, "request", link[0], lambda: request.body))
        if fault is None:
            return False
        self._inject(fault, link, request)
        return fault.action in LOSES

    def _inject(self, fault: MessageFault, link: Link, request: Request) -> None:
        if fault.action in LOSES:
            self._network.disconnect(*link)
        if fault.action in COPIES or fault.action == "late":
            self._network.deliver_later(link, request, max(fault.ms, 0))

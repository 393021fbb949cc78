"""Faults of single messages (`highwater.fuzz.proxy.faults`) in the simulated network."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from highwater.fuzz.proxy.answers import error_response, merged, scope, with_error
from highwater.fuzz.proxy.faults import MessageFault, parse_fault
from highwater.fuzz.proxy.items import items, without
from highwater.fuzz.proxy.matching import Faults, Subject
from highwater.fuzz.proxy.reach import teaches
from highwater.reference.drivers.simulation.network import Link, Message, Network
from highwater.reference.effects import Request, Response
from highwater.reference.wire.registry import APIS, Api

LOSES: Final = frozenset({"drop", "close", "late"})
"""Actions that end the connection of a message, which is then not sent."""
COPIES: Final = frozenset({"repeat", "duplicate", "late"})
SWAP_MS: Final = 1_000
"""How long a request waits for the next one, behind which it is to arrive."""
FOREVER_MS: Final = 1 << 40
API_OF: Final[dict[type, Api]] = {api.request: api for api in APIS.values()}

Exchange = tuple[str, str, int]
"""A request and its response: the client, the broker, the correlation id."""


class MessageFaults:
    """The faults of a network, whose `strike` this is; the client of a filter is the name of the sending host.

    A host has one connection to another one, or one for each kind of request (`Network.separate_connections`): `stall`
    holds all of them. A lost message ends its connection, which its client notices; `black-hole` loses them silently.
    """

    def __init__(self, network: Network, on_strike: Callable[[], None] = lambda: None) -> None:
        """Create them; `on_strike` is called for each message that is struck."""
        self._network = network
        self.faults = Faults(on_strike=lambda fault, subject: on_strike())
        self._asked: dict[Exchange, Request] = {}
        self._added: dict[Exchange, Any] = {}  # what a response lacks, because its request was not sent completely
        self._swapped: dict[Link, Request] = {}
        self._silent_until_ms: dict[str, int] = {}

    def add(self, line: str) -> Callable[[], None]:
        """Add a fault and return what ends it. Raises UsageError for a line that is none."""
        armed = self.faults.add(parse_fault(line))
        self._network.strike = self._strike

        def end() -> None:
            self.faults.remove(armed)
            if armed.fault.action == "black-hole":
                self._silent_until_ms.clear()

        return end

    def _strike(self, link: Link, message: Message) -> bool:
        if isinstance(message, Request):
            return self._is_silent(link[0]) or self._request(link, message)
        return isinstance(message, Response) and (self._is_silent(link[1]) or self._response(link, message))

    def _is_silent(self, client: str) -> bool:
        return self._silent_until_ms.get(client, 0) > self._network.now_ms

    # -- requests ----------------------------------------------------------------------------------

    def _request(self, link: Link, request: Request) -> bool:
        """Return whether the request was lost, answered or sent by a fault."""
        api = API_OF[type(request.body)]
        self._asked[(*link, request.correlation_id)] = request
        if teaches(api, request.api_version, response=False):
            self.faults.learn(request.body)
        fault = self.faults.strike(Subject(api.name, request.api_version, "request", link[0], lambda: request.body))
        if fault is not None and self._inject(fault, link, request):
            return True
        if link in self._swapped:
            self._network.pass_on(link, request)
            self._release(link)
            return True
        return False

    def _inject(self, fault: MessageFault, link: Link, request: Request) -> bool:
        if fault.action in COPIES:
            self._network.deliver_later(link, request, max(fault.ms, 0))
        match fault.action:
            case "answer":
                return self._answer(fault, link, request)
            case "swap":
                self._release(link)
                self._swapped[link] = request
                self._network.after(SWAP_MS, lambda: self._release(link, request))
                return True
            case "black-hole":
                lasts_ms = fault.ms if fault.ms >= 0 else FOREVER_MS
                self._silent_until_ms[link[0]] = self._network.now_ms + lasts_ms
                return True
        return self._hold_up(fault, link, request)

    def _release(self, link: Link, only: Request | None = None) -> None:
        """Send the request that was held back on this link, if it is `only` that one."""
        if link in self._swapped and (only is None or only is self._swapped[link]):
            self._network.pass_on(link, self._swapped.pop(link))

    def _answer(self, fault: MessageFault, link: Link, request: Request) -> bool:
        """Answer a request with an error; what of it the line is not about is sent."""
        api, topics = API_OF[type(request.body)], self.faults.topics
        concerns = scope(fault, api, request.api_version)
        response = error_response(api, request.api_version, request.body, fault.error)
        rest = request.body if concerns is None else without(request.body, concerns, topics)
        exchange = (*link, request.correlation_id)
        if concerns is not None and any(True for _ in items(rest, topics)):
            self._added[exchange] = without(response, lambda item: not concerns(item), topics)
            self._network.pass_on(link, replace(request, body=rest))
            return True
        self._asked.pop(exchange)
        if getattr(request.body, "acks", None) != 0:  # Produce with acks=0 has no response
            self._network.pass_on((link[1], link[0]), Response(request.correlation_id, request.api_version, response))
        return True

    # -- responses ---------------------------------------------------------------------------------

    def _response(self, link: Link, response: Response) -> bool:
        """Return whether the response was lost or sent by a fault."""
        exchange = (link[1], link[0], response.correlation_id)
        request = self._asked.pop(exchange, None)
        if request is None or response.body is None:
            return False
        api, version, topics, body = API_OF[type(request.body)], request.api_version, self.faults.topics, response.body
        if teaches(api, version, response=True):
            self.faults.learn(body)
        if exchange in self._added:
            body = merged(body, self._added.pop(exchange), topics)
        fault = self.faults.strike(Subject(api.name, version, "response", link[1], lambda: request.body, body))
        if fault is not None and fault.action == "answer":
            body = with_error(api, version, body, fault.error, scope(fault, api, version), topics)
        changed = response if body is response.body else replace(response, body=body)
        if fault is not None and self._hold_up(fault, link, changed):
            return True
        if changed is not response:
            self._network.pass_on(link, changed)
        return changed is not response

    # -- both --------------------------------------------------------------------------------------

    def _hold_up(self, fault: MessageFault, link: Link, message: Message) -> bool:
        """Lose, delay or hold a message; return whether nothing is left to do with it."""
        if fault.action in LOSES:
            self._network.disconnect(*link)
            return True
        if fault.action == "delay":
            self._network.pass_on(link, message, fault.ms)
            return True
        if fault.action == "stall":
            self._clog(link, 1)
            self._network.after(fault.ms, lambda: self._clog(link, -1))
        return False

    def _clog(self, link: Link, amount: int) -> None:
        self._network.add_faults(*link, clog=amount)
        self._network.add_faults(link[1], link[0], clog=amount)

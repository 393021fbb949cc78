"""The proxy: one port for each broker. Frames pass unchanged except for broker addresses, and for faults."""

import asyncio
import contextlib
import ssl
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from highwater.fuzz.proxy.addresses import Address, addresses, rewrite_addresses
from highwater.fuzz.proxy.answers import error_response
from highwater.fuzz.proxy.connection import ClientAtProxy, Exchange, Tap, frames_of
from highwater.fuzz.proxy.faults import MessageFault
from highwater.fuzz.proxy.matching import Faults
from highwater.fuzz.proxy.sessions import FetchSessions
from highwater.fuzz.proxy.upstream import Upstream
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.framing import decode_response
from highwater.reference.wire.registry import Api

BROKERS: Final = 1_000
CLOSE_S: Final = 5.0
LATE_REPLY_S: Final = 10.0
STREAM_LIMIT: Final = 1 << 20
Result = TypeVar("Result")
Script = Callable[[Any, int], Any]


class Proxy:
    """Listens for clients and opens one broker connection for each. Runs in one event loop."""

    def __init__(
        self,
        host: str,
        tls: ssl.SSLContext | None = None,
        *,
        faults: Faults | None = None,
        tap: Callable[[Address], Tap] | None = None,
        note: Callable[[str], None] = lambda text: None,
        advertised: str = "",
    ) -> None:
        """Create the proxy; `tls` is the server-side context for client connections.

        `advertised` is the host name that clients get in responses, if it is not `host`.

        `tap` returns an observer for each connection, `note` receives what became of requests that are delivered late.
        """
        self.faults = faults or Faults()
        self.sessions = FetchSessions()
        self.ours: dict[Address, Address] = {}
        self.scripts: dict[int, Script] = {}
        self.broker_closed: Counter[Address] = Counter()
        self.failure: Exception | None = None
        self._host, self._tls, self._tap, self._note_late = host, tls, tap, note
        self._advertised = advertised or host
        self._silenced: dict[str, float] = {}
        self._servers: list[asyncio.Server] = []
        self._clients: set[asyncio.Task[None]] = set()
        self._steps: set[asyncio.Task[Any]] = set()
        self._closing = False

    async def listen(self, upstream: Upstream, port: int = 0) -> Address:
        """Open a port (0: any free one) that forwards to `upstream`, and return its address."""

        def connected(*streams: Any) -> None:  # at once: `close` must not miss a client that has just arrived
            client = asyncio.ensure_future(self._serve(upstream, *streams))
            self._clients.add(client)
            client.add_done_callback(self._clients.discard)

        server = await asyncio.start_server(connected, self._host, port, ssl=self._tls, limit=STREAM_LIMIT)
        self._servers.append(server)
        found: Address = (self._host, server.sockets[0].getsockname()[1])
        return found

    async def close(self) -> None:
        """Stop listening, and end every connection; their pending requests stay without a reply."""
        self._closing = True
        for server in self._servers:
            server.close()
        for step in self._steps:  # not the clients: a client that is about to end would leave its connections open
            step.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _serve(self, upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            address, broker_reader, broker_writer = await self.spawn(upstream.connect())
        except (OSError, asyncio.CancelledError):
            await _close(writer)
            return
        tap = self._tap(address) if self._tap is not None else None
        link = ClientAtProxy(self, upstream.at(address), writer, broker_writer, tap)
        pumps = [self.spawn(link.requests(reader)), self.spawn(link.replies(broker_reader))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        self._note_end(address, await asyncio.gather(*pumps, return_exceptions=True))
        link.lost()
        await asyncio.gather(_close(writer), _close(broker_writer))

    def spawn(self, step: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start what `close` can cut short."""
        task = asyncio.ensure_future(step)
        if self._closing:
            task.cancel()
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        return task

    def _note_end(self, upstream: Address, outcomes: Sequence[object]) -> None:
        """Count broker-closed connections (a possible restart), and store any unexpected error."""
        if outcomes[1] is None:
            self.broker_closed[upstream] += 1
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError | DecodeError):
                self.failure = outcome

    async def redirect_addresses(self, name: str, reply: Any, upstream: Upstream) -> Any:
        """Return the reply with proxy addresses, opening a port for each new broker."""
        for address in addresses(name, reply):
            if address not in self.ours and len(self.ours) < BROKERS:
                self.ours[address] = (self._advertised, (await self.listen(upstream.at(address)))[1])
        return rewrite_addresses(name, reply, lambda address: self.ours.get(address, address))

    # What faults need of the proxy as a whole.

    def silence(self, client: str, ms: int) -> None:
        """Let a client hear nothing for so many milliseconds, or ever (-1)."""
        self._silenced[client] = time.monotonic() + ms / 1000 if ms >= 0 else float("inf")

    def is_silenced(self, client: str) -> bool:
        return bool(self._silenced) and self._silenced.get(client, 0) > time.monotonic()

    def response_to(self, fault: MessageFault, api: Api, version: int, request: Any) -> Any:
        """Return what a request that `fault` strikes is answered with."""
        script = self.scripts.get(id(fault))
        return script(request, version) if script is not None else error_response(api, version, request, fault.error)

    def deliver_later(self, broker: Upstream, login: Sequence[bytes], exchange: Exchange, fault: MessageFault) -> None:
        """Send a request in `fault.ms` milliseconds on a connection of its own, and note what the broker answers."""
        self.spawn(self._deliver(broker, tuple(login), exchange, fault))

    async def _deliver(self, broker: Upstream, login: Sequence[bytes], exchange: Exchange, fault: MessageFault) -> None:
        await asyncio.sleep(fault.ms / 1000)
        what = f"{exchange.api.name} version {exchange.version} of client {exchange.client}, {fault.ms} ms late"
        try:
            async with asyncio.timeout(LATE_REPLY_S):
                reply = await _exchange_frames(broker, [*login, exchange.frame])
        except (OSError, EOFError) as error:
            self._note_late(f"{what}: no answer ({error or type(error).__name__})")
        else:
            self._note_late(f"{what}: answered {_outcome(exchange.api, exchange.version, reply)}")


async def _exchange_frames(broker: Upstream, frames: Sequence[bytes]) -> bytes:
    """Send requests on a new connection, each after the reply to the one before; return the last reply."""
    _, reader, writer = await broker.connect()
    try:
        replies = frames_of(reader)
        reply = b""
        for frame in frames:
            writer.write(len(frame).to_bytes(4, "big") + frame)
            reply = await anext(replies, b"")
            if not reply:
                raise EOFError("the broker closed the connection")
        return reply
    finally:
        await _close(writer)


def _outcome(api: Api, version: int, reply: bytes) -> str:
    """Return the error codes of a reply by their names."""
    try:
        _, message = decode_response(api, version, reply)
    except DecodeError as error:
        return str(error)
    codes = sorted(error_codes(message))
    return (
        ", ".join(ErrorCode(code).name if code in set(ErrorCode) else str(code) for code in codes)
        or "without error code"
    )


def error_codes(message: Any) -> set[int]:
    """Return all error codes in a response."""
    found: set[int] = set()
    for name in type(message).__dataclass_fields__:
        value = getattr(message, name)
        if name in ("error_code", "partition_error_code"):
            found.add(value)
        for entry in value if isinstance(value, tuple) else ():
            if hasattr(type(entry), "__dataclass_fields__"):
                found |= error_codes(entry)
    return found


async def _close(stream: asyncio.StreamWriter) -> None:
    """Close a connection, and wait for it: a loop that ends sooner leaves its socket open."""
    stream.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await stream.wait_closed()
    stream.transport.abort()

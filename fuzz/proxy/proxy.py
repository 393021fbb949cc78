"""The recording proxy: one port for each broker; frames pass unchanged except for broker addresses."""

import asyncio
import contextlib
import ssl
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

from highwater.reference.wire.errors import DecodeError, EncodeError
from highwater.reference.wire.framing import FrameReader, encode_response
from highwater.reports.recorder.addresses import Address, addresses, limit_api_versions, rewrite_addresses
from highwater.reports.recorder.decoder import FRAME_LIMIT, REWRITTEN, FrameDecoder, Reply
from highwater.reports.recorder.exchanges import Cluster, Link
from highwater.reports.recorder.observer import Observer
from highwater.reports.recorder.upstream import Upstream

READ_BYTES: Final = 1 << 18
BROKERS: Final = 1_000
CLOSE_S: Final = 5.0
Result = TypeVar("Result")


class Proxy:
    """Listens for clients and opens one broker connection for each. Runs in one event loop."""

    def __init__(self, cluster: Cluster, host: str, tls: ssl.SSLContext | None = None) -> None:
        """Create the proxy; `tls` is the server-side context for client connections."""
        self.cluster = cluster
        self._host, self._tls = host, tls
        self.observer = Observer()
        self._ours: dict[Address, Address] = {}
        self._servers: list[asyncio.Server] = []
        self._clients: set[asyncio.Task[None]] = set()
        self._steps: set[asyncio.Task[Any]] = set()
        self._closing = False
        self.failure: Exception | None = None

    async def listen(self, upstream: Upstream, port: int = 0) -> Address:
        """Open a port (0: any free one) that forwards to `upstream`, and return its address."""

        def connected(*streams: Any) -> None:  # at once: `close` must not miss a client that has just arrived
            client = asyncio.ensure_future(self._serve(upstream, *streams))
            self._clients.add(client)
            client.add_done_callback(self._clients.discard)

        server = await asyncio.start_server(connected, self._host, port, ssl=self._tls)
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
            address, broker_reader, broker_writer = await self._step(upstream.connect())
        except (OSError, asyncio.CancelledError):
            await _close(writer)
            return
        link = Connection(self, Link(self.cluster, address), upstream, writer, broker_writer)
        pumps = [self._step(link.requests(reader)), self._step(link.replies(broker_reader))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        self._note(address, await asyncio.gather(*pumps, return_exceptions=True))
        link.lost()
        await asyncio.gather(_close(writer), _close(broker_writer))

    def _step(self, step: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start what `close` can cut short."""
        task = asyncio.ensure_future(step)
        if self._closing:
            task.cancel()
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        return task

    def _note(self, upstream: Address, outcomes: Sequence[object]) -> None:
        """Count broker-closed connections (a possible restart), and store any unexpected error."""
        if outcomes[1] is None:
            self.cluster.lives[upstream] = self.cluster.lives.get(upstream, 0) + 1
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError | DecodeError):
                self.failure = outcome

    async def redirect_addresses(self, name: str, reply: Any, upstream: Upstream) -> Any:
        """Return the reply with proxy addresses, opening a port for each new broker."""
        for address in addresses(name, reply):
            if address not in self._ours and len(self._ours) < BROKERS:
                self._ours[address] = await self.listen(upstream.at(address))
        return rewrite_addresses(name, reply, lambda address: self._ours.get(address, address))


class Connection:
    """The two directions of traffic between a client and a broker."""

    def __init__(
        self, proxy: Proxy, link: Link, upstream: Upstream, client: asyncio.StreamWriter, broker: asyncio.StreamWriter
    ) -> None:
        self._proxy, self._upstream = proxy, upstream
        self._client, self._broker = client, broker
        self._decoder = FrameDecoder(link, proxy.observer)

    async def requests(self, reader: asyncio.StreamReader) -> None:
        async for frame in _frames(reader):
            silent = self._decoder.request(frame)
            await _pass_on(self._broker, frame)
            if silent is not None:
                silent(None)

    async def replies(self, reader: asyncio.StreamReader) -> None:
        async for frame in _frames(reader):
            reply = self._decoder.reply(frame)
            await _pass_on(self._client, frame if reply is None else await self._rewritten(reply, frame))

    async def _rewritten(self, reply: Reply, frame: bytes) -> bytes:
        """Return the frame for the client, with the addresses of the proxy."""
        name = reply.request.api.name
        if name not in REWRITTEN:
            return frame
        changed = (
            limit_api_versions(reply.message)
            if name == "ApiVersions"
            else await self._proxy.redirect_addresses(name, reply.message, self._upstream)
        )
        if changed == reply.message:
            return frame
        try:
            return encode_response(changed, reply.request.version, reply.correlation_id)[4:]
        except EncodeError:
            return frame

    def lost(self) -> None:
        """Complete all pending requests without a reply."""
        self._decoder.lost()


async def _close(stream: asyncio.StreamWriter) -> None:
    """Close a connection, and wait for it: a loop that ends sooner leaves its socket open."""
    stream.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await stream.wait_closed()
    stream.transport.abort()


async def _frames(reader: asyncio.StreamReader) -> Any:
    frames = FrameReader(FRAME_LIMIT)
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            for frame in frames.feed(data):
                yield frame


async def _pass_on(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(len(frame).to_bytes(4, "big") + frame)
    await writer.drain()

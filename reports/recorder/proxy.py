"""The recording proxy: one port for each broker; frames pass unchanged except for broker addresses."""

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from highwater.reference.wire.codec import decode
from highwater.reference.wire.errors import DecodeError, EncodeError
from highwater.reference.wire.framing import (
    FrameReader,
    decode_request_header,
    decode_response_header,
    encode_response,
    response_header_version,
)
from highwater.reference.wire.registry import Api, api_of_key
from highwater.reports.recorder.addresses import ENTRIES, Address, addresses, limit_api_versions, rewrite_addresses
from highwater.reports.recorder.exchanges import Cluster, Finish, Link
from highwater.reports.recorder.observer import Observer
from highwater.reports.recorder.upstream import Upstream

FRAME_LIMIT: Final = 256 << 20  # bytes of one request or reply
READ_BYTES: Final = 1 << 18
IN_FLIGHT: Final = 10_000  # requests of one connection without a reply
BROKERS: Final = 1_000
REWRITTEN: Final = {*ENTRIES, "ApiVersions"}


@dataclass(frozen=True, slots=True)
class Request:
    """A forwarded request whose reply must be observed or rewritten."""

    api: Api
    version: int
    finish: Finish | None


class Proxy:
    """Listens for clients and opens one broker connection for each. Runs in one event loop."""

    def __init__(self, cluster: Cluster, host: str, tls: ssl.SSLContext | None = None) -> None:
        """Create the proxy; `tls` is the server-side context for client connections."""
        self.cluster = cluster
        self._host, self._tls = host, tls
        self._observer = Observer()
        self._ours: dict[Address, Address] = {}
        self._servers: list[asyncio.Server] = []
        self._clients: set[asyncio.Task[None]] = set()
        self.failure: Exception | None = None

    async def listen(self, upstream: Upstream, port: int = 0) -> Address:
        """Open a port (0: any free one) that forwards to `upstream`, and return its address."""
        server = await asyncio.start_server(
            lambda *streams: self._serve(upstream, *streams), self._host, port, ssl=self._tls
        )
        self._servers.append(server)
        found: Address = (self._host, server.sockets[0].getsockname()[1])
        return found

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _serve(self, upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)
        try:
            address, broker_reader, broker_writer = await upstream.connect()
        except OSError:
            writer.close()
            return
        link = Connection(self, Link(self.cluster, address), upstream, writer, broker_writer)
        pumps = [asyncio.ensure_future(link.requests(reader)), asyncio.ensure_future(link.replies(broker_reader))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            outcomes = await asyncio.gather(*pumps, return_exceptions=True)
            self._note(address, outcomes)
            link.lost()
            for stream in (writer, broker_writer):
                stream.close()

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

    def observe(self, link: Link, name: str, request: Any) -> Finish | None:
        return self._observer.request(link, name, request)

    def watches(self, name: str) -> bool:
        return name in self._observer.table


class Connection:
    """The two directions of traffic between a client and a broker."""

    def __init__(
        self, proxy: Proxy, link: Link, upstream: Upstream, client: asyncio.StreamWriter, broker: asyncio.StreamWriter
    ) -> None:
        self._proxy, self._link, self._upstream = proxy, link, upstream
        self._client, self._broker = client, broker
        self._pending: dict[int, Request] = {}

    async def requests(self, reader: asyncio.StreamReader) -> None:
        async for frame in _frames(reader):
            silent = self._request(frame)
            await _pass_on(self._broker, frame)
            if silent is not None:
                silent(None)

    def _request(self, frame: bytes) -> Finish | None:
        """Register a request for its reply. Returns a callback to run once a request without reply is sent."""
        try:
            header, position = decode_request_header(frame)
            api = api_of_key(header.api_key)
        except DecodeError:  # SASL tokens without a Kafka header, or an unknown API
            return None
        finish = None
        if self._proxy.watches(api.name):
            try:
                request = decode(api.request, header.api_version, frame, position)
            except DecodeError as error:
                self._link.cluster.recording.unrecorded(f"{api.name} version {header.api_version}: {error}")
            else:
                finish = self._proxy.observe(self._link, api.name, request)
                if api.name == "Produce" and request.acks == 0:
                    return finish
        if len(self._pending) >= IN_FLIGHT:
            raise ConnectionError(f"{IN_FLIGHT} requests without a reply")
        if finish is not None or api.name in REWRITTEN:
            self._pending[header.correlation_id] = Request(api, header.api_version, finish)
        return None

    async def replies(self, reader: asyncio.StreamReader) -> None:
        async for frame in _frames(reader):
            request = self._pending.pop(int.from_bytes(frame[:4], "big", signed=True), None)
            await _pass_on(self._client, frame if request is None else await self._reply(request, frame))

    async def _reply(self, request: Request, frame: bytes) -> bytes:
        """Pass a reply to its observer first, then return the frame for the client."""
        name = request.api.name
        try:
            correlation_id, position = decode_response_header(
                frame, response_header_version(request.api, request.version)
            )
            reply = decode(request.api.response, request.version, frame, position)
        except DecodeError as error:
            if name == "ApiVersions":  # a broker that does not support the version replies with another one
                return frame
            self._link.cluster.recording.unrecorded(f"reply to {name} version {request.version}: {error}")
            reply = None
        if request.finish is not None:
            request.finish(reply)
        if reply is None or name not in REWRITTEN:
            return frame
        changed = (
            limit_api_versions(reply)
            if name == "ApiVersions"
            else await self._proxy.redirect_addresses(name, reply, self._upstream)
        )
        if changed == reply:
            return frame
        try:
            return encode_response(changed, request.version, correlation_id)[4:]
        except EncodeError:
            return frame

    def lost(self) -> None:
        """Complete all pending requests without a reply."""
        pending, self._pending = self._pending, {}
        for request in pending.values():
            if request.finish is not None:
                request.finish(None)


async def _frames(reader: asyncio.StreamReader) -> Any:
    frames = FrameReader(FRAME_LIMIT)
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            for frame in frames.feed(data):
                yield frame


async def _pass_on(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(len(frame).to_bytes(4, "big") + frame)
    await writer.drain()

"""The asyncio driver: one node on real sockets, files and clocks.

Kafka answers the requests of a connection in order, one at a time; so a connection is muted from a request
until its response.  Links to brokers and to the metadata store are opened on the first message.
"""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from reference.api_versions import API_VERSIONS, Served
from reference.drivers.files import Disk
from reference.effects import CancelTimer, Close, Effect, Flush, Log, Send, SetTimer
from reference.events import STORE, Instant, Node, Request, Response
from reference.metadata_cache import Endpoint
from reference.store_messages import StoreMessage
from reference.wire.codec import decode_prefix
from reference.wire.errors import DecodeError, FrameSizeError, WireError
from reference.wire.framing import (
    FrameReader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from reference.wire.registry import APIS, Api

log = logging.getLogger("highwater.driver")

MAX_QUEUED_FRAMES = 100
STORE_FRAME_MAX = 64 * 1024 * 1024
CONNECT_TIMEOUT_S = 2.0
CLIENT_PREFIX = "client:"


class Channel(Protocol):
    """One connection, seen from the driver."""

    def send(self, message: Any) -> None: ...
    def close(self) -> None: ...


class Driver:
    """Runs one node. `resolve` tells where a peer listens; None if nobody knows yet."""

    def __init__(self, node: Node, disk: Disk, resolve: Callable[[str], Endpoint | None]) -> None:
        self.node, self._disk, self._resolve = node, disk, resolve
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.channels: dict[str, Channel] = {}
        self.store_link: Channel | None = None  # to a store that is not ours
        self._next_client = 0
        self.failed: asyncio.Future[BaseException] = self._loop.create_future()

    def now(self) -> Instant:
        return Instant(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)

    def next_client(self) -> str:
        self._next_client += 1
        return f"{CLIENT_PREFIX}{self._next_client}"

    # -- into the node ---------------------------------------------------------------------------

    def start(self) -> None:
        self._perform(self.node.start(self.now()))

    def receive(self, source: str, message: Any) -> None:
        self._perform(self.node.receive(self.now(), source, message))

    def do(self, step: Callable[[Instant], list[Effect]]) -> None:
        """Take a step of the node that no peer asked for."""
        self._guarded(lambda: step(self.now()))

    def closed(self, peer: str, channel: str = "") -> None:
        self.channels.pop(channel or peer, None)
        self._perform(self.node.closed(self.now(), peer))

    def _fire(self, name: str) -> None:
        self._timers.pop(name, None)
        self._guarded(lambda: self.node.fire(self.now(), name))

    def _complete(self, token: str) -> None:
        self._guarded(lambda: self.node.complete(self.now(), token))

    def _guarded(self, step: Callable[[], list[Effect]]) -> None:
        try:
            self._perform(step())
        except Exception as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """The disk refuses, or a step of ours broke off: what this node says from now on could not be trusted."""
        if not isinstance(error, OSError):
            log.error("a step broke off", exc_info=error)
        if not self.failed.done():
            self.failed.set_result(error)

    # -- out of the node -------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message):
                    self._send(to, message)
                case SetTimer(name, due_ms):
                    self._set_timer(name, due_ms)
                case CancelTimer(name):
                    handle = self._timers.pop(name, None)
                    if handle is not None:
                        handle.cancel()
                case Flush(paths, token):
                    self._flush(paths, token)
                case Log(logger, text):
                    logging.getLogger(logger).info(text)
                case Close(peer):
                    channel = self.channels.get(peer)
                    if channel is not None:
                        channel.close()

    def _set_timer(self, name: str, due_ms: int) -> None:
        handle = self._timers.pop(name, None)
        if handle is not None:
            handle.cancel()
        self._timers[name] = self._loop.call_at(due_ms / 1000, self._fire, name)

    def _send(self, to: str, message: Any) -> None:
        # A broker answers the requests of a connection in order. A marker waits for followers, who may be us: it must
        # not stand between us and our fetches, so each kind of request has a connection of its own.
        name = f"{to} {type(message.body).__name__}" if isinstance(message, Request) else to
        channel = self.channels.get(name)
        if channel is None:
            if to.startswith(CLIENT_PREFIX):
                return  # it went away
            foreign = self.store_link if to == STORE else None
            channel = self.channels[name] = foreign or Link(self, to, name, self._resolve(to))
        channel.send(message)

    def _flush(self, paths: tuple[str, ...], token: str) -> None:
        """fsync in a thread, on descriptors of its own, so that the node may go on using the files."""
        descriptors = self._disk.duplicates(paths)

        def sync() -> None:
            try:
                for descriptor in descriptors:
                    os.fsync(descriptor)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

        def done(future: asyncio.Future[None]) -> None:
            error = future.exception()
            if error is not None:
                self.fail(error)
            else:
                self._complete(token)

        self._loop.run_in_executor(None, sync).add_done_callback(done)


class ClientConnection(asyncio.Protocol):
    """A connection that a client, or another broker, opened to this broker."""

    def __init__(self, driver: Driver, served: dict[int, Served], max_bytes: int, limit: "Limit") -> None:
        self._driver, self._served, self._limit = driver, served, limit
        self._reader = FrameReader(max_bytes)
        self._frames: deque[bytes] = deque()
        self._busy = False
        self._name = driver.next_client()
        self._transport: asyncio.Transport | None = None
        self._host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._host = peer[0] if peer else ""
        if not self._limit.take(self):
            transport.abort()
            return
        self._driver.channels[self._name] = self

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit.give_back(self)
        self._frames.clear()
        self._transport = None
        self._driver.closed(self._name)

    def data_received(self, data: bytes) -> None:
        self._limit.touch(self)
        try:
            self._frames.extend(self._reader.feed(data))
        except FrameSizeError as error:
            self._refuse(error)
            return
        if len(self._frames) > MAX_QUEUED_FRAMES and self._transport is not None:
            self._transport.pause_reading()
        self._serve()

    def _serve(self) -> None:
        while self._frames and not self._busy and self._transport is not None:
            frame = self._frames.popleft()
            if len(self._frames) == MAX_QUEUED_FRAMES:
                self._transport.resume_reading()
            try:
                request = self._request(frame)
                self._busy = True
                self._driver.receive(self._name, request)
            except DecodeError as error:
                self._refuse(error)
            except OSError as error:
                self._driver.fail(error)
            except Exception:  # a defect of ours must not end the broker for everybody else
                log.exception("while serving %s", self._name)
                self.close()

    def _request(self, frame: bytes) -> Request:
        """Decode a request that is served in that version; everything else closes the connection."""
        header, position = decode_request_header(frame)
        served = self._served.get(header.api_key)
        if served is not None and served.answers(header.api_version):
            # As Apache Kafka does, take no offence at bytes left over: librdkafka's request for all topics has some.
            body, _ = decode_prefix(APIS[header.api_key].request, header.api_version, frame, position)
        elif header.api_key == API_VERSIONS:
            body = None  # answered in version 0, so that the client learns what to ask (KIP-511)
        else:
            raise DecodeError(f"key {header.api_key} version {header.api_version} is not served")
        return Request(header.correlation_id, header.api_version, body, header.client_id, self._host)

    def _refuse(self, error: DecodeError) -> None:
        log.info("closed %s: %s", self._name, error)
        self.close()

    def send(self, message: Response) -> None:
        self._busy = False
        if self._transport is None:
            return
        if message.body is not None:
            self._transport.write(encode_response(message.body, message.api_version, message.correlation_id))
        if self._frames:
            self._driver._loop.call_soon(self._serve)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Limit:
    """Bounds the number of connections and how long one may be silent."""

    def __init__(self, max_connections: int, idle_ms: int) -> None:
        self._max, self._idle_s = max_connections, idle_ms / 1000
        self._heard: dict[ClientConnection, float] = {}

    def take(self, connection: ClientConnection) -> bool:
        if len(self._heard) >= self._max:
            return False
        self._heard[connection] = time.monotonic()
        return True

    def touch(self, connection: ClientConnection) -> None:
        if connection in self._heard:
            self._heard[connection] = time.monotonic()

    def give_back(self, connection: ClientConnection) -> None:
        self._heard.pop(connection, None)

    def close_idle(self) -> None:
        oldest = time.monotonic() - self._idle_s
        for connection in [c for c, heard in self._heard.items() if heard < oldest]:
            connection.close()


class Link:
    """A connection that this node opens: messages queue until it stands, and are lost with it."""

    def __init__(self, driver: Driver, peer: str, name: str, endpoint: Endpoint | None) -> None:
        self._driver, self._peer, self._name = driver, peer, name
        self._queue: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._codec: StoreLinkCodec | BrokerLinkCodec = StoreLinkCodec() if peer == STORE else BrokerLinkCodec()
        self._task = asyncio.ensure_future(self._connect(endpoint))

    async def _connect(self, endpoint: Endpoint | None) -> None:
        try:
            if endpoint is None:
                raise ConnectionError(f"{self._peer} is not known")
            opening = self._driver._loop.create_connection(
                lambda: LinkProtocol(self._driver, self._peer, self._name, self._codec), endpoint.host, endpoint.port
            )
            transport, _ = await asyncio.wait_for(opening, CONNECT_TIMEOUT_S)
        except (OSError, TimeoutError):
            self._driver.closed(self._peer, self._name)
            return
        self._transport = transport
        for data in self._queue:
            transport.write(data)
        self._queue.clear()

    def send(self, message: Any) -> None:
        data = self._codec.encode(message)
        if self._transport is None:
            self._queue.append(data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class LinkProtocol(asyncio.Protocol):
    def __init__(self, driver: Driver, peer: str, name: str, codec: "StoreLinkCodec | BrokerLinkCodec") -> None:
        self._driver, self._peer, self._name, self._codec = driver, peer, name, codec
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._codec.decode(data):
                self._driver.receive(self._peer, message)
        except (WireError, msgspec.DecodeError) as error:
            log.warning("bad answer from %s: %s", self._peer, error)
            if self._transport is not None:
                self._transport.close()
        except Exception as error:
            self._driver.fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._driver.closed(self._peer, self._name)


class BrokerLinkCodec:
    """Requests out, responses in; what was asked tells how to read the answer."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[Api, int]] = {}
        self._reader = FrameReader(256 * 1024 * 1024)

    def encode(self, message: Request) -> bytes:
        schema: Any = type(message.body)
        self._asked[message.correlation_id] = (APIS[schema.__schema__.api_key], message.api_version)
        return encode_request(message.body, message.api_version, message.correlation_id, message.client_id)

    def decode(self, data: bytes) -> list[Response]:
        responses = []
        for frame in self._reader.feed(data):
            api, version = self._asked.pop(int.from_bytes(frame[:4], "big", signed=True))
            correlation_id, body = decode_response(api, version, frame)
            responses.append(Response(correlation_id, version, body))
        return responses


class StoreLinkCodec:
    """MessagePack behind an int32 size, both ways."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[StoreMessage] = msgspec.msgpack.Decoder(StoreMessage)
        self._reader = FrameReader(STORE_FRAME_MAX)

    def encode(self, message: StoreMessage) -> bytes:
        body = self._encoder.encode(message)
        return len(body).to_bytes(4, "big") + body

    def decode(self, data: bytes) -> list[StoreMessage]:
        return [self._decoder.decode(frame) for frame in self._reader.feed(data)]


class StoreConnection(asyncio.Protocol):
    """A connection that a broker opened to the metadata store."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._codec = StoreLinkCodec()
        self._name = driver.next_client()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._driver.channels[self._name] = self

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._driver.closed(self._name)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._codec.decode(data):
                self._driver.receive(self._name, message)
        except (WireError, msgspec.DecodeError) as error:
            log.info("closed %s: %s", self._name, error)
            self.close()
        except OSError as error:
            self._driver.fail(error)

    def send(self, message: StoreMessage) -> None:
        if self._transport is not None:
            self._transport.write(self._codec.encode(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

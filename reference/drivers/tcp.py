"""The asyncio driver: runs one node on real sockets, files and clocks.

Links to brokers and to the metadata store are opened on the first message. Incoming connections are in
`drivers/connection.py`.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from highwater.reference.drivers.files import Disk
from highwater.reference.drivers.security import Security, now
from highwater.reference.drivers.trace_file import TraceFile
from highwater.reference.effects import (
    STORE,
    CancelTimer,
    Close,
    Effect,
    Flush,
    HandlerFailed,
    Instant,
    Log,
    Node,
    Request,
    Response,
    Send,
    SetTimer,
)
from highwater.reference.metadata_cache import Endpoint
from highwater.reference.security.login import Login
from highwater.reference.security.sasl import MAX_TOKEN_FRAME
from highwater.reference.security.scram import AuthenticationError
from highwater.reference.store.messages import StoreMessage
from highwater.reference.wire.errors import DecodeError, WireError
from highwater.reference.wire.framing import FrameReader, decode_response, encode_request
from highwater.reference.wire.registry import APIS, Api

log = logging.getLogger("highwater.driver")

STORE_FRAME_MAX = 64 * 1024 * 1024
CONNECT_TIMEOUT_S = 2.0
CLIENT_PREFIX = "client:"
LOGGERS = "highwater"
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Channel(Protocol):
    """The driver's interface to one connection."""

    def send(self, message: Any) -> None: ...
    def close(self) -> None: ...


class Driver:
    """Runs one node. `resolve` returns the address of a peer, or None if it is not known yet."""

    def __init__(
        self,
        node: Node,
        disk: Disk,
        resolve: Callable[[str], Endpoint | None],
        security: Security | None = None,
        trace: TraceFile | None = None,
    ) -> None:
        self.node, self._disk, self._resolve, self.security, self._trace = node, disk, resolve, security, trace
        self.loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.channels: dict[str, Channel] = {}
        self.store_link: Channel | None = None  # set for an external ZooKeeper
        self._next_client = 0
        self.failed: asyncio.Future[BaseException] = self.loop.create_future()

    def now(self) -> Instant:
        return now()

    def next_client(self) -> str:
        self._next_client += 1
        return f"{CLIENT_PREFIX}{self._next_client}"

    # -- into the node ---------------------------------------------------------------------------

    def start(self) -> None:
        self._perform(self.node.start(self.now()))

    def receive(self, source: str, message: Any) -> None:
        self._perform(self.node.receive(self.now(), source, message))

    def do(self, step: Callable[[Instant], list[Effect]]) -> None:
        """Run a step of the node that no message or timer caused."""
        self._run_step(lambda: step(self.now()))

    def closed(self, peer: str, channel: str = "") -> None:
        self.channels.pop(channel or peer, None)
        self._perform(self.node.closed(self.now(), peer))

    def _fire(self, name: str) -> None:
        self._timers.pop(name, None)
        self._run_step(lambda: self.node.fire(self.now(), name))

    def _complete(self, token: str) -> None:
        self._run_step(lambda: self.node.complete(self.now(), token))

    def _run_step(self, step: Callable[[], list[Effect]]) -> None:
        try:
            self._perform(step())
        except Exception as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Stop the node after a disk error or an exception in a step: its state may be inconsistent."""
        if not isinstance(error, OSError):
            log.error("a step of the node failed; the node stops", exc_info=error)
        if not self.failed.done():
            self.failed.set_result(error)

    # -- out of the node -------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        if self._trace is not None:
            self._trace.write(effects)
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
                case Log(logger, text, level):
                    logging.getLogger(f"{LOGGERS}.{logger}").log(LEVELS[level], text)
                case Close(peer):
                    self._close(peer)
                case HandlerFailed(peer, error):
                    if isinstance(error, WireError):
                        log.info("closed %s: %s", peer, error)
                    else:
                        log.error("while serving %s", peer, exc_info=error)
                    self._close(peer)

    def _close(self, peer: str) -> None:
        channel = self.channels.get(peer)
        if channel is not None:
            channel.close()

    def _set_timer(self, name: str, due_ms: int) -> None:
        handle = self._timers.pop(name, None)
        if handle is not None:
            handle.cancel()
        self._timers[name] = self.loop.call_at(due_ms / 1000, self._fire, name)

    def _send(self, to: str, message: Any) -> None:
        # A broker answers the requests of a connection in order, and WriteTxnMarkers waits for the followers. This node
        # may be such a follower: with a shared connection its Fetch would wait behind the marker. So every kind of
        # request has its own connection.
        name = f"{to} {type(message.body).__name__}" if isinstance(message, Request) else to
        channel = self.channels.get(name)
        if channel is None:
            if to.startswith(CLIENT_PREFIX):
                return  # the client has disconnected
            external = self.store_link if to == STORE else None
            channel = self.channels[name] = external or Link(self, to, name, self._resolve(to))
        channel.send(message)

    def _flush(self, paths: tuple[str, ...], token: str) -> None:
        """Run fsync in a thread, on duplicated descriptors, so that the node can continue to use the files."""
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

        self.loop.run_in_executor(None, sync).add_done_callback(done)


class Link:
    """A connection that this node opens. Messages queue until it is established, and are lost if it closes."""

    def __init__(self, driver: Driver, peer: str, name: str, endpoint: Endpoint | None) -> None:
        self._driver, self._peer, self._name = driver, peer, name
        self._queue: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._codec: StoreLinkCodec | BrokerLinkCodec = StoreLinkCodec() if peer == STORE else BrokerLinkCodec()
        self._task = asyncio.ensure_future(self._connect(endpoint))

    async def _connect(self, endpoint: Endpoint | None) -> None:
        security = self._driver.security if self._peer != STORE else None
        try:
            if endpoint is None:
                raise ConnectionError(f"the address of {self._peer} is not known")
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                transport, protocol = await self._driver.loop.create_connection(
                    lambda: LinkProtocol(
                        self._driver, self._peer, self._name, self._codec, security.login() if security else None
                    ),
                    endpoint.host,
                    endpoint.port,
                    ssl=security.client_context if security else None,
                )
                await protocol.authenticated
        except (OSError, TimeoutError) as error:
            if isinstance(error, ssl.SSLError):
                log.warning("cannot open a TLS connection to %s: %s", self._peer, error)
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
    """The asyncio protocol of a link; `authenticated` resolves after the login, or at once if none is required."""

    def __init__(
        self, driver: Driver, peer: str, name: str, codec: "StoreLinkCodec | BrokerLinkCodec", login: Login | None
    ) -> None:
        self._driver, self._peer, self._name, self._codec, self._login = driver, peer, name, codec, login
        self._frames = FrameReader(MAX_TOKEN_FRAME)
        self._transport: asyncio.Transport | None = None
        self.authenticated: asyncio.Future[None] = driver.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._login is None:
            self.authenticated.set_result(None)
        else:
            transport.write(self._login.first())

    def data_received(self, data: bytes) -> None:
        try:
            if self._login is not None:
                self._authenticate(self._login, data)
                return
            for message in self._codec.decode(data):
                self._driver.receive(self._peer, message)
        except (WireError, msgspec.DecodeError, AuthenticationError) as error:
            log.warning("invalid response from %s: %s; the connection is closed", self._peer, error)
            if self._transport is not None:
                self._transport.close()
        except Exception as error:
            self._driver.fail(error)

    def _authenticate(self, login: Login, data: bytes) -> None:
        assert self._transport is not None
        for frame in self._frames.feed(data):
            answer = login.receive(frame)
            if answer is None:
                self._login = None
                self.authenticated.set_result(None)
            else:
                self._transport.write(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.authenticated.done():
            self._driver.closed(self._peer, self._name)
        else:
            self.authenticated.set_exception(ConnectionError(f"{self._peer} closed the connection during the login"))


class BrokerLinkCodec:
    """Encodes requests and decodes responses; the correlation id of a response gives its API and version."""

    def __init__(self) -> None:
        self._pending: dict[int, tuple[Api, int]] = {}
        self._reader = FrameReader(256 * 1024 * 1024)

    def encode(self, message: Request) -> bytes:
        schema: Any = type(message.body)
        self._pending[message.correlation_id] = (APIS[schema.__schema__.api_key], message.api_version)
        return encode_request(message.body, message.api_version, message.correlation_id, message.client_id)

    def decode(self, data: bytes) -> list[Response]:
        responses = []
        for frame in self._reader.feed(data):
            pending = self._pending.pop(int.from_bytes(frame[:4], "big", signed=True), None)
            if pending is None:
                raise DecodeError("a response with an unknown correlation id")
            api, version = pending
            correlation_id, body = decode_response(api, version, frame)
            responses.append(Response(correlation_id, version, body))
        return responses


class StoreLinkCodec:
    """Encodes and decodes store messages: MessagePack after an int32 size."""

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

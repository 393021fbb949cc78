"""The two directions of traffic between a client and a broker, with the faults of single messages.

A client expects the responses of a connection in the order of its requests. So each request has an `Exchange` in that
order, and a response is passed on when those before it have been: whether it came from the broker or from here.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from highwater.fuzz.proxy.addresses import ENTRIES, limit_api_versions
from highwater.fuzz.proxy.answers import merged, scope, with_error
from highwater.fuzz.proxy.faults import MessageFault
from highwater.fuzz.proxy.items import items, without
from highwater.fuzz.proxy.matching import Subject
from highwater.fuzz.proxy.reach import teaches
from highwater.fuzz.proxy.sessions import EPOCHS, OPENS, epoch_of, is_incremental
from highwater.fuzz.proxy.upstream import Upstream
from highwater.reference.wire.codec import decode
from highwater.reference.wire.errors import DecodeError, EncodeError
from highwater.reference.wire.framing import (
    FrameReader,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
    response_header_version,
)
from highwater.reference.wire.readers import read_uvarint
from highwater.reference.wire.registry import APIS, Api

if TYPE_CHECKING:
    from highwater.fuzz.proxy.proxy import Proxy

FRAME_LIMIT: Final = 256 << 20  # bytes of one request or response
READ_BYTES: Final = 1 << 18
LARGE: Final = 1 << 16
"""Frames of this size are written without a copy."""
IN_FLIGHT: Final = 10_000  # requests of one connection without a response
SWAP_S: Final = 1.0
"""How long a request waits for the next one, behind which it is to arrive."""
OWN_IDS: Final = -2_000_000_000
"""Correlation ids below this are of copies that the proxy sends; no client counts down from there."""

LOGIN: Final = ("SaslHandshake", "SaslAuthenticate")
TRANSACTIONAL_PRODUCE: Final = 3
FLEXIBLE_PRODUCE: Final = 9
NODE_ENDPOINTS: Final = {"Produce": 10, "Fetch": 16}
"""The versions from which these responses may name new leaders (KIP-951)."""

Finish = Callable[[Any | None], None]


class Tap(Protocol):
    """What observes a connection as its client sees it; frames are without their sizes."""

    def request(self, frame: bytes) -> Finish | None:
        """Take note of a request; return what to call once a request without a response is sent."""

    def reply(self, frame: bytes) -> object:
        """Take note of a response, with the brokers' own addresses."""

    def lost(self) -> None:
        """The connection has ended: what has no response yet has none."""


@dataclass(slots=True)
class Exchange:
    """A request, and what is done with its response."""

    api: Api
    header: RequestHeader
    frame: bytes
    position: int
    reply: bytes | None = None
    added: Any | None = None
    fault: MessageFault | None = None
    fetch: Any | None = None
    """A request to fetch, with all partitions of its session (`FetchSessions.whole`)."""

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def client(self) -> str:
        return self.header.client_id or ""

    def body(self) -> Any | None:
        """Return the decoded request, or None if it cannot be decoded."""
        try:
            return decode(self.api.request, self.version, self.frame, self.position)
        except DecodeError:
            return None

    def whole(self) -> Any | None:
        """Return the decoded request with what earlier ones have said for it, or None if it cannot be decoded."""
        return self.fetch or self.body()


class ClientAtProxy:
    """One connection of a client, and that of the proxy to the broker."""

    def __init__(
        self, proxy: "Proxy", upstream: Upstream, client: asyncio.StreamWriter, broker: asyncio.StreamWriter,
        tap: Tap | None,
    ) -> None:  # fmt: skip
        """Connect a client with `upstream`, which is one broker."""
        self._proxy, self._upstream, self._tap = proxy, upstream, tap
        self._client, self._broker = client, broker
        self._flushing = asyncio.Lock()
        self._login: list[bytes] = []
        self._open: deque[Exchange] = deque()
        self._swapped: Exchange | None = None
        self._copies = 0
        self._requests_lost = self._replies_lost = False
        self._still_until = 0.0

    # From the client to the broker.

    async def requests(self, reader: asyncio.StreamReader) -> None:
        """Pass requests on until the client closes the connection."""
        async for frame in frames_of(reader):
            silent = self._tap.request(frame) if self._tap is not None else None
            await self._request(frame)
            if silent is not None:
                silent(None)

    async def _request(self, frame: bytes) -> None:
        exchange = _exchange(frame)
        if exchange is None:  # SASL tokens without a header, or an API that is not in the table
            await self._forward(frame)
            return
        self._proxy.faults.seen[exchange.api.name] += 1
        if exchange.api.name in LOGIN:
            self._login.append(frame)
        if exchange.api.request in EPOCHS and (fetch := exchange.body()) is not None:
            exchange.fetch = self._proxy.sessions.whole(self._upstream.addresses, fetch)
        if self._proxy.is_silenced(exchange.client):
            self._requests_lost = self._replies_lost = True
        if not is_silent(exchange):
            if len(self._open) >= IN_FLIGHT:
                raise ConnectionError(f"{IN_FLIGHT} requests without a response")
            self._open.append(exchange)
        fault = self._fault_of(exchange)
        if fault is None:
            await self._forward(frame)
        else:
            await self._strike_request(fault, exchange)
        await self._release(exchange)

    def _fault_of(self, exchange: Exchange) -> MessageFault | None:
        faults = self._proxy.faults
        if not faults.lines:
            return None
        return faults.strike(Subject(exchange.api.name, exchange.version, "request", exchange.client, exchange.whole))

    async def _strike_request(self, fault: MessageFault, exchange: Exchange) -> None:
        match fault.action:
            case "drop":
                self._requests_lost = True
            case "black-hole":
                self._proxy.silence(exchange.client, fault.ms)
                self._requests_lost = self._replies_lost = True
            case "late":
                self._proxy.deliver_later(self._upstream, self._login, exchange, fault)
                raise ConnectionAbortedError
            case "repeat":
                self._proxy.deliver_later(self._upstream, self._login, exchange, fault)
            case "answer":
                await self._answer(fault, exchange)
                return
            case "swap":
                await self._release(None)
                self._swapped = exchange
                asyncio.get_running_loop().call_later(SWAP_S, self._release_later, exchange)
                return
            case _:
                await self._hold_up(fault)
        await self._forward(exchange.frame)
        if fault.action == "duplicate":
            self._copies += 1
            await self._forward(with_correlation_id(exchange.frame, OWN_IDS - self._copies))

    async def _forward(self, frame: bytes) -> None:
        await self._stand_still()
        if not self._requests_lost:
            await _write(self._broker, frame)

    async def _stand_still(self) -> None:
        while (left_s := self._still_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left_s)

    async def _release(self, behind: Exchange | None) -> None:
        """Send the request that was held back, if `behind` is another one."""
        swapped = self._swapped
        if swapped is not None and swapped is not behind:
            self._swapped = None
            await self._forward(swapped.frame)

    def _release_later(self, exchange: Exchange) -> None:
        self._proxy.spawn(self._release_if(exchange))

    async def _release_if(self, exchange: Exchange) -> None:
        if self._swapped is exchange:
            await self._release(None)

    async def _answer(self, fault: MessageFault, exchange: Exchange) -> None:
        """Answer a request with an error; what of it the line is not about goes to the broker."""
        request = exchange.whole()
        if request is None:
            await self._forward(exchange.frame)
            return
        response = self._proxy.response_to(fault, exchange.api, exchange.version, request)
        concerns, topics = scope(fault, exchange.api, exchange.version), self._proxy.faults.topics
        rest = request if concerns is None else without(request, concerns, topics)
        if concerns is not None:
            response = without(response, lambda item: not concerns(item), topics)
        # The rest of an incremental request is not sent either: the broker's session has what the line is about.
        if concerns is None or is_incremental(exchange.body()) or not any(True for _ in items(rest, topics)):
            exchange.reply = encode_response(response, exchange.version, exchange.header.correlation_id)[4:]
            if is_silent(exchange):
                return
            await self._flush()
            return
        exchange.added = response
        header = exchange.header
        await self._forward(encode_request(rest, header.api_version, header.correlation_id, header.client_id)[4:])

    # From the broker to the client.

    async def replies(self, reader: asyncio.StreamReader) -> None:
        """Pass responses on until the broker closes the connection."""
        async for frame in frames_of(reader):
            correlation_id = int.from_bytes(frame[:4], "big", signed=True)
            awaited = (each for each in self._open if each.reply is None)
            exchange = next((each for each in awaited if each.header.correlation_id == correlation_id), None)
            if exchange is None:
                if correlation_id > OWN_IDS:
                    await self._pass_on(frame)
                continue
            if epoch_of(exchange.fetch) == OPENS and (message := self._decoded(exchange, frame)) is not None:
                self._proxy.sessions.open(self._upstream.addresses, exchange.fetch, message)
            exchange.reply = await self._response(exchange, frame)
            await self._flush()

    async def _response(self, exchange: Exchange, frame: bytes) -> bytes:
        """Return the frame for the client, but for addresses: with the error of a fault, or with what was added."""
        faults = self._proxy.faults
        wanted = exchange.added is not None or bool(faults.concerning(exchange.api.name, exchange.version, "response"))
        if not wanted:
            return frame
        message = self._decoded(exchange, frame)
        if message is None:
            return frame
        if exchange.added is not None:
            message = merged(message, exchange.added, faults.topics)
        subject = Subject(exchange.api.name, exchange.version, "response", exchange.client, exchange.whole, message)
        exchange.fault = faults.strike(subject)
        if exchange.fault is not None and exchange.fault.action == "answer":
            code, concerns = exchange.fault.error, scope(exchange.fault, exchange.api, exchange.version)
            message = with_error(exchange.api, exchange.version, message, code, concerns, faults.topics)
        elif exchange.added is None:
            return frame
        return encode_response(message, exchange.version, exchange.header.correlation_id)[4:]

    def _decoded(self, exchange: Exchange, frame: bytes) -> Any | None:
        try:
            shape = response_header_version(exchange.api, exchange.version)
            _, position = decode_response_header(frame, shape)
            return decode(exchange.api.response, exchange.version, frame, position)
        except DecodeError:  # a broker that does not support a version of ApiVersions replies with another one
            return None

    async def _flush(self) -> None:
        """Pass on the responses that are due: those before which no other one is missing."""
        async with self._flushing:
            while self._open and (frame := self._open[0].reply) is not None:
                exchange = self._open.popleft()
                if exchange.fault is not None:
                    await self._strike_response(exchange.fault)
                if self._tap is not None and not self._replies_lost:
                    self._tap.reply(frame)
                await self._pass_on(await self._with_our_addresses(exchange, frame))

    async def _strike_response(self, fault: MessageFault) -> None:
        if fault.action == "drop":
            self._replies_lost = True
        else:
            await self._hold_up(fault)

    async def _hold_up(self, fault: MessageFault) -> None:
        """Inject what is the same for a request and a response: the connection waits, stands still or ends."""
        match fault.action:
            case "delay":
                await asyncio.sleep(fault.ms / 1000)
            case "stall":
                until = asyncio.get_running_loop().time() + fault.ms / 1000
                self._still_until = max(self._still_until, until)
            case "close":
                raise ConnectionAbortedError

    async def _pass_on(self, frame: bytes) -> None:
        await self._stand_still()
        if not self._replies_lost:
            await _write(self._client, frame)

    async def _with_our_addresses(self, exchange: Exchange, frame: bytes) -> bytes:
        """Return a response with the addresses of the proxy, and with the versions that it knows."""
        name = exchange.api.name
        states_ids, has_addresses = teaches(exchange.api, exchange.version, response=True), _has_addresses(exchange)
        if name != "ApiVersions" and not states_ids and not has_addresses:
            return frame
        message = self._decoded(exchange, frame)
        if message is None:
            return frame
        if states_ids:
            self._proxy.faults.learn(message)
        if name != "ApiVersions" and not has_addresses:
            return frame
        changed = (
            limit_api_versions(message)
            if name == "ApiVersions"
            else await self._proxy.redirect_addresses(name, message, self._upstream)
        )
        if changed == message:
            return frame
        try:
            return encode_response(changed, exchange.version, exchange.header.correlation_id)[4:]
        except EncodeError:
            return frame

    def lost(self) -> None:
        """Tell the observer that the connection has ended."""
        if self._tap is not None:
            self._tap.lost()


def _has_addresses(exchange: Exchange) -> bool:
    name = exchange.api.name
    return name in ENTRIES and exchange.version >= NODE_ENDPOINTS.get(name, 0)


def _exchange(frame: bytes) -> Exchange | None:
    try:
        header, position = decode_request_header(frame)
        return Exchange(APIS[header.api_key], header, frame, position)
    except (DecodeError, KeyError):
        return None


def is_silent(exchange: Exchange) -> bool:
    """Return whether a request has no response: Produce with acks=0, which is read without decoding the records."""
    if exchange.api.name != "Produce":
        return False
    frame, position, version = exchange.frame, exchange.position, exchange.version
    try:
        if version >= FLEXIBLE_PRODUCE:
            length, position = read_uvarint(frame, position)
            position += max(length - 1, 0)
        elif version >= TRANSACTIONAL_PRODUCE:
            position += 2 + max(int.from_bytes(frame[position : position + 2], "big", signed=True), 0)
    except (IndexError, DecodeError):
        return False
    return frame[position : position + 2] == bytes(2)


def with_correlation_id(frame: bytes, correlation_id: int) -> bytes:
    """Return a request frame with another correlation id."""
    return frame[:4] + correlation_id.to_bytes(4, "big", signed=True) + frame[8:]


async def frames_of(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the frames of a stream, without their sizes, until it ends."""
    frames = FrameReader(FRAME_LIMIT)
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            for frame in frames.feed(data):
                yield frame


async def _write(writer: asyncio.StreamWriter, frame: bytes) -> None:
    size = len(frame).to_bytes(4, "big")
    if len(frame) < LARGE:
        writer.write(size + frame)
    else:
        writer.write(size)
        writer.write(frame)
    await writer.drain()

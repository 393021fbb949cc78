"""Apply the planted defects in the connections of a broker."""

import asyncio
import os
import socket
from collections.abc import Sequence

from highwater.fuzz.wire.defects.harm import allocate
from highwater.fuzz.wire.defects.table import WIRE_DEFECTS
from highwater.reference.connections.server import SIZE_BYTES, Event, Listener, ServerConnection
from highwater.reference.drivers.connection import ClientConnection
from highwater.reference.drivers.tcp import Driver
from highwater.reference.effects import Response
from highwater.reference.wire.framing import FrameReader, encode_response
from highwater.reference.wire.messages.metadata import MetadataResponse
from highwater.reference.wire.messages.produce import ProduceResponse

FRAME_SIZE, LEAK, SPLIT = "FrameSizeOom", "DescriptorLeak", "SplitFrameHang"
HALF_CLOSED, OUT_OF_TURN, ACKS_ZERO = "HalfClosedKept", "OutOfTurn", "AcksZeroAnswered"


class DefectiveServerConnection(ServerConnection):
    """A connection whose defects change requests before they are handled and responses before they are sent."""

    def __init__(self, listener: Listener, host: str, now_ms: int, names: Sequence[str]) -> None:
        super().__init__(listener, host, now_ms)
        self._planted = frozenset(names)
        chosen = [WIRE_DEFECTS[name] for name in names]
        self._request_defects = [defect.on_request for defect in chosen if defect.on_request is not None]
        self._delayed = b""
        self._response_defects = [defect.on_response for defect in chosen if defect.on_response is not None]

    def receive_data(self, now_ms: int, data: bytes) -> None:
        size = int.from_bytes(data[:SIZE_BYTES], "big", signed=True)
        if FRAME_SIZE in self._planted and not self._reader.buffered and size > self._reader.max_size:
            allocate(size)
        super().receive_data(now_ms, data)

    def next_event(self) -> Event | None:
        event = super().next_event()
        if SPLIT in self._planted and self._reader.buffered:
            self._reader = FrameReader(self._reader.max_size)  # drops the incomplete frame
        return event

    def _event_of(self, frame: bytes) -> Event | None:
        """Return the event of a frame; a defect that drops the request leaves the connection busy for ever."""
        changed: bytes | None = frame
        for on_request in self._request_defects:
            changed = on_request(changed) if changed is not None else None
        if changed is None:
            self._busy = True
            return None
        return super()._event_of(changed)

    def response_bytes(self, response: Response) -> bytes:
        if response.body is None and ACKS_ZERO in self._planted:
            super().response_bytes(response)
            return encode_response(ProduceResponse(), response.api_version, response.correlation_id)
        return super().response_bytes(response)

    def encode(self, response: Response) -> bytes:
        """Encode a response; empty if a defect drops or delays it."""
        sent: bytes | None = super().encode(response)
        for on_response in self._response_defects:
            sent = on_response(response, sent) if sent is not None else None
        delay = OUT_OF_TURN in self._planted and bool(self._frames) and not self._delayed
        if delay and isinstance(response.body, MetadataResponse):
            sent, self._delayed = None, sent or b""
        elif sent:
            sent, self._delayed = sent + self._delayed, b""
        return sent or b""


class DefectiveConnection(ClientConnection):
    """The protocol of such a connection, with the defects of its transport."""

    def __init__(self, driver: Driver, listener: Listener, names: Sequence[str]) -> None:
        super().__init__(driver, listener)
        self._names = names

    def make(self, listener: Listener, host: str, now_ms: int) -> ServerConnection:
        return DefectiveServerConnection(listener, host, now_ms, self._names)

    def eof_received(self) -> bool:
        """Return True to keep the connection open after the client's end of stream."""
        return HALF_CLOSED in self._names

    def cut(self, why: str) -> None:
        if LEAK in self._names and isinstance(self._transport, asyncio.Transport):
            connection: socket.socket | None = self._transport.get_extra_info("socket")
            if connection is not None:
                os.dup(connection.fileno())
        super().cut(why)

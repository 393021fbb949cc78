"""Apply the planted defects in the connections of a broker."""

import asyncio
import os
import socket
from collections.abc import Sequence

from highwater.fuzz.wire.defects.harm import allocate
from highwater.fuzz.wire.defects.table import WIRE_DEFECTS
from highwater.reference.drivers.connection import SIZE_BYTES, ClientConnection, Listener
from highwater.reference.effects import Response
from highwater.reference.wire.framing import FrameReader, encode_response
from highwater.reference.wire.messages.metadata import MetadataResponse
from highwater.reference.wire.messages.produce import ProduceResponse

FRAME_SIZE, LEAK, SPLIT = "FrameSizeOom", "DescriptorLeak", "SplitFrameHang"
HALF_CLOSED, OUT_OF_TURN, ACKS_ZERO = "HalfClosedKept", "OutOfTurn", "AcksZeroAnswered"


class DefectiveConnection(ClientConnection):
    """A ClientConnection whose defects change requests before they are handled and responses before they are sent."""

    def __init__(self, listener: Listener, names: Sequence[str]) -> None:
        super().__init__(listener)
        self._planted = frozenset(names)
        chosen = [WIRE_DEFECTS[name] for name in names]
        self._request_defects = [defect.on_request for defect in chosen if defect.on_request is not None]
        self._delayed = b""
        self._response_defects = [defect.on_response for defect in chosen if defect.on_response is not None]

    def data_received(self, data: bytes) -> None:
        size = int.from_bytes(data[:SIZE_BYTES], "big", signed=True)
        if FRAME_SIZE in self._planted and not self._reader.buffered and size > self._reader.max_size:
            allocate(size)
        super().data_received(data)
        if SPLIT in self._planted and self._reader.buffered:
            self._reader = FrameReader(self._reader.max_size)  # drops the incomplete frame

    def eof_received(self) -> bool:
        """Return True to keep the connection open after the client's end of stream."""
        return HALF_CLOSED in self._planted

    def _handle_frame(self, frame: bytes) -> None:
        changed: bytes | None = frame
        for on_request in self._request_defects:
            changed = on_request(changed) if changed is not None else None
        if changed is None:
            self._busy = True
        else:
            super()._handle_frame(changed)

    def send(self, message: Response) -> None:
        super().send(message)
        if message.body is None and ACKS_ZERO in self._planted:
            self._write(encode_response(ProduceResponse(), message.api_version, message.correlation_id))

    def encode(self, message: Response) -> bytes:
        """Encode a response; empty if a defect drops or delays it."""
        sent: bytes | None = super().encode(message)
        for on_response in self._response_defects:
            sent = on_response(message, sent) if sent is not None else None
        delay = OUT_OF_TURN in self._planted and bool(self._frames) and not self._delayed
        if delay and isinstance(message.body, MetadataResponse):
            sent, self._delayed = None, sent or b""
        elif sent:
            sent, self._delayed = sent + self._delayed, b""
        return sent or b""

    def cut(self, why: str) -> None:
        if LEAK in self._planted and isinstance(self._transport, asyncio.Transport):
            connection: socket.socket | None = self._transport.get_extra_info("socket")
            if connection is not None:
                os.dup(connection.fileno())
        super().cut(why)

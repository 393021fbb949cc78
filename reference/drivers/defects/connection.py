"""The connection of a broker with planted defects."""

import asyncio
import os
import socket
from collections.abc import Sequence

from reference.drivers.connection import SIZE_BYTES, ClientConnection, Listener
from reference.drivers.defects.harm import hold
from reference.drivers.defects.table import WIRE_DEFECTS
from reference.events import Response
from reference.wire.framing import FrameReader, encode_response
from reference.wire.messages.metadata import MetadataResponse
from reference.wire.messages.produce import ProduceResponse

FRAME_SIZE, LEAK, SPLIT = "FrameSizeOom", "DescriptorLeak", "SplitFrameHang"
HALF_CLOSED, OUT_OF_TURN, ACKS_ZERO = "HalfClosedKept", "OutOfTurn", "AcksZeroAnswered"


class DefectiveConnection(ClientConnection):
    """As a sound one, but for what its defects do before a request is taken and before an answer is sent."""

    def __init__(self, listener: Listener, names: Sequence[str]) -> None:
        super().__init__(listener)
        self._planted = frozenset(names)
        chosen = [WIRE_DEFECTS[name] for name in names]
        self._takes = [defect.take for defect in chosen if defect.take is not None]
        self._late = b""
        self._answers = [defect.answer for defect in chosen if defect.answer is not None]

    def data_received(self, data: bytes) -> None:
        size = int.from_bytes(data[:SIZE_BYTES], "big", signed=True)
        if FRAME_SIZE in self._planted and not self._reader.buffered and size > self._reader.max_size:
            hold(size)
        super().data_received(data)
        if SPLIT in self._planted and self._reader.buffered:
            self._reader = FrameReader(self._reader.max_size)  # what is there of a frame is thrown away

    def eof_received(self) -> bool:
        """True: the connection stays."""
        return HALF_CLOSED in self._planted

    def _take(self, frame: bytes) -> None:
        changed: bytes | None = frame
        for take in self._takes:
            changed = take(changed) if changed is not None else None
        if changed is None:
            self._busy = True
        else:
            super()._take(changed)

    def send(self, message: Response) -> None:
        super().send(message)
        if message.body is None and ACKS_ZERO in self._planted:
            self._write(encode_response(ProduceResponse(), message.api_version, message.correlation_id))

    def encoded(self, message: Response) -> bytes:
        """Nothing, where the answer is lost or comes later."""
        sent: bytes | None = super().encoded(message)
        for answer in self._answers:
            sent = answer(message, sent) if sent is not None else None
        waits = OUT_OF_TURN in self._planted and bool(self._frames) and not self._late
        if waits and isinstance(message.body, MetadataResponse):
            sent, self._late = None, sent or b""
        elif sent:
            sent, self._late = sent + self._late, b""
        return sent or b""

    def cut(self, why: str) -> None:
        if LEAK in self._planted and isinstance(self._transport, asyncio.Transport):
            connection: socket.socket | None = self._transport.get_extra_info("socket")
            if connection is not None:
                os.dup(connection.fileno())
        super().cut(why)

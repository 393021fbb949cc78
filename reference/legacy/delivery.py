"""A simple consumer of 0.7 and what it promises (kafka-0.7-design, "Message delivery semantics", "Reads").

The broker keeps nothing of its consumers: when the position is stored decides what a crash costs.
"""

from collections.abc import Callable
from enum import StrEnum
from itertools import groupby
from typing import Final

from highwater.reference.legacy.messages import payloads
from highwater.reference.legacy.requests import NO_ERROR, OFFSET_OUT_OF_RANGE, Fetch, decode_send, encode_request
from highwater.reference.wire.errors import CompressionError

FIRST_FETCH_BYTES: Final = 256
Exchange = Callable[[bytes], bytes | None]
"""Sends a framed request, and gives the framed reply."""


class Delivery(StrEnum):
    AT_MOST_ONCE = "at most once"  # the position is stored before a message is processed
    AT_LEAST_ONCE = "at least once"  # after
    EXACTLY_ONCE = "exactly once"  # with what came of it, in one step


class PositionLostError(Exception):
    """The broker has no such offset any more; the consumer resets itself or fails."""


class SimpleConsumer:
    """Reads one partition from a position on; a message larger than the buffer doubles it, up to `max_bytes`."""

    def __init__(self, exchange: Exchange, topic: str, partition: int, position: int, max_bytes: int = 1 << 20) -> None:
        self._exchange, self._topic, self._partition = exchange, topic, partition
        self.position, self._max_bytes = position, max_bytes

    def poll(self) -> list[tuple[list[bytes], int]]:
        """Payloads with the offset behind them, entry by entry: what one wrapper holds is consumed as a whole.

        Empty at the end of the log. Raises PositionLostError.
        """
        size = FIRST_FETCH_BYTES
        while True:
            error, data = decode_send(self._exchange(self._request(size)) or b"")
            if error == OFFSET_OUT_OF_RANGE:
                raise PositionLostError(f"{self._topic}-{self._partition} has no offset {self.position}")
            grouped = groupby(payloads(data), key=lambda entry: entry.next_position)
            found = [([entry.message.payload for entry in group], self.position + end) for end, group in grouped]
            if found or not data or error != NO_ERROR:
                self.position = found[-1][1] if found else self.position
                return found
            if size >= self._max_bytes:
                raise CompressionError(f"a message of more than {self._max_bytes} bytes at offset {self.position}")
            size = min(2 * size, self._max_bytes)

    def _request(self, size: int) -> bytes:
        return encode_request(Fetch(self._topic, self._partition, self.position, size))[4:]


def deliver(
    consumer: SimpleConsumer,
    delivery: Delivery,
    process: Callable[[list[bytes]], None],
    store: Callable[[int], None],
    both: Callable[[list[bytes], int], None],
) -> None:
    """Hand over what there is, storing positions as the promise says.

    `both` stores result and position in one step, e.g. a transaction of the consumer's own database
    ("Consumer state").
    """
    for found, position in consumer.poll():
        if delivery is Delivery.EXACTLY_ONCE:
            both(found, position)
        elif delivery is Delivery.AT_MOST_ONCE:
            store(position)
            process(found)
        else:
            process(found)
            store(position)

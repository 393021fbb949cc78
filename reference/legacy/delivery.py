"""A simple consumer of Kafka 0.7 and its delivery semantics (kafka-0.7-design, "Message delivery semantics", "Reads").

The broker has no state of its consumers. The time at which the consumer stores its position determines whether a crash
loses or repeats messages.
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
"""Sends a framed request and returns the framed reply."""


class Delivery(StrEnum):
    AT_MOST_ONCE = "at most once"  # the position is stored before a message is processed
    AT_LEAST_ONCE = "at least once"  # after
    EXACTLY_ONCE = "exactly once"  # with what came of it, in one step


class PositionLostError(Exception):
    """The broker has deleted this offset; the consumer must reset its position or fail."""


class SimpleConsumer:
    """Reads one partition from a position; a message larger than the fetch size doubles it, up to `max_bytes`."""

    def __init__(
        self, exchange: Exchange, topic: str, partition: int, position: int, max_bytes: int = 1 << 20,
        fetch_bytes: int = FIRST_FETCH_BYTES,
    ) -> None:  # fmt: skip
        self._exchange, self._topic, self._partition = exchange, topic, partition
        self.position, self._max_bytes, self._fetch_bytes = position, max_bytes, fetch_bytes

    def poll(self) -> list[tuple[list[bytes], int]]:
        """Return (payloads, next offset) per log entry; a compressed message set is one entry.

        Empty at the end of the log. Raises PositionLostError.
        """
        size = self._fetch_bytes
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
    """Process the available messages, and store positions as the delivery semantics require.

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

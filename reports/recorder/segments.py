"""Put the TCP segments of one direction of a connection into order.

A segment that was sent twice counts once, and one that overtook another waits for it. A part of the stream is lost when
the receiver acknowledged it, or the stream ended, and the capture does not contain it.
"""

from typing import Final

WAITING: Final = 64 << 20  # bytes that wait for a segment before them
_SPACE: Final = 1 << 32


def _distance(sequence: int, origin: int) -> int:
    """Return how far a sequence number is after another one; negative if it is before it."""
    return (sequence - origin + (_SPACE >> 1)) % _SPACE - (_SPACE >> 1)


class Segments:
    """One direction. Sequence numbers have 32 bits and wrap around."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._waiting: dict[int, bytes] = {}
        self._size = 0

    def feed(self, sequence: int, data: bytes) -> bytes:
        """Add a segment, and return the bytes that are now in order."""
        if not data:
            return b""
        if _distance(sequence, self._next) > 0:
            known = self._waiting.get(sequence, b"")
            if len(data) > len(known):
                self._waiting[sequence] = data
                self._size += len(data) - len(known)
            return b""
        found = self._advance(sequence, data)
        while self._waiting:
            sequence = min(self._waiting, key=lambda waiting: _distance(waiting, self._next))
            if _distance(sequence, self._next) > 0:
                break
            data = self._waiting.pop(sequence)
            self._size -= len(data)
            found += self._advance(sequence, data)
        return found

    def _advance(self, sequence: int, data: bytes) -> bytes:
        """Return what a segment adds; a keep-alive and a repeated segment begin before what is due."""
        new = data[-_distance(sequence, self._next) :] if sequence != self._next else data
        self._next = (self._next + len(new)) % _SPACE
        return new

    def missing(self, acknowledged: int | None = None) -> int:
        """Return how many bytes are lost before the first segment that waits, 0 if none are.

        `acknowledged` is the number that the receiver expects next; None at the end of the stream.
        """
        if not self._waiting:
            return 0
        gap = min(_distance(sequence, self._next) for sequence in self._waiting)
        is_lost = acknowledged is None or _distance(acknowledged, self._next) >= gap or self._size > WAITING
        return gap if is_lost else 0

    def lacks(self, sequence: int) -> int:
        """Return how many bytes before a sequence number have not been seen."""
        return max(0, _distance(sequence, self._next))

    def skip(self) -> bytes:
        """Continue at the first segment that waits, and return the bytes that are then in order."""
        sequence = min(self._waiting, key=lambda waiting: _distance(waiting, self._next))
        self._next = sequence
        data = self._waiting.pop(sequence)
        self._size -= len(data)
        return self.feed(sequence, data)

"""A case: the bytes to send, how they are cut into TCP segments, and how the connection ends."""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

NO_MUTATION: Final = "none"
"""The mutation of a valid request."""
MANY: Final = "many"
"""The mutation of a valid request in which one array is long."""
Kind = tuple[int, str, str]
"""Key, mutation and field of a case."""


class Ends(StrEnum):
    """What happens to the connection after the bytes of a case."""

    OPEN = "open"  # more may follow: the bytes are whole frames
    FINISH = "finish"  # end of stream (FIN): a target that waits for the rest must close now
    LEAVE = "leave"  # half-open: the connection stays open without further bytes
    RESET = "reset"  # RST: the client does not wait for a response


@dataclass(frozen=True, slots=True)
class Case:
    """`frames` are sent in order; all but the last are whole. `cuts` are offsets in their concatenation.

    `mutation` and `field` say what is wrong, `key` and `version` describe the request before the mutation.
    """

    key: int
    version: int
    frames: tuple[bytes, ...]
    mutation: str = NO_MUTATION
    field: str = ""
    cuts: tuple[int, ...] = ()
    ends: Ends = Ends.OPEN

    @property
    def kind(self) -> Kind:
        """What is not sent again once it is known to crash the target."""
        return self.key, self.mutation, self.field

    @property
    def is_transport_mutation(self) -> bool:
        """True if the way in which the bytes arrive is mutated, not the bytes."""
        return bool(self.cuts) or self.ends is not Ends.OPEN

    def segments(self) -> list[bytes]:
        data = b"".join(self.frames)
        edges = (0, *self.cuts, len(data))
        return [data[start:end] for start, end in pairwise(edges) if start < end]


def is_whole(frame: bytes) -> bool:
    """Return True if the size field matches the frame."""
    return len(frame) >= 4 and int.from_bytes(frame[:4], "big", signed=True) == len(frame) - 4


def with_size(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def renumbered(frame: bytes, correlation_id: int) -> bytes:
    """Return the frame with another correlation id."""
    return frame[:8] + correlation_id.to_bytes(4, "big") + frame[12:]

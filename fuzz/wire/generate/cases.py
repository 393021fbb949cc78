"""What is sent: some bytes, how they are cut into TCP segments, and what becomes of the connection behind them."""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

NOTHING: Final = "none"
"""The mutation of a sound request."""
Kind = tuple[int, str, str]
"""Key, mutation and field of a case."""


class Ends(StrEnum):
    """After the bytes of a case."""

    OPEN = "open"  # more may follow: the bytes are whole frames
    FINISH = "finish"  # nothing more will come (FIN): who waits for the rest must close now
    LEAVE = "leave"  # half-open: the connection stays, and says nothing more
    RESET = "reset"  # RST: nobody waits for an answer


@dataclass(frozen=True, slots=True)
class Case:
    """`frames` are sent in order; all but the last are whole. `cuts` are places in their joined bytes.

    `mutation` and `field` say what is wrong, `key` and `version` what was asked before it was spoiled.
    """

    key: int
    version: int
    frames: tuple[bytes, ...]
    mutation: str = NOTHING
    field: str = ""
    cuts: tuple[int, ...] = ()
    ends: Ends = Ends.OPEN

    @property
    def kind(self) -> Kind:
        """What is not sent again once it is known to kill the target."""
        return self.key, self.mutation, self.field

    @property
    def comes_unsound(self) -> bool:
        """What is wrong is how its bytes come."""
        return bool(self.cuts) or self.ends is not Ends.OPEN

    def segments(self) -> list[bytes]:
        data = b"".join(self.frames)
        edges = (0, *self.cuts, len(data))
        return [data[start:end] for start, end in pairwise(edges) if start < end]


def is_whole(frame: bytes) -> bool:
    """Its size is the truth."""
    return len(frame) >= 4 and int.from_bytes(frame[:4], "big", signed=True) == len(frame) - 4


def with_size(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def renumbered(frame: bytes, correlation_id: int) -> bytes:
    """The same frame under another correlation id."""
    return frame[:8] + correlation_id.to_bytes(4, "big") + frame[12:]

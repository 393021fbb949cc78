"""The mutated replies of a client run, so that they can be served again: by API, number and offset, not at random.

Ports, ids and timestamps differ from run to run, so the difference from the valid reply is stored.
"""

from itertools import count, groupby
from typing import Final

import msgspec

from highwater.conformance.self_test.faults import PlantedDefect, SentRequest
from highwater.fuzz.wire.generate.cases import is_whole, with_size
from highwater.reference.wire.registry import APIS

SIZE: Final = 4
UNREADABLE: Final = -1


class Edit(msgspec.Struct, frozen=True, array_like=True):
    """At offset `at` after the size field, `removed` bytes are replaced by `inserted` (hexadecimal)."""

    at: int
    removed: int
    inserted: str


class ServedReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply with that `number` (from 0) to that API in a run. `size` is its false size field, or None."""

    key: int
    version: int
    number: int
    how: str
    edits: list[Edit]
    size: int | None = None


class ServedReplies(msgspec.Struct, frozen=True, kw_only=True):
    """The mutated replies of a run, and the limits of the client."""

    replies: list[ServedReply]
    deadline_s: float
    memory_mb: int


def key_of(asked: SentRequest) -> int:
    return asked.api.key if asked.api else UNREADABLE


def numbers() -> dict[int, "count[int]"]:
    """Counters of the replies to each API; several connections share them."""
    return {key: count() for key in (UNREADABLE, *APIS)}


def reply_of(asked: SentRequest, number: int, how: str, valid: bytes, mutated: bytes) -> ServedReply:
    size = None if is_whole(mutated) else int.from_bytes(mutated[:SIZE], "big", signed=True)
    edits = _edits(valid[SIZE:], mutated[SIZE:])
    return ServedReply(key=key_of(asked), version=asked.version, number=number, how=how, edits=edits, size=size)


def _edits(before: bytes, after: bytes) -> list[Edit]:
    """Return the differing bytes if both have one length, otherwise all between common prefix and suffix."""
    if len(before) == len(after):
        places = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        runs = [[at for _, at in run] for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0])]
        return [Edit(run[0], len(run), after[run[0] : run[-1] + 1].hex()) for run in runs]
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    left = shorter - start
    end = next((at for at in range(left) if before[-1 - at] != after[-1 - at]), left)
    return [Edit(start, len(before) - start - end, after[start : len(after) - end].hex())]


def apply_edits(valid: bytes, reply: ServedReply) -> bytes:
    """Mutate a valid reply again. Edits beyond the end of a shorter reply are appended."""
    body = valid[SIZE:]
    for edit in reversed(reply.edits):
        body = body[: edit.at] + bytes.fromhex(edit.inserted) + body[edit.at + edit.removed :]
    return with_size(body) if reply.size is None else (reply.size & 0xFFFFFFFF).to_bytes(SIZE, "big") + body


class RepeatedReplies(PlantedDefect):
    """Mutates the same replies as in an earlier run."""

    def __init__(self, replies: list[ServedReply]) -> None:
        super().__init__()
        self._replies = {(reply.key, reply.number): reply for reply in replies}
        self._numbers = numbers()

    def mutate_reply(self, frame: bytes, asked: SentRequest) -> bytes:
        key = key_of(asked)
        reply = self._replies.get((key, next(self._numbers[key])))
        return frame if reply is None else apply_edits(frame, reply)

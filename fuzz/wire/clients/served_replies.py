"""Replies as a client was given them, so that they can be spoiled again: by API, number and place, not by chance.

Ports, ids and stamps differ from run to run: what is kept is the difference from the sound reply.
"""

from itertools import count, groupby
from typing import Final

import msgspec

from highwater.conformance.self_test.faults import Fault, SentRequest
from highwater.fuzz.wire.generate.cases import is_whole, with_size
from highwater.reference.wire.registry import APIS

SIZE: Final = 4
UNREADABLE: Final = -1


class Edit(msgspec.Struct, frozen=True, array_like=True):
    """Behind the size of a frame: at `at` so many bytes are `removed`, and others (hexadecimal) stand there."""

    at: int
    removed: int
    inserted: str


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of that `number` (from 0) to that API in a run. It claims `size`, or None for the true one."""

    key: int
    version: int
    number: int
    how: str
    edits: list[Edit]
    size: int | None = None


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What a client under test was given, and what it may take."""

    replies: list[Reply]
    deadline_s: float
    memory_mb: int


def key_of(asked: SentRequest) -> int:
    return asked.api.key if asked.api else UNREADABLE


def numbers() -> dict[int, "count[int]"]:
    """Of the replies to each API: several connections may count at once."""
    return {key: count() for key in (UNREADABLE, *APIS)}


def reply_of(asked: SentRequest, number: int, how: str, sound: bytes, spoiled: bytes) -> Reply:
    size = None if is_whole(spoiled) else int.from_bytes(spoiled[:SIZE], "big", signed=True)
    edits = _edits(sound[SIZE:], spoiled[SIZE:])
    return Reply(key=key_of(asked), version=asked.version, number=number, how=how, edits=edits, size=size)


def _edits(before: bytes, after: bytes) -> list[Edit]:
    """Byte for byte where nothing has moved, otherwise all between what both begin and end with."""
    if len(before) == len(after):
        places = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        runs = [[at for _, at in run] for _, run in groupby(enumerate(places), lambda each: each[1] - each[0])]
        return [Edit(run[0], len(run), after[run[0] : run[-1] + 1].hex()) for run in runs]
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    left = shorter - start
    end = next((at for at in range(left) if before[-1 - at] != after[-1 - at]), left)
    return [Edit(start, len(before) - start - end, after[start : len(after) - end].hex())]


def spoiled_again(sound: bytes, reply: Reply) -> bytes:
    """Edits beyond the end of a reply that is shorter now stand at its end."""
    body = sound[SIZE:]
    for edit in reversed(reply.edits):
        body = body[: edit.at] + bytes.fromhex(edit.inserted) + body[edit.at + edit.removed :]
    return with_size(body) if reply.size is None else (reply.size & 0xFFFFFFFF).to_bytes(SIZE, "big") + body


class Again(Fault):
    """Serves what was served before."""

    def __init__(self, replies: list[Reply]) -> None:
        super().__init__()
        self._replies = {(each.key, each.number): each for each in replies}
        self._numbers = numbers()

    def mutate_reply(self, frame: bytes, asked: SentRequest) -> bytes:
        key = key_of(asked)
        reply = self._replies.get((key, next(self._numbers[key])))
        return frame if reply is None else spoiled_again(frame, reply)

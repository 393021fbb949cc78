"""Replies of our broker to a client under test, some of them spoiled by chance."""

import random
from collections.abc import Callable
from itertools import count
from typing import Final

from highwater.conformance.self_test.faults import Fault, SentRequest
from highwater.fuzz.wire.clients.served_replies import Reply, key_of, numbers, reply_of
from highwater.fuzz.wire.generate.batches import spoiled_records
from highwater.fuzz.wire.generate.mutators import LENGTHS, uvarint
from highwater.reference.wire.constructs import Site, sites
from highwater.reference.wire.errors import WireError
from highwater.reference.wire.framing import decode_response_header, response_header_version

FETCH: Final = 1
SPOILED_SHARE: Final = 0.2
RECORDS_SHARE: Final = 0.5
"""Of the Fetch replies that are spoiled: clients read nothing deeper than records."""
SOUND_AT_FIRST: Final = (3, 40)
"""Replies of a run that may pass, so that not every run ends in its first exchanges."""
TLS_ALERT: Final = bytes.fromhex("15030300020246")


class Hostile(Fault):
    """Spoils replies by chance; `spoiled` says which and how."""

    def __init__(self, seed: str) -> None:
        super().__init__()
        self.spoiled: list[Reply] = []
        self._chance, self._all, self._numbers = random.Random(seed), count(), numbers()
        self._spare = self._chance.randrange(self._chance.choice(SOUND_AT_FIRST) + 1)

    def mutate_reply(self, frame: bytes, asked: SentRequest) -> bytes:
        key = key_of(asked)
        number = next(self._numbers[key])
        if next(self._all) < self._spare or self._chance.random() > SPOILED_SHARE:
            return frame
        has_records = key == FETCH and self._chance.random() < RECORDS_SHARE
        how = "records" if has_records else self._chance.choice(list(SPOILERS))
        spoiled = SPOILERS[how](self._chance, frame, asked)
        if spoiled != frame:
            self.spoiled.append(reply_of(asked, number, how, frame, spoiled))
        return spoiled


def _flip(chance: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    spoiled = bytearray(frame)
    for _ in range(chance.choice((1, 4))):
        spoiled[chance.randrange(8, len(spoiled)) if len(spoiled) > 8 else 4] ^= 1 << chance.randrange(8)
    return bytes(spoiled)


def _sites(frame: bytes, asked: SentRequest, *kinds: str) -> list[Site]:
    """Their places in the frame; none in a reply that cannot be read."""
    if asked.api is None:
        return []
    body = frame[4:]
    try:
        _, start = decode_response_header(body, response_header_version(asked.api, asked.version))
        found = sites(asked.api.response, asked.version, body[start:])
    except WireError:
        return []
    shift = 4 + start
    return [Site(each.path, each.kind, each.start + shift, each.end + shift) for each in found if each.kind in kinds]


def _spliced(frame: bytes, site: Site, new: bytes) -> bytes:
    spoiled = frame[4 : site.start] + new + frame[site.end :]
    return len(spoiled).to_bytes(4, "big") + spoiled


def _length(chance: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    """A length or count in the body that is not the truth."""
    found = _sites(frame, asked, "length", "count")
    if not found or asked.api is None:
        return _flip(chance, frame, asked)
    site, value = chance.choice(found), chance.choice(LENGTHS)
    width = site.end - site.start
    flexible = asked.api.is_flexible(asked.version)
    new = uvarint((value + 1) & 0xFFFFFFFF) if flexible else (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")
    return _spliced(frame, site, new)


def _records(chance: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    """Other records: a batch with a wrong header, a bomb, a message set within message sets."""
    found = _sites(frame, asked, "records")
    if not found or asked.api is None:
        return _length(chance, frame, asked)
    _, new = spoiled_records(chance)
    size = uvarint(len(new) + 1) if asked.api.is_flexible(asked.version) else len(new).to_bytes(4, "big")
    return _spliced(frame, chance.choice(found), size + new)


def _cut(chance: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    shorter = frame[4 : chance.randrange(8, max(len(frame), 9))]
    return len(shorter).to_bytes(4, "big") + shorter


def _size(chance: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    return (chance.choice((-1, 0, 3, 2**31 - 1, 2**28)) & 0xFFFFFFFF).to_bytes(4, "big") + frame[4:]


def _correlation(chance: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    return frame[:4] + chance.randbytes(4) + frame[8:]


def _tls(chance: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    return TLS_ALERT


SPOILERS: Final[dict[str, Callable[[random.Random, bytes, SentRequest], bytes]]] = {
    "flip": _flip, "length": _length, "cut": _cut, "size": _size, "correlation": _correlation, "tls alert": _tls,
    "records": _records,
}  # fmt: skip

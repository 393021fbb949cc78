"""Mutate some replies of our broker to a client under test, at random."""

import random
from collections.abc import Callable
from itertools import count
from typing import Final

from highwater.conformance.self_test.faults import PlantedDefect, SentRequest
from highwater.fuzz.wire.clients.served_replies import ServedReply, key_of, numbers, reply_of
from highwater.fuzz.wire.generate.batches import mutated_records
from highwater.fuzz.wire.generate.mutators import LENGTHS, uvarint
from highwater.reference.wire.constructs import Site, sites
from highwater.reference.wire.errors import WireError
from highwater.reference.wire.framing import decode_response_header, response_header_version

FETCH: Final = 1
MUTATED_SHARE: Final = 0.2
RECORDS_SHARE: Final = 0.5
"""Of the mutated Fetch replies: records are the most complex format that clients decode."""
VALID_AT_FIRST: Final = (3, 40)
"""Maximum number of valid replies at the start, so that not every run ends in its first exchanges."""
TLS_ALERT: Final = bytes.fromhex("15030300020246")


class HostileReplies(PlantedDefect):
    """Mutates random replies; `mutated` records which and how."""

    def __init__(self, seed: str) -> None:
        super().__init__()
        self.mutated: list[ServedReply] = []
        self._rng, self._all, self._numbers = random.Random(seed), count(), numbers()
        self._valid_replies_left = self._rng.randrange(self._rng.choice(VALID_AT_FIRST) + 1)

    def mutate_reply(self, frame: bytes, asked: SentRequest) -> bytes:
        key = key_of(asked)
        number = next(self._numbers[key])
        if next(self._all) < self._valid_replies_left or self._rng.random() > MUTATED_SHARE:
            return frame
        has_records = key == FETCH and self._rng.random() < RECORDS_SHARE
        how = "records" if has_records else self._rng.choice(list(MUTATIONS))
        mutated = MUTATIONS[how](self._rng, frame, asked)
        if mutated != frame:
            self.mutated.append(reply_of(asked, number, how, frame, mutated))
        return mutated


def _flip(rng: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    mutated = bytearray(frame)
    for _ in range(rng.choice((1, 4))):
        mutated[rng.randrange(8, len(mutated)) if len(mutated) > 8 else 4] ^= 1 << rng.randrange(8)
    return bytes(mutated)


def _sites(frame: bytes, asked: SentRequest, *kinds: str) -> list[Site]:
    """Return the sites of these kinds in the frame; none if the reply does not decode."""
    if asked.api is None:
        return []
    body = frame[4:]
    try:
        _, start = decode_response_header(body, response_header_version(asked.api, asked.version))
        found = sites(asked.api.response, asked.version, body[start:])
    except WireError:
        return []
    shift = 4 + start
    return [Site(site.path, site.kind, site.start + shift, site.end + shift) for site in found if site.kind in kinds]


def _replace_site(frame: bytes, site: Site, new: bytes) -> bytes:
    mutated = frame[4 : site.start] + new + frame[site.end :]
    return len(mutated).to_bytes(4, "big") + mutated


def _length(rng: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    """Replace a length or count in the body by a wrong one."""
    found = _sites(frame, asked, "length", "count")
    if not found or asked.api is None:
        return _flip(rng, frame, asked)
    site, value = rng.choice(found), rng.choice(LENGTHS)
    width = site.end - site.start
    flexible = asked.api.is_flexible(asked.version)
    new = uvarint((value + 1) & 0xFFFFFFFF) if flexible else (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")
    return _replace_site(frame, site, new)


def _records(rng: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    """Replace records by a batch with a wrong header, a bomb, or nested message sets."""
    found = _sites(frame, asked, "records")
    if not found or asked.api is None:
        return _length(rng, frame, asked)
    _, new = mutated_records(rng)
    size = uvarint(len(new) + 1) if asked.api.is_flexible(asked.version) else len(new).to_bytes(4, "big")
    return _replace_site(frame, rng.choice(found), size + new)


def _cut(rng: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    shorter = frame[4 : rng.randrange(8, max(len(frame), 9))]
    return len(shorter).to_bytes(4, "big") + shorter


def _size(rng: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    return (rng.choice((-1, 0, 3, 2**31 - 1, 2**28)) & 0xFFFFFFFF).to_bytes(4, "big") + frame[4:]


def _correlation(rng: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    return frame[:4] + rng.randbytes(4) + frame[8:]


def _tls(rng: random.Random, frame: bytes, asked: SentRequest) -> bytes:
    return TLS_ALERT


MUTATIONS: Final[dict[str, Callable[[random.Random, bytes, SentRequest], bytes]]] = {
    "flip": _flip, "length": _length, "cut": _cut, "size": _size, "correlation": _correlation, "tls alert": _tls,
    "records": _records,
}  # fmt: skip

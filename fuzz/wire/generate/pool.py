"""Sound requests with the places where they can be spoiled: made once, used many times, replaced one at a time.

To make a request and to find its sites costs ten times as much as to spoil it.
"""

import random
import re
from dataclasses import dataclass
from typing import Final

from highwater.fuzz.wire.generate.requests import CLIENT_ID, generate
from highwater.reference.wire.constructs import Site, sites
from highwater.reference.wire.errors import EncodeError
from highwater.reference.wire.framing import decode_request_header, encode_request
from highwater.reference.wire.registry import Api

KEPT: Final = 6
"""Of each API and version."""
FRESH_SHARE: Final = 0.03
INDEX: Final = re.compile(r"\[\d+\] -> |( -> )?\[\d+\]")
ATTEMPTS: Final = 100


@dataclass(frozen=True, slots=True)
class Sound:
    """A request without its size; `header` is where its body begins, and sites count from the request's start."""

    api: Api
    version: int
    body: bytes
    header: int
    sites: tuple[Site, ...]


class Pool:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._kept: dict[tuple[int, int], list[Sound]] = {}

    def draw(self, api: Api, version: int) -> Sound:
        """One of those kept, or a new one."""
        kept = self._kept.setdefault((api.key, version), [])
        if len(kept) < KEPT:
            kept.append(self._make(api, version))
            return kept[-1]
        if self._chance.random() < FRESH_SHARE:
            kept[self._chance.randrange(KEPT)] = made = self._make(api, version)
            return made
        return kept[self._chance.randrange(KEPT)]

    def _make(self, api: Api, version: int) -> Sound:
        body = sound_frame(self._chance, api, version, 0)[4:]
        _, header = decode_request_header(body)
        found = sites(api.request, version, body[header:])
        return Sound(api, version, body, header, tuple(_moved(site, header) for site in found))


def sound_frame(chance: random.Random, api: Api, version: int, correlation_id: int) -> bytes:
    """A new request of that version, size included."""
    for _ in range(ATTEMPTS):
        try:
            return encode_request(generate(chance, api, version), version, correlation_id, CLIENT_ID)
        except EncodeError:
            continue  # a value that this version cannot carry
    raise EncodeError(f"no request of {api.name} version {version} in {ATTEMPTS} attempts")


def _moved(site: Site, by: int) -> Site:
    """Its path without indexes: one field is one place, however many elements there are."""
    return Site(INDEX.sub("", site.path).replace(" -> ", "."), site.kind, site.start + by, site.end + by)

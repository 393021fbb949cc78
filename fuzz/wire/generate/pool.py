"""A pool of valid requests with their mutation sites; each is reused often and replaced one at a time.

Generating a request and finding its sites costs ten times as much as mutating it.
"""

import random
import re
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from highwater.fuzz.wire.generate.requests import CLIENT_ID, generate
from highwater.fuzz.wire.generate.response_values import ResponseValues
from highwater.reference.wire.constructs import Site, sites
from highwater.reference.wire.errors import DecodeError, EncodeError
from highwater.reference.wire.framing import decode_request_header, encode_request
from highwater.reference.wire.registry import Api

KEPT_REQUESTS: Final = 6
"""For each API and version."""
FRESH_SHARE: Final = 0.03
GROWTH_SHARE: Final = 0.1
"""Probability of a further request while there are fewer than KEPT_REQUESTS: all at once would slow the start down."""
INDEX: Final = re.compile(r"\[\d+\] -> |( -> )?\[\d+\]")
ATTEMPTS: Final = 100
NOVEL_MAX: Final = 2_000
REWARDED_MAX: Final = 400
"""Groups of requests."""
REWARDED_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """A request without size field; its body begins at `header`, and sites count from the start of the request."""

    api: Api
    version: int
    body: bytes
    header: int
    sites: tuple[Site, ...]


class Pool:
    """`returned`: values that the target returned, for new requests."""

    def __init__(self, rng: random.Random, returned: ResponseValues | None = None) -> None:
        self._rng, self._returned = rng, returned
        self._rewarded: deque[list[ValidRequest]] = deque(maxlen=REWARDED_MAX)
        self._requests: dict[tuple[int, int], list[ValidRequest]] = {}
        self._novel: deque[ValidRequest] = deque(maxlen=NOVEL_MAX)

    def draw(self, api: Api, version: int) -> ValidRequest:
        """Return a request of the pool, or a new one."""
        requests = self._requests.setdefault((api.key, version), [])
        drawn, count = self._rng.random(), len(requests)
        if not count or (count < KEPT_REQUESTS and drawn < GROWTH_SHARE):
            requests.append(self._make(api, version))
            return requests[-1]
        place = self._rng.randrange(count)
        if count == KEPT_REQUESTS and drawn < FRESH_SHARE:
            requests[place] = self._make(api, version)
        return requests[place]

    def keep(self, api: Api, version: int, body: bytes) -> None:
        """Keep a request that had a new response, to be mutated again; only if it still decodes."""
        with suppress(DecodeError):
            self._novel.append(_with_sites(api, version, body))

    def reward(self, requests: Iterable[tuple[Api, int, bytes]]) -> None:
        """Keep requests of which one reached new code of the target; each such group is drawn equally often."""
        group = []
        for api, version, body in requests:
            with suppress(DecodeError):
                group.append(_with_sites(api, version, body))
        if group:
            self._rewarded.append(group)

    def draw_novel(self) -> ValidRequest | None:
        """Return one of the requests that were kept or rewarded, None if there is none."""
        if self._rewarded and self._rng.random() < REWARDED_SHARE:
            return self._rng.choice(self._rng.choice(self._rewarded))
        return self._rng.choice(self._novel) if self._novel else None

    def _make(self, api: Api, version: int) -> ValidRequest:
        return _with_sites(api, version, sound_frame(self._rng, api, version, 0, self._returned)[4:])


def _with_sites(api: Api, version: int, body: bytes) -> ValidRequest:
    _, header = decode_request_header(body)
    found = sites(api.request, version, body[header:])
    return ValidRequest(api, version, body, header, tuple(_moved(site, header) for site in found))


def sound_frame(
    rng: random.Random, api: Api, version: int, correlation_id: int, returned: ResponseValues | None = None
) -> bytes:
    """Return a new valid request of that version, with size field."""
    for _ in range(ATTEMPTS):
        try:
            return encode_request(generate(rng, api, version, returned), version, correlation_id, CLIENT_ID)
        except EncodeError:
            continue  # a value that this version cannot carry
    raise EncodeError(f"no request of {api.name} version {version} in {ATTEMPTS} attempts")


def _moved(site: Site, by: int) -> Site:
    """Shift a site, and remove indexes from its path: all elements of an array count as one field."""
    return Site(INDEX.sub("", site.path).replace(" -> ", "."), site.kind, site.start + by, site.end + by)

"""The endless stream of cases: valid requests, mutated ones, and valid bytes with a transport mutation."""

import random
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from highwater.fuzz.wire.generate.cases import NO_MUTATION, Case, Ends, Kind, renumbered, with_size
from highwater.fuzz.wire.generate.mutators import MUTATORS, records
from highwater.fuzz.wire.generate.pool import Pool, ValidRequest, sound_frame
from highwater.fuzz.wire.generate.requests import CLIENT_ID
from highwater.fuzz.wire.generate.response_values import ResponseValues
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from highwater.reference.wire.registry import APIS, Api

TRANSPORT_SHARE: Final = 0.06
PRODUCE: Final = 0
RECORDS_SHARE: Final = 0.4
"""Of the mutated Produce requests: record batches are a format of their own."""
SIZES: Final = (-1, -(2**31), 0, 3, 2**31 - 1, 2**27)
TLS_HELLO: Final = bytes.fromhex("16030100c8010000c40303") + bytes(32)
"""As a size field it reads as 369 MB (KAFKA-4090)."""
SASL_HANDSHAKE, SASL_AUTHENTICATE = APIS[17], APIS[36]
WEIGHTS: Final = {0: 6, 1: 3, 2: 2, 3: 2, 8: 2, 9: 2, 11: 4, 14: 2}
"""By API key: what clients send most, and what contains other formats."""
ATTEMPTS: Final = 50
NOVEL_SHARE: Final = 0.3
"""Of the mutated requests: those that build on a request with a new response."""
NEW_SHARE: Final = 0.3
"""Of the valid requests; the others are those of the pool, which cost a tenth."""
REWARDED_BYTES: Final = 4_096
FIRST_NUMBER: Final = 2**31 - 256
"""Correlation id before the first one: after some hundred frames they are negative, as after years of a connection."""
ANY_API: Final = -2
UNSPECIFIC: Final = frozenset(
    {NO_MUTATION, "flip", "flip header", "cut", "grow", "repeat", "split", "half-open", "finish"}
)
"""Mutations that may hit any field, so the effect of one says nothing about the next."""

Served = Sequence[tuple[Api, int, int]]
"""An API with the first and last version that the target supports."""


class Stream:
    """`avoided` are kinds of cases that are known to crash the target and are not sent again.

    `suspended` are kinds that were in flight when it crashed, until the confirmation has found the cause.
    `left_alone` are API keys and versions that crashed it repeatedly with different mutations, or that our table lacks.
    """

    def __init__(self, seed: str, served: Served, sound_share: float) -> None:
        self.rng = random.Random(seed)
        self.avoided: set[Kind] = set()
        self.suspended: set[Kind] = set()
        self.left_alone: set[tuple[int, int]] = set()
        served = [api_range for api_range in served for _ in range(WEIGHTS.get(api_range[0].key, 1))]
        self._served, self._sound_share = served, sound_share
        self.returned = ResponseValues()
        self._pool = Pool(self.rng, self.returned)
        self._number = FIRST_NUMBER

    def next(self) -> Case:
        for _ in range(ATTEMPTS):
            case = self._draw()
            if not self._is_avoided(case):
                return self._numbered(case)
        raise RuntimeError(
            f"all of {ATTEMPTS} generated cases are of kinds to avoid"
        )  # valid requests are rarely avoided

    def keep(self, key: int, version: int, frame: bytes) -> None:
        """Mutate a request again that had a new response."""
        if key in APIS and APIS[key].min_version <= version <= APIS[key].max_version:
            self._pool.keep(APIS[key], version, frame[4:])

    def reward(self, cases: Iterable[Case]) -> None:
        """Mutate requests again of which one reached new code of the target."""
        known = [case for case in cases if case.key in APIS and len(case.frames[-1]) <= REWARDED_BYTES]
        self._pool.reward((APIS[case.key], case.version, case.frames[-1][4:]) for case in known)

    def avoid(self, kind: Kind) -> None:
        """Avoid a kind of case; in all APIs, once two kinds have the same mutation and field name."""
        kind_in_any_api = _kind_in_any_api(kind)
        if kind_in_any_api[1] in UNSPECIFIC:
            return
        self.avoided.add(kind)
        others = [
            kind_avoided
            for kind_avoided in self.avoided
            if kind_avoided[0] != ANY_API and _kind_in_any_api(kind_avoided) == kind_in_any_api
        ]
        if len(others) > 1:
            self.avoided.add(kind_in_any_api)

    def _is_avoided(self, case: Case) -> bool:
        kind = case.kind
        return (
            kind in self.avoided
            or kind in self.suspended
            or _kind_in_any_api(kind) in self.avoided
            or (case.key, case.version) in self.left_alone
        )

    def _draw(self) -> Case:
        rng = self.rng
        api, first, last = self._served[int(rng.random() * len(self._served))]
        version = first + int(rng.random() * (last - first + 1))
        kind = rng.random()
        if kind < self._sound_share * NEW_SHARE:
            return Case(api.key, version, (sound_frame(rng, api, version, 0, self.returned),))
        if kind < self._sound_share:
            return Case(api.key, version, (with_size(self._pool.draw(api, version).body),))
        novel = self._pool.draw_novel() if rng.random() < NOVEL_SHARE else None
        valid = novel or self._pool.draw(api, version)
        api, version = valid.api, valid.version
        if api.key == PRODUCE and rng.random() < RECORDS_SHARE:
            return records(rng, valid)
        ways = BY_STREAM if kind < self._sound_share + TRANSPORT_SHARE else BY_BYTES
        return ways[int(rng.random() * len(ways))](rng, valid)

    def _numbered(self, case: Case) -> Case:
        """Give every frame a correlation id of its own, so that a response identifies its request."""
        frames = []
        for frame in case.frames:
            self._number = (self._number + 1) & 0xFFFFFFFF
            frames.append(renumbered(frame, self._number) if len(frame) >= 12 else frame)
        return Case(case.key, case.version, tuple(frames), case.mutation, case.field, case.cuts, case.ends)


def _kind_in_any_api(kind: Kind) -> Kind:
    """Return the kind for any API, with the field name only, at any depth."""
    return ANY_API, kind[1], kind[2].rpartition(".")[2]


def _case(
    valid: ValidRequest, mutation: str, frame: bytes, *, ends: Ends = Ends.OPEN, cuts: tuple[int, ...] = ()
) -> Case:
    return Case(valid.api.key, valid.version, (frame,), mutation, cuts=cuts, ends=ends)


def split(rng: random.Random, valid: ValidRequest) -> Case:
    """Send a valid frame in two to five segments, also cut within the size field."""
    frame = with_size(valid.body)
    cuts = sorted(rng.sample(range(1, min(len(frame), 64)), rng.choice((1, 2, 4))))
    return _case(valid, "split", frame, cuts=tuple(cuts))


def size(rng: random.Random, valid: ValidRequest) -> Case:
    """Send a size field that does not match the frame."""
    claimed = rng.choice((*SIZES, len(valid.body) - 1, len(valid.body) + 1))
    return _case(valid, "size", struct.pack(">i", claimed) + valid.body, ends=Ends.FINISH)


def half_open(rng: random.Random, valid: ValidRequest) -> Case:
    """Send the start of a frame and leave the connection open."""
    frame = with_size(valid.body)
    return _case(valid, "half-open", frame[: rng.randrange(1, len(frame))], ends=Ends.LEAVE)


def finish(rng: random.Random, valid: ValidRequest) -> Case:
    """Send the start of a frame and then FIN."""
    frame = with_size(valid.body)
    return _case(valid, "finish", frame[: rng.randrange(1, len(frame))], ends=Ends.FINISH)


def reset(rng: random.Random, valid: ValidRequest) -> Case:
    """Send a valid request and reset the connection without waiting for the response."""
    return _case(valid, "reset", with_size(valid.body), ends=Ends.RESET)


def not_kafka(rng: random.Random, valid: ValidRequest) -> Case:
    junk = rng.choice((TLS_HELLO, b"GET / HTTP/1.1\r\n\r\n", b"\0", rng.randbytes(40)))
    return _case(valid, "not kafka", junk, ends=Ends.FINISH)


def login(rng: random.Random, valid: ValidRequest) -> Case:
    """Send tokens before a handshake, repeated handshakes, or an unknown mechanism, then a request."""
    handshake = encode_request(
        SaslHandshakeRequest(mechanism=rng.choice(("PLAIN", "SCRAM-SHA-256", "NONE", ""))), 1, 0, CLIENT_ID
    )
    token = encode_request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + rng.randbytes(5)), 2, 0, CLIENT_ID)
    order = [handshake, handshake, token, with_size(valid.body)]
    rng.shuffle(order)
    return Case(valid.api.key, valid.version, tuple(order[: rng.choice((2, 3, 4))]), "login", ends=Ends.FINISH)


TRANSPORTS: Final[dict[str, Callable[[random.Random, ValidRequest], Case]]] = {
    "split": split, "size": size, "half-open": half_open, "finish": finish, "reset": reset, "not kafka": not_kafka,
    "login": login,
}  # fmt: skip
"""Transport mutations. Many frames in flight on a connection are the engine's normal mode, not a mutation."""
BY_STREAM, BY_BYTES = tuple(TRANSPORTS.values()), tuple(MUTATORS.values())

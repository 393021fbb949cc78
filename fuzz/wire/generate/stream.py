"""The endless stream of cases: sound ones, spoiled ones, and sound bytes that come in an unsound way."""

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

from highwater.fuzz.wire.generate.cases import NOTHING, Case, Ends, Kind, renumbered, with_size
from highwater.fuzz.wire.generate.mutators import MUTATORS, records
from highwater.fuzz.wire.generate.pool import Pool, Sound, sound_frame
from highwater.fuzz.wire.generate.requests import CLIENT_ID
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from highwater.reference.wire.registry import APIS, Api

TRANSPORT_SHARE: Final = 0.06
PRODUCE: Final = 0
RECORDS_SHARE: Final = 0.4
"""Of the spoiled Produce requests: batches are a format of their own."""
SIZES: Final = (-1, -(2**31), 0, 3, 2**31 - 1, 2**27)
TLS_HELLO: Final = bytes.fromhex("16030100c8010000c40303") + bytes(32)
"""Read as a size it is 369 MB (KAFKA-4090)."""
SASL_HANDSHAKE, SASL_AUTHENTICATE = APIS[17], APIS[36]
WEIGHTS: Final = {0: 6, 1: 3, 2: 2, 3: 2, 8: 2, 9: 2, 11: 4, 14: 2}
"""By API key: what clients send all day, and what holds other formats inside."""
ATTEMPTS: Final = 50
ANY_API: Final = -2
ANYTHING: Final = frozenset({NOTHING, "flip", "flip header", "cut", "grow", "repeat", "split", "half-open", "finish"})
"""Mutations that may hit anything: what one of them did says nothing of the next."""

Served = Sequence[tuple[Api, int, int]]
"""An API with the first and last version that the target speaks."""


class Stream:
    """`avoided` are kinds of cases that are known to kill the target: they are not sent again.

    `left_alone` are keys and versions that killed it again and again, whatever was wrong with them, or that our table
    does not know.
    """

    def __init__(self, seed: str, served: Served, sound_share: float) -> None:
        self.chance = random.Random(seed)
        self.avoided: set[Kind] = set()
        self.left_alone: set[tuple[int, int]] = set()
        served = [each for each in served for _ in range(WEIGHTS.get(each[0].key, 1))]
        self._served, self._sound_share = served, sound_share
        self._pool = Pool(self.chance)
        self._number = 0

    def next(self) -> Case:
        for _ in range(ATTEMPTS):
            case = self._draw()
            if not self._is_avoided(case):
                return self._numbered(case)
        raise RuntimeError(f"{ATTEMPTS} cases in a row are of kinds to avoid")  # never: sound kinds are few

    def avoid(self, kind: Kind) -> None:
        """Not again; in no API, once two places have shown that mutation and field's own name say what is wrong."""
        likeness = _likeness(kind)
        if likeness[1] in ANYTHING:
            return
        self.avoided.add(kind)
        others = [each for each in self.avoided if each[0] != ANY_API and _likeness(each) == likeness]
        if len(others) > 1:
            self.avoided.add(likeness)

    def _is_avoided(self, case: Case) -> bool:
        kind = case.kind
        return kind in self.avoided or _likeness(kind) in self.avoided or (case.key, case.version) in self.left_alone

    def _draw(self) -> Case:
        chance = self.chance
        api, first, last = self._served[int(chance.random() * len(self._served))]
        version = first + int(chance.random() * (last - first + 1))
        kind = chance.random()
        if kind < self._sound_share:
            return Case(api.key, version, (sound_frame(chance, api, version, 0),))
        sound = self._pool.draw(api, version)
        if api.key == PRODUCE and chance.random() < RECORDS_SHARE:
            return records(chance, sound)
        ways = BY_STREAM if kind < self._sound_share + TRANSPORT_SHARE else BY_BYTES
        return ways[int(chance.random() * len(ways))](chance, sound)

    def _numbered(self, case: Case) -> Case:
        """Every frame has a correlation id of its own, so that an answer names its request."""
        frames = []
        for frame in case.frames:
            self._number = (self._number + 1) & 0x7FFFFFFF
            frames.append(renumbered(frame, self._number) if len(frame) >= 12 else frame)
        return Case(case.key, case.version, tuple(frames), case.mutation, case.field, case.cuts, case.ends)


def _likeness(kind: Kind) -> Kind:
    """The same in any API, at a field of that name at any depth."""
    return ANY_API, kind[1], kind[2].rpartition(".")[2]


def _case(sound: Sound, mutation: str, frame: bytes, *, ends: Ends = Ends.OPEN, cuts: tuple[int, ...] = ()) -> Case:
    return Case(sound.api.key, sound.version, (frame,), mutation, cuts=cuts, ends=ends)


def split(chance: random.Random, sound: Sound) -> Case:
    """A sound frame in two to five segments, within its size too."""
    frame = with_size(sound.body)
    cuts = sorted(chance.sample(range(1, min(len(frame), 64)), chance.choice((1, 2, 4))))
    return _case(sound, "split", frame, cuts=tuple(cuts))


def size(chance: random.Random, sound: Sound) -> Case:
    """A size that is not the frame's."""
    told = chance.choice((*SIZES, len(sound.body) - 1, len(sound.body) + 1))
    return _case(sound, "size", struct.pack(">i", told) + sound.body, ends=Ends.FINISH)


def half_open(chance: random.Random, sound: Sound) -> Case:
    """The start of a frame, then nothing, while the connection stays."""
    frame = with_size(sound.body)
    return _case(sound, "half-open", frame[: chance.randrange(1, len(frame))], ends=Ends.LEAVE)


def finish(chance: random.Random, sound: Sound) -> Case:
    """The start of a frame, then the end."""
    frame = with_size(sound.body)
    return _case(sound, "finish", frame[: chance.randrange(1, len(frame))], ends=Ends.FINISH)


def reset(chance: random.Random, sound: Sound) -> Case:
    """A whole request of somebody who does not wait for the answer."""
    return _case(sound, "reset", with_size(sound.body), ends=Ends.RESET)


def not_kafka(chance: random.Random, sound: Sound) -> Case:
    junk = chance.choice((TLS_HELLO, b"GET / HTTP/1.1\r\n\r\n", b"\0", chance.randbytes(40)))
    return _case(sound, "not kafka", junk, ends=Ends.FINISH)


def login(chance: random.Random, sound: Sound) -> Case:
    """Tokens before a handshake, handshakes twice, a mechanism that nobody has, then a request."""
    handshake = encode_request(
        SaslHandshakeRequest(mechanism=chance.choice(("PLAIN", "SCRAM-SHA-256", "NONE", ""))), 1, 0, CLIENT_ID
    )
    token = encode_request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + chance.randbytes(5)), 2, 0, CLIENT_ID)
    order = [handshake, handshake, token, with_size(sound.body)]
    chance.shuffle(order)
    return Case(sound.api.key, sound.version, tuple(order[: chance.choice((2, 3, 4))]), "login", ends=Ends.FINISH)


TRANSPORTS: Final[dict[str, Callable[[random.Random, Sound], Case]]] = {
    "split": split, "size": size, "half-open": half_open, "finish": finish, "reset": reset, "not kafka": not_kafka,
    "login": login,
}  # fmt: skip
"""What is wrong is how the bytes come. Many frames on a connection at once are the engine's ordinary way."""
BY_STREAM, BY_BYTES = tuple(TRANSPORTS.values()), tuple(MUTATORS.values())

"""Two targets and one sound request: do they agree? Declared differences are in `known_differences.toml`."""

import random
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from highwater.fuzz.wire.connection import connect
from highwater.fuzz.wire.generate.cases import Case, with_size
from highwater.fuzz.wire.generate.pool import sound_frame
from highwater.fuzz.wire.oracles import Broken, Oracle, code_name, judge
from highwater.fuzz.wire.sequences.relations import READS
from highwater.reference.client.connection import ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import EncodeError, FrameSizeError
from highwater.reference.wire.registry import APIS

DECLARED: Final = Path(__file__).with_name("known_differences.toml")
ANSWER_S: Final = 3.0
OURS, NOBODYS = b"fuzz-", b"none-"
Spoken = Mapping[int, tuple[int, int]]


class Difference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    api: str
    what: str
    since: int
    why: str


@cache
def declared() -> tuple[Difference, ...]:
    return tuple(msgspec.convert(tomllib.loads(DECLARED.read_text())["difference"], list[Difference]))


def is_declared(api: str, version: int, what: str) -> bool:
    return any((each.api, each.what) == (api, what) and version >= each.since for each in declared())


def question(chance: random.Random, one: Spoken, other: Spoken) -> Case | None:
    """A sound request that both speak and that changes nothing, about what neither has: their pasts must not matter."""
    keys = sorted(READS & one.keys() & other.keys())
    api = APIS[chance.choice(keys)] if keys else None
    if api is None:
        return None
    first = max(one[api.key][0], other[api.key][0])
    last = min(one[api.key][1], other[api.key][1])
    if first > last:
        return None
    version = chance.randint(first, last)
    try:
        frame = sound_frame(chance, api, version, 1)
    except EncodeError:
        return None
    return Case(api.key, version, (with_size(frame[4:].replace(OURS, NOBODYS)),))


def disagreement(case: Case, one: str, other: str) -> Broken | None:
    """What the first says that the second does not, unless that is declared. OSError when one is down."""
    name = APIS[case.key].name
    answers = [answer for address in (one, other) if (answer := _told(address, case.frames[0])) is not None]
    if len(answers) < 2:
        return None  # silence is for other oracles
    words = [each if isinstance(each, str) else " ".join(map(code_name, each)) or "no error" for each in answers]
    what = "closed" if "closed" in answers else "codes"
    if answers[0] == answers[1] or is_declared(name, case.version, what):
        return None
    return Broken(Oracle.AGREEMENT, f"{name} v{case.version}: {words[0]}; the other: {words[1]}")


def _told(address: str, frame: bytes) -> tuple[int, ...] | str | None:
    """Error codes but for success, `closed`, or None for silence and for what does not decode."""
    with connect(address) as line:
        try:
            line.send_bytes(frame)
            broken, codes = judge(frame, line.receive_frame(ANSWER_S))
        except ConnectionClosedError:
            return "closed"
        except (ReplyTimeoutError, FrameSizeError):
            return None
    return None if broken is not None else tuple(code for code in codes if code)

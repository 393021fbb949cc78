"""Compare the responses of two targets to one read request, except for `known_differences.toml`."""

import random
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from highwater.fuzz.wire.connection import VersionRanges, connect
from highwater.fuzz.wire.examination.relations import READS
from highwater.fuzz.wire.generate.cases import Case, with_size
from highwater.fuzz.wire.generate.pool import sound_frame
from highwater.fuzz.wire.oracles.responses import Failure, Oracle, code_name, judge
from highwater.reference.client.connection import ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import EncodeError, FrameSizeError
from highwater.reference.wire.registry import APIS

DECLARED: Final = Path(__file__).with_name("known_differences.toml")
ANSWER_S: Final = 3.0
USED_PREFIX, UNUSED_PREFIX = b"fuzz-", b"none-"


class KnownDifference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    api: str
    what: str
    since: int
    why: str


@cache
def known_differences() -> tuple[KnownDifference, ...]:
    return tuple(msgspec.convert(tomllib.loads(DECLARED.read_text())["difference"], list[KnownDifference]))


def is_known_difference(api: str, version: int, what: str) -> bool:
    return any(
        (difference.api, difference.what) == (api, what) and version >= difference.since
        for difference in known_differences()
    )


def random_read(rng: random.Random, one: VersionRanges, other: VersionRanges) -> Case | None:
    """Return a read request that both targets support, about topics and groups that neither has.

    The names are unused, so that earlier requests cannot cause a difference.
    """
    keys = sorted(READS & one.keys() & other.keys())
    api = APIS[rng.choice(keys)] if keys else None
    if api is None:
        return None
    first = max(one[api.key][0], other[api.key][0])
    last = min(one[api.key][1], other[api.key][1])
    if first > last:
        return None
    version = rng.randint(first, last)
    try:
        frame = sound_frame(rng, api, version, 1)
    except EncodeError:
        return None
    return Case(api.key, version, (with_size(frame[4:].replace(USED_PREFIX, UNUSED_PREFIX)),))


def disagreement(case: Case, one: str, other: str) -> Failure | None:
    """Return how the responses differ, unless that is a known difference. Raises OSError if a target is down."""
    name = APIS[case.key].name
    answers = [answer for address in (one, other) if (answer := _error_codes_of(address, case.frames[0])) is not None]
    if len(answers) < 2:
        return None  # a missing response is a matter for the deadline oracle
    words = [
        answer if isinstance(answer, str) else " ".join(map(code_name, answer)) or "no error" for answer in answers
    ]
    what = "closed" if "closed" in answers else "codes"
    if answers[0] == answers[1] or is_known_difference(name, case.version, what):
        return None
    return Failure(Oracle.AGREEMENT, f"{name} v{case.version}: {words[0]}; the other: {words[1]}")


def _error_codes_of(address: str, frame: bytes) -> tuple[int, ...] | str | None:
    """Return the error codes without 0, `closed`, or None for a timeout or a malformed response."""
    with connect(address) as connection:
        try:
            connection.send_bytes(frame)
            failure, codes = judge(frame, connection.receive_frame(ANSWER_S))
        except ConnectionClosedError:
            return "closed"
        except (ReplyTimeoutError, FrameSizeError):
            return None
    return None if failure is not None else tuple(code for code in codes if code)

"""Equivalent requests must have the same response: with an unknown tag, in other segments, in the next version,
or with null for an empty list.

Only for requests that change nothing. The original request is sent before and after the equivalent one: if its own
response has changed meanwhile, a difference proves nothing.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, Self

from highwater.fuzz.wire.connection import VersionRanges, connect
from highwater.fuzz.wire.examination.versions import difference
from highwater.fuzz.wire.generate.cases import Case, with_size
from highwater.fuzz.wire.generate.pool import sound_frame
from highwater.fuzz.wire.generate.requests import CLIENT_ID
from highwater.fuzz.wire.oracles.responses import Failure, Oracle, read_request
from highwater.reference.client.connection import Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import EncodeError, FrameSizeError, WireError
from highwater.reference.wire.framing import decode_request_header, encode_request, encode_request_header
from highwater.reference.wire.registry import APIS, Api

READS: Final = frozenset({2, 3, 9, 10, 15, 16, 18, 23, 32, 35, 46, 50, 60, 65, 66, 69, 75})
UNKNOWN_TAG: Final = (99, b"x")
TAG_SECTION: Final = b"\x01\x63\x01x"
NUMBER: Final = 7
CLIENT_IDS: Final = (("no", None), ("an empty", ""))
DESCRIBE_CREDENTIALS: Final = 50
NO_USERS, NULL_USERS = b"\x01\x00", b"\x00\x00"
"""Both request all users (DescribeUserScramCredentialsRequest.json)."""
CLOSED, SILENT = b"closed", b"silent"
ANSWER_S: Final = 2.0
PAUSE_S: Final = 0.01
PAUSED_SHARE: Final = 0.05
"""Share of requests whose segments are sent with pauses, so that even a busy target reads them one by one."""
CLOSES: Final = "a valid request closes the connection"


def draw_read(chance: random.Random, served: VersionRanges) -> Case | None:
    """Return a valid request that only reads, in a version of `served`; None if there is none."""
    keys = sorted(READS & served.keys())
    if not keys:
        return None
    api = APIS[chance.choice(keys)]
    version = chance.randint(*served[api.key])
    try:
        return Case(api.key, version, (sound_frame(chance, api, version, NUMBER),))
    except EncodeError:
        return None


def equivalents(case: Case, last: int) -> Iterator[tuple[str, Case]]:
    """Yield requests that must have the same response, each with what differs; `last` is the last version served."""
    (frame,) = case.frames
    api, cut = APIS[case.key], random.Random(frame).randrange(1, len(frame))
    yield "in two segments", replace(case, cuts=(cut,))
    yield "byte by byte", replace(case, cuts=tuple(range(1, 7)))
    for what, changed in _other_frames(api, case.version, frame):
        yield what, replace(case, frames=(changed,))
    if case.version < last and (frame := _in_next_version(case)):
        yield "in the next version", replace(case, version=case.version + 1, frames=(frame,))


def _other_frames(api: Api, version: int, frame: bytes) -> Iterator[tuple[str, bytes]]:
    for which, client_id in CLIENT_IDS:
        yield f"with {which} client id", _with_header(frame, client_id=client_id)
    if (api.key, frame[-2:]) == (DESCRIBE_CREDENTIALS, NO_USERS):
        yield "with null for no users", frame[:-2] + NULL_USERS
    if api.is_flexible(version):
        yield "with an unknown tag in the header", _with_header(frame, tags=(UNKNOWN_TAG,))
        if frame.endswith(b"\0"):
            yield "with an unknown tag in the body", with_size(frame[4:-1] + TAG_SECTION)


def _with_header(frame: bytes, **changes: Any) -> bytes:
    header, start = decode_request_header(frame[4:])
    return with_size(encode_request_header(replace(header, **changes)) + frame[4 + start :])


def _in_next_version(case: Case) -> bytes:
    """Return the same request in the next version; empty if that cannot carry it."""
    try:
        _, message = read_request(case.frames[0][4:])
        return encode_request(message, case.version + 1, NUMBER, CLIENT_ID)
    except WireError:
        return b""


class Relations:
    """Compares responses over one connection, which is kept for as long as they arrive in order; a context manager."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def broken(self, case: Case, last: int, *, pause_s: float = 0.0) -> tuple[Failure, list[Case]] | None:
        """Return how the response to a request differs from that to an equivalent one, and both requests.

        One request alone is returned if the connection is closed on it. Raises OSError if the target accepts none.
        """
        first = self._answer(case)
        if first == CLOSED and self._answer(case) == CLOSED:
            return _failure(CLOSES, case), [case]
        for _, other in equivalents(case, last) if first not in (CLOSED, SILENT) else ():
            failure = self._compared(case, first, other, pause_s=pause_s)
            if failure is not None:
                return failure, [case, other]
        return None

    def compare(self, cases: list[Case]) -> Failure | None:
        """Return the failure of one request, or of two of which the second is equivalent to the first."""
        first = self._answer(cases[0])
        if len(cases) == 1:
            return _failure(CLOSES, cases[0]) if first == CLOSED else None
        if len(cases) > 2 or not is_equivalent(*cases):
            return None
        return self._compared(cases[0], first, cases[1], pause_s=PAUSE_S)

    def _compared(self, case: Case, first: bytes, other: Case, *, pause_s: float) -> Failure | None:
        """Compare two responses. The original request is sent again: its own response may have changed meanwhile."""
        second = self._answer(other, pause_s)
        if other.version == case.version:
            what = "" if _same_bytes(first, second) else f"{_description(second)} instead of {_description(first)}"
        else:
            what = _version_difference(APIS[case.key], case.version, first, second)
        if not what or self._answer(case) != first:
            return None
        return _failure(f"{_difference(case, other)}: {what}" if other.version == case.version else what, case)

    def _answer(self, case: Case, pause_s: float = 0.0) -> bytes:
        """Return the response without its size field, or CLOSED or SILENT."""
        connection, self._connection = self._connection or connect(self._address), None
        try:
            for number, segment in enumerate(case.segments()):
                if number and pause_s:
                    time.sleep(pause_s)
                connection.send_bytes(segment)
            answer = connection.receive_frame(ANSWER_S)
        except (ConnectionClosedError, ReplyTimeoutError, FrameSizeError) as error:
            connection.close()
            return CLOSED if isinstance(error, ConnectionClosedError) else SILENT
        self._connection = connection
        return answer


def is_equivalent(one: Case, other: Case) -> bool:
    """Return whether the second is one of the requests that must have the response of the first."""
    if other.frames == one.frames:
        return bool(other.cuts)
    if len(one.frames) != 1 or one.key not in READS:
        return False
    try:
        read_request(one.frames[0][4:])
    except WireError:
        return False
    return any(other.frames == each.frames for _, each in equivalents(one, one.version + 1))


def _difference(one: Case, other: Case) -> str:
    return next((what for what, each in equivalents(one, one.version) if (each.frames, each.cuts) == (
        other.frames, other.cuts)), "in other segments")  # fmt: skip


def _failure(what: str, case: Case) -> Failure:
    return Failure(Oracle.RELATION, f"{APIS[case.key].name} v{case.version}: {what}")


def _version_difference(api: Api, version: int, first: bytes, second: bytes) -> str:
    """Return how the response in the next version differs; empty if it does not."""
    if (second == CLOSED) != (first == CLOSED):
        return f"closed in version {version + (first != CLOSED)}, answered in {version + (first == CLOSED)}"
    return "" if {first, second} & {CLOSED, SILENT} else difference(api, version, first, second) or ""


def _same_bytes(one: bytes, other: bytes) -> bool:
    """Compare responses as sets of bytes: brokers return topics in the order of a hash table."""
    return sorted(one) == sorted(other)


def _description(answer: bytes) -> str:
    if answer in (CLOSED, SILENT):
        return answer.decode()
    return f"{len(answer)} bytes {answer[:48].hex()}"

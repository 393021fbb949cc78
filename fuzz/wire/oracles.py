"""What a broker must still do, whatever it is sent: answer or close in time, answer soundly, and live on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from highwater.fuzz.wire.allowed_errors import ALLOWED
from highwater.reference.wire.codec import decode_prefix
from highwater.reference.wire.errors import DecodeError, ErrorCode, InvalidStringError
from highwater.reference.wire.framing import RequestHeader, decode_request_header, decode_response
from highwater.reference.wire.registry import APIS, api_of_key
from highwater.reference.wire.schema import ArrayOf, Layout, StructOf, derived, message_layout

PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP, API_VERSIONS = 0, 1, 11, 14, 18
PARKS: Final = frozenset({JOIN_GROUP, SYNC_GROUP})
"""May wait for other members."""
MAY_WAIT: Final = PARKS | {PRODUCE, FETCH}
KNOWN_CODES: Final = frozenset(int(code) for code in ErrorCode)
CORRELATION_END: Final = 12
PARKED_S: Final = 0.2
LONG_WAIT_MS: Final = 1_000
REPLICA_ID_BYTES, NO_REPLICA_ID_SINCE = 4, 15
"""Of a Fetch; since that version it is tagged (KIP-903)."""
DEADLINE_S: Final = 5.0
"""Of an answer that waits for nothing, or of the end of a connection that cannot go on."""


class Oracle(StrEnum):
    """What was broken."""

    ALIVE = "alive"
    STACK = "stack"
    DEADLINE = "deadline"
    DECODE = "decode"
    CORRELATION = "correlation"
    ERROR_CODE = "error-code"
    MEMORY = "memory"
    DESCRIPTORS = "descriptors"
    INVARIANT = "invariant"
    RELATION = "relation"
    AGREEMENT = "agreement"


@dataclass(frozen=True, slots=True)
class Broken:
    """An oracle that does not hold, and how that shows."""

    oracle: Oracle
    message: str


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for an answer; whether silence is legal; whether the connection stays blocked meanwhile."""

    wait_s: float
    silent_ok: bool = False
    blocks: bool = True


def patience(frame: bytes, deadline_s: float) -> Patience:
    """As the request says, if it can be read at all: acks 0, parked groups and long polls may be silent.

    A broker that is less strict than we are may have read acks 0, or a group to wait for, where we read nothing.
    """
    try:
        header, body = read_request(frame[4:])
    except InvalidStringError:
        return Patience(deadline_s, silent_ok=asked(frame)[0] in MAY_WAIT)
    except DecodeError:
        key = asked(frame)[0]
        if key == FETCH and _polls_long(frame[4:]):
            return Patience(PARKED_S, silent_ok=True)
        return Patience(deadline_s, silent_ok=key == PRODUCE or (key in MAY_WAIT and _names_no_client(frame)))
    if header.api_key == PRODUCE and body.acks == 0:
        return Patience(0.02, silent_ok=True, blocks=False)
    if header.api_key in PARKS or (header.api_key == FETCH and body.max_wait_ms > LONG_WAIT_MS):
        return Patience(PARKED_S, silent_ok=True)
    if max(getattr(body, "timeout_ms", 0), getattr(body, "timeout", 0)) > LONG_WAIT_MS:
        return Patience(PARKED_S, silent_ok=True)
    return Patience(deadline_s)


def _names_no_client(frame: bytes) -> bool:
    """By a length below 0: Apache Kafka takes any such length for null, and reads on."""
    return frame[CORRELATION_END : CORRELATION_END + 1] >= b"\x80"


def _polls_long(request: bytes) -> bool:
    """As far as a Fetch can be read that breaks off behind its max wait: who reads on may wait for so long."""
    try:
        header, position = decode_request_header(request)
    except DecodeError:
        return False
    position += REPLICA_ID_BYTES if header.api_version < NO_REPLICA_ID_SINCE else 0
    return int.from_bytes(request[position : position + 4], "big", signed=True) > LONG_WAIT_MS


def read_request(frame: bytes) -> tuple[RequestHeader, Any]:
    """As a broker reads it that passes over bytes behind the request, as Apache Kafka does."""
    header, position = decode_request_header(frame)
    body, _ = decode_prefix(api_of_key(header.api_key).request, header.api_version, frame, position)
    return header, body


def judge(frame: bytes, answer: bytes) -> tuple[Broken | None, tuple[int, ...]]:
    """The answer names its request, decodes strictly in the version asked, and its error codes belong to its API.

    Also returns the error codes that it carries.
    """
    if len(frame) >= CORRELATION_END and frame[8:12] != answer[:4]:
        return Broken(Oracle.CORRELATION, f"correlation id {answer[:4].hex()} for {frame[8:12].hex()}"), ()
    key, version = asked(frame)
    api = APIS.get(key)
    if api is None:
        return Broken(Oracle.DECODE, f"answered the unknown key {key}"), ()
    if key == API_VERSIONS and not api.min_version <= version <= api.max_version:
        version = 0  # and so the client learns what to ask (KIP-511)
    try:
        _, body = decode_response(api, version, answer)
    except DecodeError as error:
        return Broken(Oracle.DECODE, f"{api.name} v{version}: {error}"), ()
    if key == PRODUCE and _wants_none(frame):
        return Broken(Oracle.CORRELATION, f"{api.name} v{version}: an answer to acks 0, which wants none"), ()
    if getattr(body, "throttle_time_ms", 0) < 0:
        return Broken(Oracle.INVARIANT, f"{api.name} v{version}: throttled for {body.throttle_time_ms} ms"), ()
    codes = tuple(sorted(set(_codes(message_layout(api.response, version))(body))))
    strange = [code for code in codes if code not in ALLOWED[key]]
    if strange:
        return Broken(Oracle.ERROR_CODE, f"{api.name} v{version}: {' '.join(map(code_name, strange))}"), codes
    return None, codes


def _wants_none(frame: bytes) -> bool:
    try:
        return bool(read_request(frame[4:])[1].acks == 0)
    except DecodeError:
        return False


def asked(frame: bytes) -> tuple[int, int]:
    """Key and version in a frame, sound or not."""
    return int.from_bytes(frame[4:6], "big", signed=True), int.from_bytes(frame[6:8], "big", signed=True)


def code_name(code: int) -> str:
    return f"{code} {ErrorCode(code).name}" if code in KNOWN_CODES else f"{code}, which is no error code"


@derived
def _codes(layout: Layout) -> Callable[[Any], Iterator[int]]:
    """All error codes in a message of that layout."""
    own = [field.name for field in (*layout.in_line, *layout.tagged) if field.name == "error_code"]
    nested: list[tuple[str, bool, Callable[[Any], Iterator[int]]]] = []
    for field in (*layout.in_line, *layout.tagged):
        is_array = isinstance(field.type, ArrayOf)
        element = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if isinstance(element, StructOf) and _has_codes(inner := layout.of(element.struct)):
            nested.append((field.name, is_array, _codes(inner)))

    def codes(message: Any) -> Iterator[int]:
        for name in own:
            yield getattr(message, name)
        for name, is_array, inside in nested:
            value = getattr(message, name)
            for each in value or () if is_array else (value,) if value is not None else ():
                yield from inside(each)

    return codes


@derived
def _has_codes(layout: Layout) -> bool:
    for field in (*layout.in_line, *layout.tagged):
        element = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if field.name == "error_code" or (isinstance(element, StructOf) and _has_codes(layout.of(element.struct))):
            return True
    return False

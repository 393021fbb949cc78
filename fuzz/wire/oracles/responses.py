"""Oracles: what a broker must do for any input. It answers or closes in time, responds correctly, and stays alive."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from highwater.fuzz.wire.generate.cases import is_whole
from highwater.fuzz.wire.oracles.allowed_errors import is_allowed
from highwater.fuzz.wire.oracles.malformed import Flaw, must_be_refused
from highwater.fuzz.wire.oracles.results import RESULTS, missing_results
from highwater.fuzz.wire.oracles.sizes import excess
from highwater.reference.wire.codec import decode_prefix
from highwater.reference.wire.errors import DecodeError, ErrorCode, InvalidStringError
from highwater.reference.wire.framing import RequestHeader, decode_request_header, decode_response
from highwater.reference.wire.registry import APIS, Api, api_of_key
from highwater.reference.wire.schema import ArrayOf, Field, Layout, StructOf, derived, message_layout

PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP, API_VERSIONS = 0, 1, 11, 14, 18
PARKS: Final = frozenset({JOIN_GROUP, SYNC_GROUP})
"""APIs whose response may wait for other members."""
MAY_WAIT: Final = PARKS | {PRODUCE, FETCH}
KNOWN_CODES: Final = frozenset(int(code) for code in ErrorCode)
CORRELATION_END: Final = 12
FIRST_FIELD: Final = slice(4, 6)
UNSUPPORTED: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2)
"""The first field of an ApiVersions response to an unknown version."""
PARKED_S: Final = 0.2
LONG_WAIT_MS: Final = 1_000
REPLICA_ID_BYTES, NO_REPLICA_ID_SINCE = 4, 15
"""Of a Fetch; since that version the replica id is a tagged field (KIP-903)."""
DEADLINE_S: Final = 5.0
"""For a response that need not wait, or for closing a connection that cannot continue."""


class Oracle(StrEnum):
    """Which expectation failed."""

    ALIVE = "alive"
    STACK = "stack"
    DEADLINE = "deadline"
    DECODE = "decode"
    CORRELATION = "correlation"
    ERROR_CODE = "error-code"
    REFUSE = "refuse"
    MEMORY = "memory"
    DESCRIPTORS = "descriptors"
    LEAK = "leak"
    STALL = "stall"
    STATE = "state"
    INVARIANT = "invariant"
    RELATION = "relation"
    AGREEMENT = "agreement"


@dataclass(frozen=True, slots=True)
class Failure:
    """An oracle that failed, and the observation that shows it."""

    oracle: Oracle
    message: str


@dataclass(frozen=True, slots=True)
class ReplyTimeout:
    """How long to wait for a response, whether none is legal, and whether the connection is blocked meanwhile."""

    wait_s: float
    silent_ok: bool = False
    blocks: bool = True


def reply_timeout(frame: bytes, deadline_s: float) -> ReplyTimeout:
    """Return the timeout for a request: acks=0, pending JoinGroups and SyncGroups, and long polls may stay silent.

    If the request does not decode, a less strict broker may still read acks=0 or a group to wait for, so those APIs
    may be silent as well.
    """
    try:
        header, body = read_request(frame[4:])
    except InvalidStringError:
        return ReplyTimeout(deadline_s, silent_ok=key_and_version(frame)[0] in MAY_WAIT)
    except DecodeError:
        key = key_and_version(frame)[0]
        if key == FETCH and _polls_long(frame[4:]):
            return ReplyTimeout(PARKED_S, silent_ok=True)
        return ReplyTimeout(deadline_s, silent_ok=key == PRODUCE or (key in MAY_WAIT and _has_null_client_id(frame)))
    if header.api_key == PRODUCE and body.acks == 0:
        return ReplyTimeout(0.02, silent_ok=True, blocks=False)
    if header.api_key in PARKS or (header.api_key == FETCH and body.max_wait_ms > LONG_WAIT_MS):
        return ReplyTimeout(PARKED_S, silent_ok=True)
    if max(getattr(body, "timeout_ms", 0), getattr(body, "timeout", 0)) > LONG_WAIT_MS:
        return ReplyTimeout(PARKED_S, silent_ok=True)
    return ReplyTimeout(deadline_s)


def _has_null_client_id(frame: bytes) -> bool:
    """Return True for a negative length of the client id: Apache Kafka reads any negative length as null."""
    return frame[CORRELATION_END : CORRELATION_END + 1] >= b"\x80"


def _polls_long(request: bytes) -> bool:
    """Return True if the max wait of a Fetch that is malformed after that field is long; the broker may wait then."""
    try:
        header, position = decode_request_header(request)
    except DecodeError:
        return False
    position += REPLICA_ID_BYTES if header.api_version < NO_REPLICA_ID_SINCE else 0
    return int.from_bytes(request[position : position + 4], "big", signed=True) > LONG_WAIT_MS


def read_request(frame: bytes) -> tuple[RequestHeader, Any]:
    """Decode a request and ignore trailing bytes, as Apache Kafka does."""
    header, position = decode_request_header(frame)
    body, _ = decode_prefix(api_of_key(header.api_key).request, header.api_version, frame, position)
    return header, body


def judge(frame: bytes, answer: bytes) -> tuple[Failure | None, tuple[int, ...]]:
    """Check a response: correlation id, strict decoding, error codes of that API, and that a malformed request has one.

    Also returns the distinct error codes in the response, sorted.
    """
    if len(frame) >= CORRELATION_END and frame[8:12] != answer[:4]:
        return Failure(Oracle.CORRELATION, f"correlation id {answer[:4].hex()} for {frame[8:12].hex()}"), ()
    key, version = key_and_version(frame)
    api = APIS.get(key)
    if api is None:
        return Failure(Oracle.DECODE, f"answered the unknown key {key}"), ()
    is_unknown = answer[FIRST_FIELD] == UNSUPPORTED or not api.min_version <= version <= api.max_version
    if key == API_VERSIONS and is_unknown:
        version = 0  # the broker answers in version 0, with those that it has: perhaps fewer than there are (KIP-511)
    try:
        _, body = decode_response(api, version, answer)
    except DecodeError as error:
        return Failure(Oracle.DECODE, f"{api.name} v{version}: {error}"), ()
    if key == PRODUCE and _expects_no_response(frame):
        return Failure(Oracle.CORRELATION, f"{api.name} v{version}: a response to acks 0, which expects none"), ()
    if getattr(body, "throttle_time_ms", 0) < 0:
        return Failure(Oracle.INVARIANT, f"{api.name} v{version}: throttled for {body.throttle_time_ms} ms"), ()
    layout = message_layout(api.response, version)
    codes = tuple(sorted(set(_codes(layout)(body))))
    strange = [code for code in codes if not is_allowed(key, version, code)]
    if strange:
        return Failure(Oracle.ERROR_CODE, f"{api.name} v{version}: {' '.join(map(code_name, strange))}"), codes
    if key in RESULTS and (missing := _missing(frame, body)):
        return Failure(Oracle.INVARIANT, f"{api.name} v{version}: {missing}"), codes
    if key == FETCH and (beyond := _excess(frame, body)):
        return Failure(Oracle.INVARIANT, f"{api.name} v{version}: {beyond}"), codes
    if any(codes):
        return None, codes
    is_empty = _has_inner_codes(layout) and next(_codes(layout, with_own=False)(body), None) is None
    return accepted_flaw(api.name, version, frame, is_empty=is_empty), codes


def _missing(frame: bytes, answer: Any) -> str:
    """Return which results a response lacks or adds; empty if the request does not decode."""
    try:
        header, body = read_request(frame[4:])
    except DecodeError:
        return ""
    return missing_results(header.api_key, header.api_version, body, answer)


def _excess(frame: bytes, answer: Any) -> str:
    """Return which limit the response to a Fetch exceeds; empty if the request does not decode."""
    try:
        header, body = read_request(frame[4:])
    except DecodeError:
        return ""
    return excess(header.api_version, body, answer)


def accepted_flaw(api: str, version: int, frame: bytes, *, is_empty: bool) -> Failure | None:
    """Return the failure if a malformed request has a response without an error code.

    `is_empty`: the response has no element, so that a wrong value had nothing to apply to; Kafka ignores it then.
    """
    malformed = must_be_refused(frame) if is_whole(frame) else None
    if malformed is None:
        return None
    if malformed.flaw is not Flaw.ENUMERATION:
        return Failure(Oracle.REFUSE, f"{api} v{version}: accepted {malformed.flaw} in {malformed.field}")
    accepted = Failure(Oracle.REFUSE, f"{api} v{version}: accepted {malformed.flaw} of {malformed.field}")
    return None if is_empty else accepted


def _expects_no_response(frame: bytes) -> bool:
    try:
        return bool(read_request(frame[4:])[1].acks == 0)
    except DecodeError:
        return False


def key_and_version(frame: bytes) -> tuple[int, int]:
    """Return the API key and version in a frame, valid or not."""
    return int.from_bytes(frame[4:6], "big", signed=True), int.from_bytes(frame[6:8], "big", signed=True)


def code_name(code: int) -> str:
    return f"{code} {ErrorCode(code).name}" if code in KNOWN_CODES else f"{code}, which is no error code"


def error_codes(api: Api, version: int, response: Any) -> set[int]:
    """Return all error codes in a response of that version."""
    return set(_codes(message_layout(api.response, version))(response))


@derived
def _codes(layout: Layout, *, with_own: bool = True) -> Callable[[Any], Iterator[int]]:
    """Return a function that yields all error codes in a message of that layout; `with_own`: also its own."""
    own = [field.name for field in (*layout.in_line, *layout.tagged) if with_own and field.name == "error_code"]
    nested = [
        (field.name, isinstance(field.type, ArrayOf), _codes(inner))
        for field in (*layout.in_line, *layout.tagged)
        if (inner := _inner_with_codes(layout, field)) is not None
    ]

    def codes(message: Any) -> Iterator[int]:
        for name in own:
            yield getattr(message, name)
        for name, is_array, inside in nested:
            value = getattr(message, name)
            for element in value or () if is_array else (value,) if value is not None else ():
                yield from inside(element)

    return codes


@derived
def _has_codes(layout: Layout) -> bool:
    return any(field.name == "error_code" for field in (*layout.in_line, *layout.tagged)) or _has_inner_codes(layout)


@derived
def _has_inner_codes(layout: Layout) -> bool:
    return any(_inner_with_codes(layout, field) is not None for field in (*layout.in_line, *layout.tagged))


def _inner_with_codes(layout: Layout, field: Field) -> Layout | None:
    """Return the layout of a field's structs if they have error codes."""
    element = field.type.element if isinstance(field.type, ArrayOf) else field.type
    inner = layout.of(element.struct) if isinstance(element, StructOf) else None
    return inner if inner is not None and _has_codes(inner) else None

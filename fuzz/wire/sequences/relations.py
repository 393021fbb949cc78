"""Equivalent requests must have the same response: with an unknown tag, in other segments, in the next version,
or with null for an empty list.

Only for requests that change nothing. The original request is sent before and after the equivalent one: if its own
response has changed meanwhile, a difference proves nothing.
"""

import struct
import time
from dataclasses import dataclass, replace
from typing import Any, Final

from highwater.fuzz.wire.generate.cases import with_size
from highwater.fuzz.wire.generate.requests import CLIENT_ID, generate
from highwater.fuzz.wire.oracles.responses import Oracle
from highwater.fuzz.wire.sequences.context import SequenceAbandoned, SequenceContext
from highwater.fuzz.wire.sequences.versions import difference
from highwater.reference.client.connection import Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import EncodeError, ErrorCode, FrameSizeError
from highwater.reference.wire.framing import decode_request_header, encode_request, encode_request_header
from highwater.reference.wire.messages.metadata import ApiVersionsRequest
from highwater.reference.wire.registry import APIS, Api

READS: Final = frozenset({2, 3, 9, 10, 15, 16, 18, 23, 32, 35, 46, 50, 60, 65, 66, 69, 75})
UNKNOWN_TAG: Final = (99, b"x")
TAG_SECTION: Final = b"\x01\x63\x01x"
NUMBER: Final = 7
CLIENT_IDS: Final = (("no", None), ("an empty", ""))
DESCRIBE_CREDENTIALS: Final = 50
NO_USERS, NULL_USERS = b"\x01\x00", b"\x00\x00"
"""Both request all users (DescribeUserScramCredentialsRequest.json)."""
API_VERSIONS: Final = 18
REFUSED_SIZES: Final = (-1, -(2**31), 2**31 - 1, 2**30)
"""socket.request.max.bytes is 100 MiB by default (NetworkReceive, InvalidReceiveException)."""
SIZE_SHARE, VERSIONS_SHARE = 0.1, 0.1
READS_OFTEN: Final = 12
BEYOND: Final = (1, 2, 100)
"""How far an unknown version of ApiVersions is behind the last one."""
UNSUPPORTED: Final = struct.pack(">ih", NUMBER, ErrorCode.UNSUPPORTED_VERSION)
CLOSED, SILENT = b"closed", b"silent"
ANSWER_S: Final = 2.0
PAUSE_S: Final = 0.01
SLOW_SHARE: Final = 0.05
"""Share of requests whose segments are sent slowly, so that even a busy target reads them one by one."""


@dataclass
class RequestSender:
    """Keeps its connection for as long as responses arrive in order."""

    context: SequenceContext
    connection: Connection | None = None

    def exchange(self, *segments: bytes, pause_s: float = 0.0) -> bytes:
        """Return the response without its size field, or CLOSED or SILENT."""
        connection, self.connection = self.connection or self.context.connect(), None
        try:
            for number, segment in enumerate(segments):
                if number and pause_s:
                    time.sleep(pause_s)
                connection.send_bytes(segment)
            answer = connection.receive_frame(ANSWER_S)
        except ConnectionClosedError:
            return CLOSED
        except ReplyTimeoutError:
            return SILENT
        except FrameSizeError as error:
            raise SequenceAbandoned("no answer") from error
        self.connection = connection
        return answer


def run(context: SequenceContext) -> None:
    """Send some requests, each with all its equivalents; and a size that no request may have."""
    sender = RequestSender(context)
    if context.rng.random() < SIZE_SHARE:
        _announce(context, context.rng.choice(REFUSED_SIZES))
    if context.rng.random() < VERSIONS_SHARE:
        _ask_in_unknown_version(context)
    keys = sorted(READS & context.served.keys())
    for _ in context.steps(4, 4):
        api = APIS[context.rng.choice(keys)]
        version = context.rng.randint(*context.served[api.key])
        try:
            message = generate(context.rng, api, version)
            frame = encode_request(message, version, NUMBER, CLIENT_ID)
        except EncodeError:
            continue
        first = sender.exchange(frame)
        if first == SILENT:
            raise SequenceAbandoned("no answer")
        if first == CLOSED:
            raise context.violation("a valid request closes the connection", Oracle.RELATION, api, version)
        pause_s = PAUSE_S if context.rng.random() < SLOW_SHARE else 0.0
        for what, segments in _equivalents(context, api, version, frame):
            other = sender.exchange(*segments, pause_s=pause_s)
            if not _same_bytes(other, first) and sender.exchange(frame) == first:
                raise context.violation(
                    f"{what}: {_description(other)} instead of {_description(first)}", Oracle.RELATION, api, version
                )
        _next_version(sender, api, version, message, first)
    _ask_often(context, sender, keys)


def _ask_often(context: SequenceContext, sender: RequestSender, keys: list[int]) -> None:
    """Send valid requests that only read: an error is an answer, a closed connection is none.

    Apache Kafka closes the connection for none of them (measured with 3,360 of all versions). A close hides what a
    version cannot encode in the response.
    """
    for _ in range(READS_OFTEN):
        api = APIS[context.rng.choice(keys)]
        version = context.rng.randint(*context.served[api.key])
        try:
            frame = encode_request(generate(context.rng, api, version), version, NUMBER, CLIENT_ID)
        except EncodeError:
            continue
        if sender.exchange(frame) == CLOSED and sender.exchange(frame) == CLOSED:
            raise context.violation("a valid request closes the connection", Oracle.RELATION, api, version)


def _announce(context: SequenceContext, size: int) -> None:
    """Announce a frame of that size: the broker must close the connection, not wait for so many bytes."""
    answer = RequestSender(context).exchange(struct.pack(">i", size) + bytes(8))
    if answer == SILENT:
        what = f"waits for a frame of {size:,} bytes"
        raise context.violation(what, Oracle.RELATION, APIS[API_VERSIONS], context.served[API_VERSIONS][0])


def _ask_in_unknown_version(context: SequenceContext) -> None:
    """ApiVersions in a version that the broker lacks has a response in version 0 with what it serves (KIP-511).

    A newer client can only learn that from it.
    """
    first, last = context.served[API_VERSIONS]
    version = min(last, APIS[API_VERSIONS].max_version)
    frame = encode_request(
        ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"), version, NUMBER, CLIENT_ID
    )
    newer = last + context.rng.choice(BEYOND)
    answer = RequestSender(context).exchange(frame[:6] + struct.pack(">h", newer) + frame[8:])
    if not answer.startswith(UNSUPPORTED):
        what = f"version {newer}: {_description(answer)} instead of UNSUPPORTED_VERSION in version 0"
        raise context.violation(what, Oracle.RELATION, APIS[API_VERSIONS], first)


def _equivalents(context: SequenceContext, api: Api, version: int, frame: bytes) -> list[tuple[str, list[bytes]]]:
    place = context.rng.randrange(1, len(frame))
    found = [
        ("in two segments", [frame[:place], frame[place:]]),
        ("byte by byte", [frame[n : n + 1] for n in range(6)]),
    ]
    found[1][1].append(frame[6:])
    found += [(f"with {exchange} client id", [_named(frame, client_id)]) for exchange, client_id in CLIENT_IDS]
    if (api.key, frame[-2:]) == (DESCRIBE_CREDENTIALS, NO_USERS):
        found.append(("with null for no users", [frame[:-2] + NULL_USERS]))
    if api.is_flexible(version):
        found.append(("with an unknown tag in the header", [_with_header_tag(frame)]))
        if frame.endswith(b"\0"):
            found.append(("with an unknown tag in the body", [with_size(frame[4:-1] + TAG_SECTION)]))
    return found


def _with_header_tag(frame: bytes) -> bytes:
    return _with_header(frame, tags=(UNKNOWN_TAG,))


def _named(frame: bytes, client_id: str | None) -> bytes:
    return _with_header(frame, client_id=client_id)


def _with_header(frame: bytes, **changes: Any) -> bytes:
    header, start = decode_request_header(frame[4:])
    return with_size(encode_request_header(replace(header, **changes)) + frame[4 + start :])


def _next_version(sender: RequestSender, api: Api, version: int, message: object, first: bytes) -> None:
    """Send the same message in the next version, if that can carry it; both must be answered alike."""
    if version >= sender.context.served[api.key][1]:
        return
    try:
        frame = encode_request(message, version + 1, NUMBER, CLIENT_ID)
    except EncodeError:
        return
    second = sender.exchange(frame)
    before = encode_request(message, version, NUMBER, CLIENT_ID)
    what = _version_difference(api, version, first, second)
    if what is not None and sender.exchange(before) == first:
        raise sender.context.violation(what, Oracle.RELATION, api, version)


def _version_difference(api: Api, version: int, first: bytes, second: bytes) -> str | None:
    """Return how the response in the next version differs, or None."""
    if (second == CLOSED) != (first == CLOSED):
        return f"closed in version {version + (first != CLOSED)}, answered in {version + (first == CLOSED)}"
    return None if {first, second} & {CLOSED, SILENT} else difference(api, version, first, second)


def _same_bytes(one: bytes, other: bytes) -> bool:
    """Compare responses as sets of bytes: brokers return topics in the order of a hash table."""
    return sorted(one) == sorted(other)


def _description(answer: bytes) -> str:
    if answer in (CLOSED, SILENT):
        return answer.decode()
    return f"{len(answer)} bytes {answer[:48].hex()}"

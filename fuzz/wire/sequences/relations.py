"""Equivalent requests must have the same response: with an unknown tag, in other segments, in the next version,
or with null for an empty list.

Only for requests that change nothing. The original request is sent before and after the equivalent one: if its own
response has changed meanwhile, a difference proves nothing.
"""

import random
import struct
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Self

from highwater.conformance.client.draws import Drawn
from highwater.fuzz.wire.connection import connect
from highwater.fuzz.wire.generate.cases import with_size
from highwater.fuzz.wire.generate.requests import CLIENT_ID, generate
from highwater.fuzz.wire.oracles.responses import Failure, Oracle
from highwater.fuzz.wire.sequences.versions import difference
from highwater.fuzz.wire.sequences.violation import SequenceAbandoned, SequenceViolation
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
REQUESTS, READS_OFTEN = 4, 12
BEYOND: Final = (1, 2, 100)
"""How far an unknown version of ApiVersions is behind the last one."""
UNSUPPORTED: Final = struct.pack(">ih", NUMBER, ErrorCode.UNSUPPORTED_VERSION)
CLOSED, SILENT = b"closed", b"silent"
ANSWER_S: Final = 2.0
PAUSE_S: Final = 0.01
SLOW_SHARE: Final = 0.05
"""Share of requests whose segments are sent slowly, so that even a busy target reads them one by one."""


class Relations:
    """One run of the sequence; a context manager that closes its connections.

    A connection is kept for as long as responses arrive in order.
    """

    def __init__(self, address: str, served: Mapping[int, tuple[int, int]], draws: Drawn) -> None:
        self._address, self._served, self._draws = address, served, draws
        self._chance = draws.generator(0)
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def exchange(self, *segments: bytes, pause_s: float = 0.0, fresh: bool = False) -> bytes:
        """Return the response without its size field, or CLOSED or SILENT; `fresh` opens another connection."""
        if fresh and self._connection is not None:
            self._connection.close()
            self._connection = None
        connection, self._connection = self._connection or connect(self._address), None
        try:
            for number, segment in enumerate(segments):
                if number and pause_s:
                    time.sleep(pause_s)
                connection.send_bytes(segment)
            answer = connection.receive_frame(ANSWER_S)
        except (ConnectionClosedError, ReplyTimeoutError, FrameSizeError) as error:
            connection.close()
            if isinstance(error, FrameSizeError):
                raise SequenceAbandoned("no answer") from error
            return CLOSED if isinstance(error, ConnectionClosedError) else SILENT
        self._connection = connection
        return answer

    def run(self) -> None:
        """Send some requests, each with all its equivalents; and a size that no request may have."""
        if self._chance.random() < SIZE_SHARE:
            self._announce(self._chance.choice(REFUSED_SIZES))
        if self._chance.random() < VERSIONS_SHARE:
            self._ask_in_unknown_version()
        for _ in self._draws.steps(REQUESTS, self._chance):
            if (drawn := self._draw()) is not None:
                self._compare(*drawn)
        self._ask_often()

    def _draw(self) -> tuple[Api, int, Any, bytes] | None:
        """Return a valid request that only reads; None if its version cannot carry what was drawn."""
        api = APIS[self._chance.choice(sorted(READS & self._served.keys()))]
        version = self._chance.randint(*self._served[api.key])
        try:
            message = generate(self._chance, api, version)
            return api, version, message, encode_request(message, version, NUMBER, CLIENT_ID)
        except EncodeError:
            return None

    def _compare(self, api: Api, version: int, message: Any, frame: bytes) -> None:
        first = self.exchange(frame)
        if first == SILENT:
            raise SequenceAbandoned("no answer")
        if first == CLOSED:
            raise _violation("a valid request closes the connection", api, version)
        pause_s = PAUSE_S if self._chance.random() < SLOW_SHARE else 0.0
        for what, segments in _equivalents(self._chance, api, version, frame):
            other = self.exchange(*segments, pause_s=pause_s)
            if not _same_bytes(other, first) and self.exchange(frame) == first:
                raise _violation(f"{what}: {_description(other)} instead of {_description(first)}", api, version)
        self._compare_next_version(api, version, message, first)

    def _compare_next_version(self, api: Api, version: int, message: object, first: bytes) -> None:
        """Send the same message in the next version, if that can carry it; both must be answered alike."""
        if version >= self._served[api.key][1]:
            return
        try:
            frame = encode_request(message, version + 1, NUMBER, CLIENT_ID)
        except EncodeError:
            return
        second = self.exchange(frame)
        before = encode_request(message, version, NUMBER, CLIENT_ID)
        what = _version_difference(api, version, first, second)
        if what is not None and self.exchange(before) == first:
            raise _violation(what, api, version)

    def _ask_often(self) -> None:
        """Send valid requests that only read: an error is an answer, a closed connection is none.

        Apache Kafka closes the connection for none of them (measured with 3,360 of all versions). A close hides what a
        version cannot encode in the response.
        """
        for api, version, _, frame in filter(None, (self._draw() for _ in range(READS_OFTEN))):
            if self.exchange(frame) == CLOSED and self.exchange(frame) == CLOSED:
                raise _violation("a valid request closes the connection", api, version)

    def _announce(self, size: int) -> None:
        """Announce a frame of that size: the broker must close the connection, not wait for so many bytes."""
        if self.exchange(struct.pack(">i", size) + bytes(8), fresh=True) == SILENT:
            what = f"waits for a frame of {size:,} bytes"
            raise _violation(what, APIS[API_VERSIONS], self._served[API_VERSIONS][0])

    def _ask_in_unknown_version(self) -> None:
        """ApiVersions in a version that the broker lacks has a response in version 0 with what it serves (KIP-511).

        A newer client can only learn that from it.
        """
        first, last = self._served[API_VERSIONS]
        version = min(last, APIS[API_VERSIONS].max_version)
        frame = encode_request(
            ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"), version, NUMBER, CLIENT_ID
        )
        newer = last + self._chance.choice(BEYOND)
        answer = self.exchange(frame[:6] + struct.pack(">h", newer) + frame[8:], fresh=True)
        if not answer.startswith(UNSUPPORTED):
            what = f"version {newer}: {_description(answer)} instead of UNSUPPORTED_VERSION in version 0"
            raise _violation(what, APIS[API_VERSIONS], first)


def _violation(message: str, api: Api, version: int) -> SequenceViolation:
    return SequenceViolation(Failure(Oracle.RELATION, message), api, version)


def _equivalents(chance: random.Random, api: Api, version: int, frame: bytes) -> list[tuple[str, list[bytes]]]:
    place = chance.randrange(1, len(frame))
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

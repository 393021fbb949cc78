"""What a broker must still do, whatever it is sent: answer or close in time, answer soundly, and live on."""

import socket
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reference.wire.codec import decode_prefix
from reference.wire.errors import DecodeError, ErrorCode
from reference.wire.framing import (
    FrameReader,
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
)
from reference.wire.messages.api_versions import ApiVersionsRequest
from reference.wire.registry import APIS, api_of_key

FRAME_MAX = 128 * 1024 * 1024
ALIVE_TIMEOUT_S = 3.0
GRACE_S = 2.0
PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP, API_VERSIONS = 0, 1, 11, 14, 18
PARKS = {JOIN_GROUP, SYNC_GROUP}  # may wait for other members


class Oracle(StrEnum):
    """What was broken."""

    ALIVE = "alive"
    DEADLINE = "deadline"
    DECODE = "decode"
    CORRELATION = "correlation"
    ERROR_CODE = "error-code"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`broken` is None when all held."""

    answered: bool
    broken: Oracle | None = None
    message: str = ""


class Line:
    """One connection to the target, made anew when it was closed."""

    def __init__(self, address: str) -> None:
        self._socket: socket.socket | None = None
        self._reader = FrameReader(FRAME_MAX)
        self.move_to(address)

    def move_to(self, address: str) -> None:
        """The target listens elsewhere now."""
        self.close()
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))

    def open(self) -> socket.socket:
        """ConnectionError when the target takes no connections."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=ALIVE_TIMEOUT_S)
            self._reader = FrameReader(FRAME_MAX)
        return self._socket

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def exchange(self, frame: bytes, wait_s: float) -> list[bytes] | None:
        """Send; the frames of the answer, empty when the target closed, None when it was silent."""
        connection = self.open()
        try:
            connection.settimeout(wait_s)
            connection.sendall(frame)
            return self._receive(connection, wait_s)
        except TimeoutError:
            return None
        except OSError:
            self.close()
            return []

    def _receive(self, connection: socket.socket, wait_s: float) -> list[bytes]:
        deadline = time.monotonic() + wait_s
        while True:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            data = connection.recv(1 << 16)
            if not data:
                self.close()
                return []
            frames = self._reader.feed(data)
            if frames:
                return frames

    def finish(self) -> list[bytes] | None:
        """Say that nothing more will come: whoever waits for the rest of a frame must close now."""
        if self._socket is None:
            return []
        try:
            self._socket.shutdown(socket.SHUT_WR)
            return self._receive(self._socket, GRACE_S)
        except TimeoutError:
            return None
        except OSError:
            return []
        finally:
            self.close()


def is_alive(address: str) -> str | None:
    """None if the target answers ApiVersions on a fresh connection, otherwise what it did instead."""
    line = Line(address)
    try:
        frames = line.exchange(encode_request(ApiVersionsRequest(), 0, 1, "highwater-alive"), ALIVE_TIMEOUT_S)
    except OSError as error:
        return f"refuses connections ({error})"
    finally:
        line.close()
    if frames is None:
        return f"is silent for {ALIVE_TIMEOUT_S:.0f} s"
    return None if frames else "closes the connection at once"


def run_case(line: Line, frame: bytes) -> Outcome:
    """Send one frame and judge what comes back."""
    try:
        request = _read(frame[4:]) if _whole(frame) else None
    except DecodeError:
        request = None
    silent_ok, wait_s = _patience(request)
    answer = line.exchange(frame, wait_s)
    if answer is None and not _whole(frame):
        answer = line.finish()
    if answer is None:
        line.close()
        if silent_ok:
            return Outcome(answered=False)
        return Outcome(False, Oracle.DEADLINE, f"neither answered nor closed within {wait_s:.1f} s")
    if not answer:
        return Outcome(answered=False)
    return _judge(frame, answer[0])


def _read(frame: bytes) -> tuple[RequestHeader, Any]:
    """As a broker reads it that passes over bytes behind the request, as Apache Kafka does."""
    header, position = decode_request_header(frame)
    body, _ = decode_prefix(api_of_key(header.api_key).request, header.api_version, frame, position)
    return header, body


def _whole(frame: bytes) -> bool:
    return int.from_bytes(frame[:4], "big", signed=True) == len(frame) - 4


def _patience(request: Any) -> tuple[bool, float]:
    """Is silence legal for this request, and how long may the answer take?"""
    if request is None:
        return False, GRACE_S
    header, body = request
    if header.api_key == PRODUCE and body.acks == 0:
        return True, 0.02
    if header.api_key in PARKS:
        return True, 0.2
    if header.api_key == FETCH and body.max_wait_ms > 1_000:
        return True, 0.2
    if getattr(body, "timeout_ms", 0) > 2_000:
        return True, 0.5
    return False, GRACE_S + 1.0


def _judge(frame: bytes, answer: bytes) -> Outcome:
    """The answer names its request and decodes strictly in the version that was asked."""
    key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (4, 6))
    asked, told = frame[8:12], answer[:4]
    if asked != told:
        return Outcome(True, Oracle.CORRELATION, f"correlation id {told.hex()} for {asked.hex()}")
    api = APIS.get(key)
    if api is None:
        return Outcome(True, Oracle.DECODE, f"answered the unknown key {key}")
    if key == API_VERSIONS and not api.min_version <= version <= api.max_version:
        version = 0
    try:
        _, body = decode_response(api, version, answer)
    except DecodeError as error:
        return Outcome(True, Oracle.DECODE, f"{api.name} v{version}: {error}")
    unknown = _unknown_error(body)
    if unknown is not None:
        return Outcome(True, Oracle.ERROR_CODE, f"{api.name} v{version}: error code {unknown}")
    return Outcome(answered=True)


def _unknown_error(body: Any) -> int | None:
    code = getattr(body, "error_code", 0)
    return code if code not in ErrorCode._value2member_map_ else None

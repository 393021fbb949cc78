"""A connection to the target that waits for each answer: for questions of our own, replays and sequences."""

import socket
import struct
import time
from contextlib import suppress
from typing import Any, Final, Self

from fuzz.wire.generators import CLIENT_ID, HARMFUL
from reference.wire.errors import DecodeError, FrameSizeError, WireError
from reference.wire.framing import FrameReader, decode_response, encode_request
from reference.wire.messages.api_versions import ApiVersionsRequest
from reference.wire.registry import APIS, Api, api_of
from spec.formats.verdict import UsageError

FRAME_MAX: Final = 128 * 1024 * 1024
ALIVE_TIMEOUT_S: Final = 5.0
CHUNK: Final = 1 << 17
SHORTEST_S: Final = 0.001
MEND: Final = "is it a Kafka broker, and running?"


class Closed(Exception):
    """The target hung up."""


class Silent(Exception):
    """No answer in time."""


class Line:
    """OSError when the target takes no connections."""

    def __init__(self, address: str, timeout_s: float = ALIVE_TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        self.timeout_s = timeout_s
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel keeps the time: Python's own time-outs cost a poll for each call.
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout_s))
        self._waits_s = 0.0
        self._reader = FrameReader(FRAME_MAX)
        self._frames: list[bytes] = []
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except BlockingIOError as error:
            raise Silent from error
        except OSError as error:
            raise Closed from error

    def finish(self) -> None:
        """Say that nothing more will come."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def receive(self, wait_s: float | None = None) -> bytes:
        """The next frame. Raises Closed or Silent, and FrameSizeError for what is no frame."""
        left_s = self.timeout_s if wait_s is None else wait_s
        deadline = time.monotonic() + left_s
        while not self._frames:
            try:
                self._wait(left_s)
                data = self.socket.recv(CHUNK)
            except BlockingIOError as error:
                raise Silent from error
            except OSError as error:
                raise Closed from error
            if not data:
                raise Closed
            self._frames += self._reader.feed(data)
            left_s = deadline - time.monotonic()
        return self._frames.pop(0)

    def _wait(self, seconds: float) -> None:
        """So long at most for what comes next."""
        if seconds != self._waits_s:
            self._waits_s = seconds
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds))

    def ask(self, message: Any, version: int) -> int:
        """Send a request and do not wait; its correlation id."""
        self._number += 1
        self.send(encode_request(message, version, self._number, CLIENT_ID))
        return self._number

    def answer(self, api: Api, version: int, wait_s: float | None = None) -> Any:
        """The oldest answer that is due, decoded strictly. Raises DecodeError too."""
        return decode_response(api, version, self.receive(wait_s))[1]

    def call(self, message: Any, version: int) -> Any:
        """One request and its answer."""
        number = self.ask(message, version)
        told, body = decode_response(api_of(type(message)), version, self.receive())
        if told != number:
            raise DecodeError(f"correlation id {told} for {number}")
        return body


def _timeval(seconds: float) -> bytes:
    """As the kernel reads it, where zero would be for ever."""
    return struct.pack("ll", int(max(seconds, SHORTEST_S)), int(max(seconds, SHORTEST_S) % 1 * 1_000_000))


def why_dead(address: str) -> str | None:
    """None if the target answers ApiVersions on a fresh connection, otherwise what it did instead."""
    try:
        with Line(address) as line:
            line.call(ApiVersionsRequest(), 0)
    except Silent:
        return f"is silent for {ALIVE_TIMEOUT_S:.0f} s on a fresh connection"
    except Closed:
        return "closes a fresh connection at once"
    except WireError as error:
        return f"answers ApiVersions with what is none ({error})"
    except OSError as error:
        return f"refuses connections ({error.strerror or error})"
    return None


Served = list[tuple[Api, int, int]]
"""An API with its first and last version."""


def advertised(address: str) -> Served:
    """What the target says it speaks, as far as our table knows it, less what would harm it. UsageError."""
    found = []
    for told in _told(address):
        api = APIS.get(told.api_key)
        if api is not None and told.api_key not in HARMFUL:
            first, last = max(told.min_version, api.min_version), min(told.max_version, api.max_version)
            if first <= last:
                found.append((api, first, last))
    if not found:
        raise UsageError("the target advertises nothing that we know", where=address, mend=MEND)
    return found


def newer_than_ours(address: str) -> set[tuple[int, int]]:
    """Keys and versions that the target speaks and our table does not know: what it answers to them we cannot read."""
    return {
        (told.api_key, version)
        for told in _told(address)
        if told.api_key in APIS
        for version in range(APIS[told.api_key].max_version + 1, told.max_version + 1)
    }


def _told(address: str) -> Any:
    try:
        with Line(address) as line:
            return line.call(ApiVersionsRequest(), 0).api_keys
    except (OSError, Closed, Silent, FrameSizeError) as error:
        what = why_dead(address) or f"does not answer ApiVersions ({error})"
        raise UsageError(f"the target {what}", where=address, mend=MEND) from error
    except WireError as error:
        raise UsageError(f"the target's ApiVersions does not decode ({error})", where=address, mend=MEND) from error

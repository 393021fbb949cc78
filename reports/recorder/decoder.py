"""Decode the frames of one connection: pass requests to their observers, and replies to their requests."""

from dataclasses import dataclass
from typing import Any, Final

from highwater.fuzz.proxy.addresses import ENTRIES
from highwater.reference.wire.codec import decode
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.framing import decode_request_header, decode_response_header, response_header_version
from highwater.reference.wire.registry import Api, api_of_key
from highwater.reports.recorder.exchanges import Finish, Link
from highwater.reports.recorder.observer import Observer

FRAME_LIMIT: Final = 256 << 20  # bytes of one request or reply
IN_FLIGHT: Final = 10_000  # requests of one connection without a reply
REWRITTEN: Final = {*ENTRIES, "ApiVersions"}


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose reply must be observed or rewritten."""

    api: Api
    version: int
    finish: Finish | None


@dataclass(frozen=True, slots=True)
class Reply:
    """A decoded reply, and the request that it answers."""

    request: Request
    correlation_id: int
    message: Any


class FrameDecoder:
    """Decodes the two directions of a connection; frames are without their sizes."""

    def __init__(self, link: Link, observer: Observer) -> None:
        self._link, self._observer = link, observer
        self._pending: dict[int, Request] = {}

    def request(self, frame: bytes) -> Finish | None:
        """Register a request for its reply. Returns a callback to run once a request without reply is sent.

        Raises ConnectionError if more than `IN_FLIGHT` requests have no reply.
        """
        try:
            header, position = decode_request_header(frame)
            api = api_of_key(header.api_key)
        except DecodeError:  # SASL tokens without a Kafka header, or an unknown API
            return None
        finish = None
        if api.name in self._observer.table:
            try:
                request = decode(api.request, header.api_version, frame, position)
            except DecodeError as error:
                self._link.cluster.recording.unrecorded(f"{api.name} version {header.api_version}: {error}")
            else:
                finish = self._observer.request(self._link, api.name, request)
                if api.name == "Produce" and request.acks == 0:
                    return finish
        if len(self._pending) >= IN_FLIGHT:
            raise ConnectionError(f"{IN_FLIGHT} requests without a reply")
        if finish is not None or api.name in REWRITTEN:
            self._pending[header.correlation_id] = Request(api, header.api_version, finish)
        return None

    def awaits(self, correlation_id: int) -> bool:
        """Return whether a request with this id has no reply yet."""
        return correlation_id in self._pending

    def reply(self, frame: bytes) -> Reply | None:
        """Pass a reply to its observer and return it; None if nothing awaits it, or it cannot be decoded."""
        request = self._pending.pop(int.from_bytes(frame[:4], "big", signed=True), None)
        if request is None:
            return None
        name, reply, correlation_id = request.api.name, None, 0
        try:
            correlation_id, position = decode_response_header(
                frame, response_header_version(request.api, request.version)
            )
            reply = decode(request.api.response, request.version, frame, position)
        except DecodeError as error:
            if name == "ApiVersions":  # a broker that does not support the version replies with another one
                return None
            self._link.cluster.recording.unrecorded(f"reply to {name} version {request.version}: {error}")
        if request.finish is not None:
            request.finish(reply)
        return None if reply is None else Reply(request, correlation_id, reply)

    def lost(self) -> None:
        """Complete all pending requests without a reply."""
        pending, self._pending = self._pending, {}
        for request in pending.values():
            if request.finish is not None:
                request.finish(None)

"""The broker's side of one client connection, without I/O.

Theory of operation
-------------------
A driver gives the connection what it receives (`receive_data`) and then calls `next_event` until it returns None. An
event is a request for the node, or bytes to write at once (answers of the SASL login). After a request the connection
is busy: it returns no further event before `response_bytes` is called with the response. So Kafka's rule that the
requests of a connection are answered in order, one at a time, holds for every driver (SocketServer mutes the channel).

A connection whose peer does not read (`pause_writing`) returns no event either, and `limits.py` limits the time.

ProtocolError ends a connection: the driver writes what it has and closes it. All times are milliseconds of the
driver's monotonic clock.

Invariants: at most one request is being served; frames are served in the order of their bytes; before the end of the
login only ApiVersions, SaslHandshake and SaslAuthenticate are decoded (`security/sasl.py`).

Deliberately absent: sockets, TLS, buffers of unsent bytes, and the decision when to read again; a driver has them.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from highwater.reference.api_versions import API_VERSIONS, ServedApi
from highwater.reference.connections.limits import Limits
from highwater.reference.effects import Request, Response
from highwater.reference.meters import Meters
from highwater.reference.security.sasl import MAX_TOKEN_FRAME, PRE_AUTHENTICATION_KEYS, Authenticator, SaslState
from highwater.reference.security.scram import AuthenticationError
from highwater.reference.wire.codec import decode_prefix
from highwater.reference.wire.errors import DecodeError, EncodeError, FrameSizeError
from highwater.reference.wire.framing import FrameReader, decode_request_header, encode_response
from highwater.reference.wire.registry import APIS

MAX_QUEUED_FRAMES: Final = 100
SIZE_BYTES: Final = 4

Event = Request | bytes


class ProtocolError(Exception):
    """The peer broke the protocol, or has no right to go on; the driver closes the connection."""


@dataclass(frozen=True, slots=True)
class Listener:
    """The settings of all connections of one port; `authenticator` returns None if the port requires no login."""

    served: dict[int, ServedApi]
    max_request_bytes: int
    limits: Limits
    meters: Meters
    authenticator: Callable[[], Authenticator | None]


class ServerConnection:
    """One connection of a client at the address `host`, opened at `now_ms`."""

    def __init__(self, listener: Listener, host: str, now_ms: int) -> None:
        self._listener, self.host = listener, host
        self._sasl = listener.authenticator()
        self._reader = FrameReader(min(listener.max_request_bytes, MAX_TOKEN_FRAME))
        if self._sasl is None:
            self._reader.max_size = listener.max_request_bytes
        self._frames: deque[bytes] = deque()
        self._busy = self.write_paused = False
        self.last_received_ms = now_ms
        self.waiting_since_ms: int | None = None
        """Since when the peer has not completed a frame, or not read a response; None if neither is the case."""

    @property
    def _is_authenticated(self) -> bool:
        return self._sasl is None or self._sasl.complete

    @property
    def is_full(self) -> bool:
        """Return whether so many requests wait that the driver must not read more."""
        return len(self._frames) > MAX_QUEUED_FRAMES

    @property
    def has_frames(self) -> bool:
        """Return whether `next_event` may return an event without further bytes."""
        return bool(self._frames)

    @property
    def buffered_bytes(self) -> int:
        """Return the bytes that were received and not yet served."""
        return self._reader.buffered + sum(map(len, self._frames))

    # -- in --------------------------------------------------------------------------------------

    def receive_data(self, now_ms: int, data: bytes) -> None:
        """Take bytes of the peer. Raises ProtocolError for a frame of an invalid size."""
        self.last_received_ms = now_ms
        try:
            frames = self._reader.feed(data)
        except FrameSizeError as error:
            raise ProtocolError(str(error)) from error
        self._frames.extend(frames)
        if not self.write_paused:
            self._track_incomplete_frame(new=bool(frames))

    def _track_incomplete_frame(self, *, new: bool) -> None:
        if not self._reader.buffered:
            self.waiting_since_ms = None
        elif new or self.waiting_since_ms is None:
            self.waiting_since_ms = self.last_received_ms

    def next_event(self) -> Event | None:
        """Return a request to serve or bytes to write, or None until more bytes, or the response, have come.

        Raises ProtocolError for a request that is not served or not allowed.
        """
        if self._sasl is not None and self._sasl.failed:  # the bytes before this event said so
            raise ProtocolError("not authenticated")
        while self._frames and not (self._busy or self.write_paused):
            try:
                event = self._event_of(self._frames.popleft())
            except (DecodeError, AuthenticationError) as error:
                raise ProtocolError(str(error)) from error
            if event is not None:
                self._busy = isinstance(event, Request)
                return event
        return None

    def _event_of(self, frame: bytes) -> Event | None:
        if self._sasl is not None and self._belongs_to_authentication(self._sasl, frame):
            return self._authenticate(self._sasl, frame)
        return self._request(frame)

    def _belongs_to_authentication(self, sasl: Authenticator, frame: bytes) -> bool:
        """Return whether the authenticator handles this frame; AuthenticationError after the end of a session."""
        if not sasl.complete or sasl.begins_reauthentication(decode_request_header(frame)[0].api_key):
            return True
        if sasl.expired:
            raise AuthenticationError("the session has expired, and this is no re-authentication")
        return False

    def _request(self, frame: bytes) -> Request:
        """Decode a request. Raises DecodeError, which closes the connection, if its API or version is not served."""
        header, position = decode_request_header(frame)
        if not self._is_authenticated and header.api_key not in PRE_AUTHENTICATION_KEYS:
            raise AuthenticationError("not authenticated")
        served = self._listener.served.get(header.api_key)
        if served is not None and served.supports(header.api_version):
            # Ignore trailing bytes, as Apache Kafka does: librdkafka's Metadata request for all topics has some.
            body, _ = decode_prefix(APIS[header.api_key].request, header.api_version, frame, position)
        elif header.api_key == API_VERSIONS:
            body = None  # answered in version 0, so that the client learns the supported versions (KIP-511)
        else:
            raise DecodeError(f"key {header.api_key} version {header.api_version} is not served")
        self._listener.meters.mark("RequestsPerSec", request=APIS[header.api_key].name)
        return Request(header.correlation_id, header.api_version, body, header.client_id, self.host)

    def _authenticate(self, sasl: Authenticator, frame: bytes) -> Event | None:
        """Return the answer to a step of the login, None if there is none, or ApiVersions as a request for the node."""
        answer: bytes | None = None
        if sasl.state is SaslState.BARE_TOKENS:
            token = sasl.process_token(frame)
            answer = len(token).to_bytes(SIZE_BYTES, "big") + token
        else:
            request = self._request(frame)
            if sasl.accepts_api_versions(request):
                return request
            reply = sasl.receive(request)
            if reply is not None:
                answer = encode_response(reply, request.api_version, request.correlation_id)
        if sasl.failed:
            self._listener.meters.mark("FailedAuthentication")
            if answer is None:
                raise AuthenticationError("not authenticated")
        if sasl.complete:
            self._listener.meters.mark("SuccessfulAuthentication")
            self._reader.max_size = self._listener.max_request_bytes
        return answer

    # -- out -------------------------------------------------------------------------------------

    def response_bytes(self, response: Response) -> bytes:
        """Return the bytes of the response to the request that is being served; empty if the client expects none.

        Raises ProtocolError if it cannot be encoded, such as an error message with a name of 32,767 bytes.
        """
        self._busy = False
        try:
            return self.encode(response) if response.body is not None else b""
        except EncodeError as error:
            raise ProtocolError(f"the response cannot be encoded: {error}") from error

    def encode(self, response: Response) -> bytes:
        return encode_response(response.body, response.api_version, response.correlation_id)

    def pause_writing(self, now_ms: int) -> None:
        """Serve no request while the peer does not read."""
        self.write_paused, self.waiting_since_ms = True, now_ms

    def resume_writing(self) -> None:
        self.write_paused, self.waiting_since_ms = False, None

    def discard(self) -> None:
        """Forget the requests that wait: the connection is closed."""
        self._frames.clear()

"""A connection that a client, or another broker, opened to this broker.

Kafka answers the requests of a connection in order, one at a time. So the connection handles no further request until
the response is sent, and none while its peer does not read (`drivers/limits.py` limits the time).
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from highwater.reference.api_versions import API_VERSIONS, ServedApi
from highwater.reference.drivers.limits import Limits
from highwater.reference.drivers.tcp import Driver
from highwater.reference.effects import Request, Response
from highwater.reference.meters import Meters
from highwater.reference.security.sasl import MAX_TOKEN_FRAME, PRE_AUTHENTICATION_KEYS, Authenticator, SaslState
from highwater.reference.security.scram import AuthenticationError
from highwater.reference.wire.codec import decode_prefix
from highwater.reference.wire.errors import DecodeError, EncodeError, FrameSizeError
from highwater.reference.wire.framing import FrameReader, decode_request_header, encode_response
from highwater.reference.wire.registry import APIS

log = logging.getLogger("highwater.driver")

MAX_QUEUED_FRAMES = 100
SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Listener:
    """The settings of all connections of one port; `authenticator` returns None if the port requires no login."""

    driver: Driver
    served: dict[int, ServedApi]
    max_request_bytes: int
    limits: Limits
    meters: Meters
    authenticator: Callable[[], Authenticator | None]


class ClientConnection(asyncio.Protocol):
    def __init__(self, listener: Listener) -> None:
        self._listener, self._driver, self._limits = listener, listener.driver, listener.limits
        self._sasl = listener.authenticator()
        self._reader = FrameReader(min(listener.max_request_bytes, MAX_TOKEN_FRAME))
        if self._sasl is None:
            self._reader.max_size = listener.max_request_bytes
        self._frames: deque[bytes] = deque()
        self._busy = self._write_paused = False
        self._name = self._driver.next_client()
        self._transport: asyncio.Transport | None = None
        self.host, self.last_received = "", time.monotonic()
        self.waiting_since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        if not self._limits.admit(self):
            transport.abort()
            return
        self._transport = transport
        self._driver.channels[self._name] = self

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.release(self)
        self._frames.clear()
        self._transport = None
        self._driver.closed(self._name)

    @property
    def _is_authenticated(self) -> bool:
        return self._sasl is None or self._sasl.complete

    # -- in --------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self.last_received = time.monotonic()
        try:
            frames = self._reader.feed(data)
        except FrameSizeError as error:
            self.cut(str(error))
            return
        self._frames.extend(frames)
        if not self._write_paused:
            self._track_incomplete_frame(new=bool(frames))
        if len(self._frames) > MAX_QUEUED_FRAMES:
            self._transport.pause_reading()
        self._serve()
        self._limits.update(self)

    def _track_incomplete_frame(self, *, new: bool) -> None:
        if not self._reader.buffered:
            self.waiting_since = None
        elif new or self.waiting_since is None:
            self.waiting_since = self.last_received

    def _serve(self) -> None:
        while self._frames and not (self._busy or self._write_paused) and self._transport is not None:
            frame = self._frames.popleft()
            if len(self._frames) == MAX_QUEUED_FRAMES:
                self._transport.resume_reading()
            try:
                self._handle_frame(frame)
            except (DecodeError, AuthenticationError) as error:
                self.cut(str(error))
            except OSError as error:
                self._driver.fail(error)
            except Exception:  # a bug in the broker must not end the other connections
                log.exception("while serving %s", self._name)
                self.close()

    def _handle_frame(self, frame: bytes) -> None:
        if self._sasl is not None and self._belongs_to_authentication(self._sasl, frame):
            self._authenticate(self._sasl, frame)
        else:
            request = self._request(frame)
            self._busy = True
            self._driver.receive(self._name, request)

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

    def _authenticate(self, sasl: Authenticator, frame: bytes) -> None:
        if sasl.state is SaslState.BARE_TOKENS:
            token = sasl.process_token(frame)
            self._write(len(token).to_bytes(SIZE_BYTES, "big") + token)
        else:
            request = self._request(frame)
            if sasl.accepts_api_versions(request):
                self._busy = True
                self._driver.receive(self._name, request)
                return
            answer = sasl.receive(request)
            if answer is not None:
                self._write(encode_response(answer, request.api_version, request.correlation_id))
        if sasl.failed:
            self._listener.meters.mark("FailedAuthentication")
            raise AuthenticationError("not authenticated")
        if sasl.complete:
            self._listener.meters.mark("SuccessfulAuthentication")
            self._reader.max_size = self._listener.max_request_bytes

    # -- out -------------------------------------------------------------------------------------

    def send(self, message: Response) -> None:
        self._busy = False
        if message.body is not None:
            try:
                self._write(self.encode(message))
            except EncodeError as error:  # e.g. an error message with a name of 32,767 bytes: not a bug of the broker
                log.warning("cannot encode a response to %s: %s", self._name, error)
                self.cut("the response cannot be encoded")
                return
            except Exception:  # only this connection ends: the step that sends the response may have other effects
                log.exception("while answering %s", self._name)
                self.cut("encoding the response failed")
                return
        if self._frames:
            self._driver.loop.call_soon(self._serve)

    def encode(self, message: Response) -> bytes:
        return encode_response(message.body, message.api_version, message.correlation_id)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            self._limits.update(self)

    def pause_writing(self) -> None:
        self._write_paused, self.waiting_since = True, time.monotonic()

    def resume_writing(self) -> None:
        self._write_paused, self.waiting_since = False, None
        self._limits.update(self)
        self._serve()

    def close(self) -> None:
        self._frames.clear()
        if self._transport is not None:
            self._transport.close()

    # -- limits ----------------------------------------------------------------------------------

    def buffered_bytes(self) -> int:
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self._reader.buffered + sum(map(len, self._frames)) + unsent

    def cut(self, why: str) -> None:
        """Close the connection; data already written is still sent if the peer reads."""
        log.info("closed %s of %s: %s", self._name, self.host, why)
        if self._write_paused and self._transport is not None:
            self._transport.abort()  # the peer does not read, and close() would wait for it
        self.close()

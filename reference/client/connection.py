"""A blocking connection to a broker: bytes, frames and requests, with a deadline for each wait.

Nothing here retries or interprets error codes. Callers that report failures in their own terms subclass `Connection` or
translate its two exceptions.
"""

import itertools
from typing import Any, Final, Self

from highwater.reference.client.access import PLAINTEXT, Access
from highwater.reference.security.scram import AuthenticationError
from highwater.reference.wire.errors import DecodeError, WireError
from highwater.reference.wire.framing import FrameReader, decode_response, encode_request
from highwater.reference.wire.registry import Api, api_of

CLIENT_ID: Final = "highwater"
MAX_FRAME: Final = 128 << 20


class ConnectionClosedError(Exception):
    """The broker closed the connection, or it broke."""


class ReplyTimeoutError(Exception):
    """No reply came before the deadline."""


class AccessError(Exception):
    """TLS or SASL failed: the broker refused the login, or does not speak TLS."""


class Connection:
    """One connection, TLS and SASL included. Raises OSError when the broker accepts no connection.

    `timeout_s` bounds each wait that has no timeout of its own.
    """

    def __init__(
        self, address: str, *, timeout_s: float, access: Access = PLAINTEXT, client_id: str = CLIENT_ID,
        max_frame: int = MAX_FRAME,
    ) -> None:  # fmt: skip
        self.address, self.timeout_s, self.client_id = address, timeout_s, client_id
        self.session_lifetime_ms = 0  # of the login (KIP-368); 0 if the session does not expire
        self._correlation_ids = itertools.count(1)
        self._reader, self._frames = FrameReader(max_frame), list[bytes]()
        host, _, port = address.rpartition(":")
        self.clock = access.transport.clock
        self._stream = access.transport.connect(host, int(port), timeout_s)
        try:
            self._authenticate(host, access)
        except BaseException:
            self.close()
            raise

    def _authenticate(self, host: str, access: Access) -> None:
        try:
            if access.context is not None:
                self._stream.start_tls(access.context, host)
            login = access.login()
            token = login.first() if login else None
            while login and token is not None:
                self._stream.send(token, self.timeout_s)
                token = login.receive(self._next_frame(self._deadline(None)))
            self.session_lifetime_ms = login.session_lifetime_ms if login else 0
        except (OSError, AuthenticationError, WireError, ConnectionClosedError, ReplyTimeoutError) as error:
            raise AccessError(str(error) or "it closed the connection") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()

    # -- bytes ---------------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        """Send all bytes; raises ConnectionClosedError, or ReplyTimeoutError when the broker does not read them."""
        try:
            self._stream.send(data, self.timeout_s)
        except TimeoutError as error:
            raise ReplyTimeoutError(f"{self.address} does not read") from error
        except OSError as error:
            raise ConnectionClosedError(str(error)) from error

    def finish_sending(self) -> None:
        """Close the sending direction, as a client does that has nothing more to say."""
        self._stream.finish_sending()

    def receive_bytes(self, deadline: float) -> bytes:
        """Return what has arrived, empty once the broker has closed; raises ReplyTimeoutError at the deadline."""
        try:
            return self._stream.receive(deadline - self.clock.monotonic())
        except TimeoutError as error:
            raise ReplyTimeoutError(self.address) from error
        except OSError:
            return b""

    def receive_frame(self, timeout_s: float | None = None) -> bytes:
        """Return the next frame without its size; also raises FrameSizeError for bytes that are no frame."""
        return self._next_frame(self._deadline(timeout_s))

    def _next_frame(self, deadline: float) -> bytes:
        while not self._frames:
            data = self.receive_bytes(deadline)
            if not data:
                raise ConnectionClosedError(self.address)
            self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    def _deadline(self, timeout_s: float | None) -> float:
        return self.clock.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)

    # -- messages ------------------------------------------------------------------------------------

    def next_correlation_id(self) -> int:
        return next(self._correlation_ids)

    def send(self, request: object, version: int) -> int:
        """Send a request and return its correlation id, without waiting for the response."""
        correlation_id = self.next_correlation_id()
        self.send_bytes(encode_request(request, version, correlation_id, self.client_id))
        return correlation_id

    def receive(self, api: Api, version: int, correlation_id: int | None = None, timeout_s: float | None = None) -> Any:
        """Return the oldest response that is due, strictly decoded; DecodeError for another correlation id."""
        echoed, response = decode_response(api, version, self.receive_frame(timeout_s))
        if correlation_id is not None and echoed != correlation_id:
            raise DecodeError(f"correlation id {echoed} instead of {correlation_id}")
        return response

    def exchange(self, request: object, version: int, timeout_s: float | None = None) -> Any:
        """Send one request and return its response."""
        correlation_id = self.send(request, version)
        return self.receive(api_of(type(request)), version, correlation_id, timeout_s)

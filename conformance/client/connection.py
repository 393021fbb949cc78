"""A connection to a broker that logs every frame and limits every wait."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

from highwater.conformance import CLIENT_ID
from highwater.conformance.client.exchange import Event, ExchangeLog
from highwater.conformance.failures import AccessRefused, Disconnected, NoReply, TargetFailure
from highwater.reference.client import connection as client
from highwater.reference.client.access import PLAINTEXT, Access
from highwater.reference.client.transport import TCP, Transport
from highwater.reference.wire.errors import DecodeError, WireError
from highwater.reference.wire.framing import decode_response
from highwater.reference.wire.registry import Api

__all__ = ["OPEN", "Access", "Connection", "Reached", "WaitLimit", "access_of", "access_to"]
MAX_REPLY: Final = 64 * 1024 * 1024
OPEN: Final = PLAINTEXT
"""Access without TLS and SASL."""


@cache
def access_of(command_config: Path | None) -> Access:
    """Read the client properties that Apache Kafka's own tools take (`--command-config`); None gives plaintext.

    Raises UsageError for a missing or unknown property.
    """
    return Access.from_file(command_config) if command_config is not None else OPEN


class Reached(Protocol):
    """What decides how the suite connects to a target: its transport, and the client properties for its listeners."""

    @property
    def transport(self) -> Transport: ...

    @property
    def command_config(self) -> Path | None: ...


def access_to(target: Reached) -> Access:
    """Return how to connect to a target; raises UsageError as `access_of` does."""
    access = access_of(target.command_config)
    return access if target.transport is TCP else replace(access, transport=target.transport)


class WaitLimit:
    """Upper limits in seconds for timeouts, short where the suite knows that no reply will come."""

    def __init__(self, max_s: float = math.inf, max_polling_s: float = math.inf) -> None:
        self.max_s, self.max_polling_s = max_s, max_polling_s

    def cap(self, seconds: float) -> float:
        return min(seconds, self.max_s)

    def cap_polling(self, seconds: float) -> float:
        """Limit the timeout of a loop that polls a broker which answers each request."""
        return min(seconds, self.max_s, self.max_polling_s)


class Connection(client.Connection):
    """A connection that logs every frame and raises failures of the case for errors of the target.

    Raises `Disconnected`, `NoReply` and `TargetFailure` where the client raises its own errors.
    """

    def __init__(
        self, address: str, *, timeout_s: float = 5.0, log: ExchangeLog | None = None,
        wait_limit: WaitLimit | None = None, access: Access = OPEN,
    ) -> None:  # fmt: skip
        self.log, self._wait_limit = log or ExchangeLog(), wait_limit or WaitLimit()
        self._latest, self._number = b"", next(self.log.connections)
        self._is_open = False  # frames of the TLS and SASL login are not logged
        try:
            super().__init__(address, timeout_s=timeout_s, access=access, client_id=CLIENT_ID, max_frame=MAX_REPLY)
        except client.AccessError as error:
            raise AccessRefused(f"{address} rejects the login: {error}") from error
        except OSError as error:
            raise Disconnected(f"{address} accepts no connection: {error}") from error
        self._is_open = True

    def _note(self, what: str, data: bytes = b"", api: Api | None = None, version: int = 0) -> None:
        self.log.add(Event(self.address, what, data, api, version, self._number, self.clock.monotonic()))

    # -- bytes ---------------------------------------------------------------------------------------

    def send_bytes(self, data: bytes, *, what: str = "<- request") -> None:
        self._note(what, data)
        try:
            super().send_bytes(data)
        except (client.ConnectionClosedError, client.ReplyTimeoutError) as error:
            raise Disconnected(f"{self.address} closed the connection during a write: {error}") from error

    def receive_frame(self, timeout_s: float | None = None) -> bytes:
        """Return the next frame without its size."""
        try:
            return super().receive_frame(timeout_s)
        except client.ConnectionClosedError:
            self._note("-> disconnected")
            raise Disconnected(self.address, expected="a reply", actual="it closed the connection") from None
        except client.ReplyTimeoutError:
            raise NoReply(self.address, expected="a reply in time", actual="silence") from None
        except WireError as error:
            self._note(f"-> {self._latest[:64].hex(' ')}")
            raise TargetFailure(f"{self.address} sent an invalid frame ({error}): {self._latest[:16]!r}") from error

    def receive_bytes(self, deadline: float) -> bytes:
        try:
            self._latest = super().receive_bytes(deadline)
            return self._latest
        except client.ReplyTimeoutError:
            if self._is_open:
                self._note("-> silence")
            raise

    def expect_disconnect(self, timeout_s: float | None = None) -> None:
        """Fail unless the target closes the connection without sending another byte."""
        try:
            data = b"".join(self._frames) or self.receive_bytes(self._deadline(timeout_s))
        except client.ReplyTimeoutError:
            raise NoReply(
                self.address, expected="a disconnect", actual="no byte, and the connection stayed open"
            ) from None
        self._note(f"-> {data[:64].hex(' ') or 'disconnected'}")
        if data:
            raise TargetFailure(self.address, expected="a disconnect", actual=f"{len(data)} bytes")

    def expect_silence(self, timeout_s: float) -> None:
        """Fail if the target sends a byte or closes the connection within `timeout_s`."""
        try:
            frame = self.receive_frame(timeout_s)
        except NoReply:
            return
        actual = f"{len(frame)} bytes: {frame[:32].hex(' ')}"
        raise TargetFailure(self.address, expected="no reply", actual=actual)

    def _deadline(self, timeout_s: float | None) -> float:
        return self.clock.monotonic() + self._wait_limit.cap(self.timeout_s if timeout_s is None else timeout_s)

    # -- messages ------------------------------------------------------------------------------------

    def receive(self, api: Api, version: int, correlation_id: int | None = None, timeout_s: float | None = None) -> Any:
        """Return the next reply; raises TargetFailure if it does not decode or has another correlation id."""
        frame = self.receive_frame(timeout_s)
        self._note("-> reply", len(frame).to_bytes(4, "big") + frame, api, version)
        try:
            echoed, reply = decode_response(api, version, frame)
        except DecodeError as error:
            raise TargetFailure(f"the reply to {api.name} v{version} does not decode: {error}") from error
        if correlation_id is not None and echoed != correlation_id:
            what = f"correlation id of {api.name} v{version}"
            raise TargetFailure(what, expected=str(correlation_id), actual=str(echoed))
        return reply

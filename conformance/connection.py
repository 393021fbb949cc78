"""One TCP connection to a broker on which every byte can be seen, and every wait has a deadline."""

import math
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

from highwater.conformance.exchange import Event, ExchangeLog
from highwater.conformance.failures import AccessRefused, Disconnected, NoReply, TargetFailure
from highwater.reference.client import connection as client
from highwater.reference.client.access import PLAINTEXT, Access
from highwater.reference.wire.errors import DecodeError, WireError
from highwater.reference.wire.framing import decode_response
from highwater.reference.wire.registry import Api

# --------------------------------------------------------------------------------------------------
# How a connection gets in: the client properties that Apache Kafka's own tools take (`--command-config`).


__all__ = ["OPEN", "Access", "access_of"]
OPEN: Final = PLAINTEXT


@cache
def access_of(command_config: Path | None) -> Access:
    """Without a file neither TLS nor SASL. UsageError for what is missing or unknown in it."""
    return Access.from_file(command_config) if command_config is not None else OPEN


CLIENT_ID: Final = "highwater-conform"
MAX_REPLY: Final = 64 * 1024 * 1024


class Patience:
    """How long a wait may last at most, whatever was asked for: little where it is known that nothing will come."""

    def __init__(self, most_s: float = math.inf, polling_s: float = math.inf) -> None:
        self.most_s, self.polling_s = most_s, polling_s

    def of(self, seconds: float) -> float:
        return min(seconds, self.most_s)

    def of_polling(self, seconds: float) -> float:
        """For what is asked again and again, each time with an answer."""
        return min(seconds, self.most_s, self.polling_s)


class Connection(client.Connection):
    """A connection that logs every frame, and reports what the target fails to do as the failure of a case.

    Raises `Disconnected`, `NoReply` and `TargetFailure` where the client raises its own errors.
    """

    def __init__(
        self, address: str, *, timeout_s: float = 5.0, log: ExchangeLog | None = None, patience: Patience | None = None,
        access: Access = OPEN,
    ) -> None:  # fmt: skip
        self.log, self._patience = log or ExchangeLog(), patience or Patience()
        self._latest = b""
        self._is_open = False  # no case is about the frames of TLS and SASL, so they are not logged
        try:
            super().__init__(address, timeout_s=timeout_s, access=access, client_id=CLIENT_ID, max_frame=MAX_REPLY)
        except client.AccessError as error:
            raise AccessRefused(f"{address} refuses the login: {error}") from error
        except OSError as error:
            raise Disconnected(f"{address} accepts no connection: {error}") from error
        self._is_open = True

    # -- bytes ---------------------------------------------------------------------------------------

    def send_bytes(self, data: bytes, *, what: str = "<- request") -> None:
        self.log.add(Event(self.address, what, data))
        try:
            super().send_bytes(data)
        except (client.ConnectionClosedError, client.ReplyTimeoutError) as error:
            raise Disconnected(f"{self.address} closed while being written to: {error}") from error

    def receive_frame(self, timeout_s: float | None = None) -> bytes:
        """Return the next frame without its size."""
        try:
            return super().receive_frame(timeout_s)
        except client.ConnectionClosedError:
            self.log.add(Event(self.address, "-> disconnected"))
            raise Disconnected(self.address, expected="a reply", actual="it closed the connection") from None
        except client.ReplyTimeoutError:
            raise NoReply(self.address, expected="a reply in time", actual="silence") from None
        except WireError as error:
            self.log.add(Event(self.address, f"-> {self._latest[:64].hex(' ')}"))
            raise TargetFailure(f"{self.address} sent no frame ({error}): {self._latest[:16]!r}") from error

    def receive_bytes(self, deadline: float) -> bytes:
        try:
            self._latest = super().receive_bytes(deadline)
            return self._latest
        except client.ReplyTimeoutError:
            if self._is_open:
                self.log.add(Event(self.address, "-> silence"))
            raise

    def expect_disconnect(self, timeout_s: float | None = None) -> None:
        """The other side must close without another byte."""
        try:
            data = b"".join(self._frames) or self.receive_bytes(self._deadline(timeout_s))
        except client.ReplyTimeoutError:
            raise NoReply(self.address, expected="a disconnect", actual="it stayed open and silent") from None
        self.log.add(Event(self.address, f"-> {data[:64].hex(' ') or 'disconnected'}"))
        if data:
            raise TargetFailure(self.address, expected="a disconnect", actual=f"an answer of {len(data)} bytes")

    def expect_silence(self, timeout_s: float) -> None:
        """No byte may come, and the connection must stay open, for this long."""
        try:
            frame = self.receive_frame(timeout_s)
        except NoReply:
            return
        actual = f"{len(frame)} bytes: {frame[:32].hex(' ')}"
        raise TargetFailure(self.address, expected="no reply", actual=actual)

    def _deadline(self, timeout_s: float | None) -> float:
        return time.monotonic() + self._patience.of(self.timeout_s if timeout_s is None else timeout_s)

    # -- messages ------------------------------------------------------------------------------------

    def receive(self, api: Api, version: int, correlation_id: int | None = None, timeout_s: float | None = None) -> Any:
        """Return the reply, strictly decoded, to exactly that request."""
        frame = self.receive_frame(timeout_s)
        self.log.add(Event(self.address, "-> reply", len(frame).to_bytes(4, "big") + frame, api, version))
        try:
            echoed, reply = decode_response(api, version, frame)
        except DecodeError as error:
            raise TargetFailure(f"the reply to {api.name} v{version} does not decode: {error}") from error
        if correlation_id is not None and echoed != correlation_id:
            what = f"correlation id of {api.name} v{version}"
            raise TargetFailure(what, expected=str(correlation_id), actual=str(echoed))
        return reply

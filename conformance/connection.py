"""One TCP connection to a broker on which every byte can be seen, and every wait has a deadline."""

import itertools
import math
import socket
import time
from typing import Any, Final, Self

from conformance.access import OPEN, Access
from conformance.exchange import Event, ExchangeLog
from conformance.failures import AccessRefused, Disconnected, NoReply, TargetFailure
from reference.security.scram import AuthenticationError
from reference.wire.errors import DecodeError, WireError
from reference.wire.framing import FrameReader, decode_response, encode_request
from reference.wire.registry import Api, api_of

CLIENT_ID: Final = "highwater-conform"
MAX_REPLY: Final = 64 * 1024 * 1024
CHUNK: Final = 65536


class Patience:
    """How long a wait may last at most, whatever was asked for: little where it is known that nothing will come."""

    def __init__(self, most_s: float = math.inf, polling_s: float = math.inf) -> None:
        self.most_s, self.polling_s = most_s, polling_s

    def of(self, seconds: float) -> float:
        return min(seconds, self.most_s)

    def of_polling(self, seconds: float) -> float:
        """For what is asked again and again, each time with an answer."""
        return min(seconds, self.most_s, self.polling_s)


class Connection:
    """`timeout_s` bounds each wait for a reply. Raises `NoReply` and `Disconnected` when the target does not answer."""

    def __init__(
        self, address: str, *, timeout_s: float = 5.0, log: ExchangeLog | None = None, patience: Patience | None = None,
        access: Access = OPEN,
    ) -> None:  # fmt: skip
        self.address, self.timeout_s = address, timeout_s
        self.log, self._patience = log or ExchangeLog(), patience or Patience()
        self._correlation_ids = itertools.count(1)
        self._frames: list[bytes] = []
        self._reader = FrameReader(MAX_REPLY)
        host, _, port = address.rpartition(":")
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        except OSError as error:
            raise Disconnected(f"{address} takes no connection: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._be_let_in(host, access)
        except BaseException:
            self.close()
            raise

    def _be_let_in(self, host: str, access: Access) -> None:
        """TLS and SASL, where the target wants them: no case is about these frames, so they are not logged."""
        login = access.login()
        try:
            if access.context is not None:
                self._socket = access.context.wrap_socket(self._socket, server_hostname=host)
            answer = login.first() if login else None
            while login and answer is not None:
                self._socket.sendall(answer)
                answer = login.receive(self.receive_frame())
        except (OSError, AuthenticationError, WireError) as error:
            raise AccessRefused(f"{self.address} does not let us in: {error}") from error

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- bytes ---------------------------------------------------------------------------------------

    def send_bytes(self, data: bytes, *, what: str = "<- request") -> None:
        self.log.add(Event(self.address, what, data))
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Disconnected(f"{self.address} closed while being written to: {error}") from error

    def receive_frame(self, timeout_s: float | None = None) -> bytes:
        """The next frame without its size."""
        deadline = self._deadline(timeout_s)
        while not self._frames:
            data = self._receive(deadline)
            if not data:
                self.log.add(Event(self.address, "-> disconnected"))
                raise Disconnected(self.address, expected="a reply", actual="it closed the connection")
            try:
                self._frames += self._reader.feed(data)
            except WireError as error:
                self.log.add(Event(self.address, f"-> {data[:64].hex(' ')}"))
                raise TargetFailure(f"{self.address} sent what is no frame ({error}): {data[:16]!r}") from error
        return self._frames.pop(0)

    def expect_disconnect(self, timeout_s: float | None = None) -> None:
        """The other side must close without another byte."""
        deadline = self._deadline(timeout_s)
        try:
            data = b"".join(self._frames) or self._receive(deadline)
        except NoReply:
            raise NoReply(self.address, expected="a disconnect", actual="it stayed open and silent") from None
        self.log.add(Event(self.address, f"-> {data[:64].hex(' ') or 'disconnected'}"))
        if data:
            raise TargetFailure(self.address, expected="a disconnect", actual=f"an answer of {len(data)} bytes")

    def expect_silence(self, timeout_s: float) -> None:
        """Nothing may come, and the connection must stay open, for so long."""
        try:
            frame = self.receive_frame(timeout_s)
        except NoReply:
            return
        actual = f"{len(frame)} bytes: {frame[:32].hex(' ')}"
        raise TargetFailure(self.address, expected="no reply", actual=actual)

    def _deadline(self, timeout_s: float | None) -> float:
        return time.monotonic() + self._patience.of(self.timeout_s if timeout_s is None else timeout_s)

    def _receive(self, deadline: float) -> bytes:
        self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            return self._socket.recv(CHUNK)
        except TimeoutError:
            self.log.add(Event(self.address, "-> silence"))
            raise NoReply(self.address, expected="a reply in time", actual="silence") from None
        except ConnectionError:
            return b""

    # -- messages ------------------------------------------------------------------------------------

    def next_correlation_id(self) -> int:
        return next(self._correlation_ids)

    def send(self, request: object, version: int) -> int:
        """Returns the correlation id."""
        correlation_id = self.next_correlation_id()
        self.send_bytes(encode_request(request, version, correlation_id, CLIENT_ID))
        return correlation_id

    def receive(self, api: Api, version: int, correlation_id: int, timeout_s: float | None = None) -> Any:
        """The reply, strictly decoded, to exactly that request."""
        frame = self.receive_frame(timeout_s)
        self.log.add(Event(self.address, "-> reply", len(frame).to_bytes(4, "big") + frame, api, version))
        try:
            echoed, reply = decode_response(api, version, frame)
        except DecodeError as error:
            raise TargetFailure(f"the reply to {api.name} v{version} does not decode: {error}") from error
        if echoed != correlation_id:
            what = f"correlation id of {api.name} v{version}"
            raise TargetFailure(what, expected=str(correlation_id), actual=str(echoed))
        return reply

    def exchange(self, request: object, version: int, timeout_s: float | None = None) -> Any:
        correlation_id = self.send(request, version)
        return self.receive(api_of(type(request)), version, correlation_id, timeout_s)

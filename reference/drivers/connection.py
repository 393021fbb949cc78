"""The asyncio protocol of a connection that a client, or another broker, opened to this broker.

It carries bytes between the transport and a `ServerConnection`, which has the rules (`connections/server.py`).
"""

import asyncio
import logging

from highwater.reference.connections.server import Listener, ProtocolError, ServerConnection
from highwater.reference.drivers.tcp import Driver
from highwater.reference.effects import Request, Response

log = logging.getLogger("highwater.driver")


class ClientConnection(asyncio.Protocol):
    def __init__(self, driver: Driver, listener: Listener) -> None:
        self._driver, self._listener, self._limits = driver, listener, listener.limits
        self._name = driver.next_client()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        host, now_ms = peer[0] if peer else "", self._driver.now().monotonic_ms
        self._connection = ServerConnection(self._listener, host, now_ms)
        if not self._limits.admit(self):
            transport.abort()
            return
        self._transport = transport
        self._driver.channels[self._name] = self

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.release(self)
        self._connection.discard()
        self._transport = None
        self._driver.closed(self._name)

    # -- in --------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        try:
            self._connection.receive_data(self._driver.now().monotonic_ms, data)
        except ProtocolError as error:
            self.cut(str(error))
            return
        if self._connection.is_full:
            self._transport.pause_reading()
        self._serve()
        self._limits.update(self)

    def _serve(self) -> None:
        while self._transport is not None:
            try:
                event = self._connection.next_event()
                if event is None:
                    break
                if isinstance(event, Request):
                    self._driver.receive(self._name, event)
                else:
                    self._write(event)
            except ProtocolError as error:
                return self.cut(str(error))
            except OSError as error:
                return self._driver.fail(error)
            except Exception:  # a bug in the broker must not end the other connections
                log.exception("while serving %s", self._name)
                return self.close()
        if self._transport is not None and not self._connection.is_full:
            self._transport.resume_reading()
        return None

    # -- out -------------------------------------------------------------------------------------

    def send(self, message: Response) -> None:
        try:
            self._write(self._connection.response_bytes(message))
        except ProtocolError as error:
            self.cut(str(error))
            return
        except Exception:  # only this connection ends: the step that sends the response may have other effects
            log.exception("while answering %s", self._name)
            self.cut("encoding the response failed")
            return
        if self._connection.has_frames:
            self._driver.loop.call_soon(self._serve)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._transport.write(data)
            self._limits.update(self)

    def pause_writing(self) -> None:
        self._connection.pause_writing(self._driver.now().monotonic_ms)

    def resume_writing(self) -> None:
        self._connection.resume_writing()
        self._limits.update(self)
        self._serve()

    def close(self) -> None:
        self._connection.discard()
        if self._transport is not None:
            self._transport.close()

    # -- limits ----------------------------------------------------------------------------------

    @property
    def host(self) -> str:
        return self._connection.host

    @property
    def last_received_ms(self) -> int:
        return self._connection.last_received_ms

    @property
    def waiting_since_ms(self) -> int | None:
        return self._connection.waiting_since_ms

    def buffered_bytes(self) -> int:
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self._connection.buffered_bytes + unsent

    def cut(self, why: str) -> None:
        """Close the connection; data already written is still sent if the peer reads."""
        log.info("closed %s of %s: %s", self._name, self.host, why)
        if self._connection.write_paused and self._transport is not None:
            self._transport.abort()  # the peer does not read, and close() would wait for it
        self.close()

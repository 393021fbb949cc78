"""Serve `GET /metrics` for Prometheus on a separate port, if `metrics_port` is set."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

REQUEST_MAX: Final = 8 * 1024
TIMEOUT_S: Final = 5.0
CONTENT: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsPort:
    """Serves one request per connection; closes a connection whose request takes more than TIMEOUT_S."""

    def __init__(self, metrics: Callable[[], str]) -> None:
        self._metrics = metrics

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head.split(b"\r\n", 1)[0]))
                await writer.drain()
        writer.close()

    def _answer(self, request_line: bytes) -> bytes:
        if request_line.split(b" ")[:2] != [b"GET", b"/metrics"]:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        body = self._metrics().encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {CONTENT}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + body

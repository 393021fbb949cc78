"""Reserve TCP ports for processes that are about to start, so that concurrent test runs do not get the same ports."""

from __future__ import annotations

import itertools
import os
import socket

# Below the ephemeral ports: an outgoing connection could take one of those before the process listens on it.
FIRST_PORT, PORTS = 12_000, 18_000
_candidates = itertools.count(os.getpid() * 101)  # so that processes start at different ports


class Ports(list[int]):
    """`count` consecutive free ports of 127.0.0.1, reserved until `release` or the end of this process."""

    def __init__(self, count: int) -> None:
        self._descriptors: list[int] = []
        while len(self) < count:
            port = FIRST_PORT + next(_candidates) % PORTS
            if self and port != self[-1] + 1:  # wrapped around: start again, so that the ports stay consecutive
                self.release()
            try:
                self._descriptors.append(_reserve(port))
                self.append(port)
            except OSError:
                self.release()

    def release(self) -> None:
        """Close the sockets that reserve the ports, and empty the list."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self.clear()


def _reserve(port: int) -> int:
    """Bind a port without listening: a server with SO_REUSEADDR can still bind it, a second `_reserve` cannot."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", port))
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return reserved.detach()

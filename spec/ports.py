"""Ports for processes that are about to start, so that two who look at once do not get the same."""

from __future__ import annotations

import itertools
import os
import socket

# Below those that outgoing connections are given, one of which might be taken before it is used.
FIRST_PORT, PORTS = 12_000, 18_000
_candidates = itertools.count(os.getpid() * 101)  # processes begin at different ones


class Ports(list[int]):
    """`count` free neighbouring ports of 127.0.0.1, which nobody else is given before `release` or our own end."""

    def __init__(self, count: int) -> None:
        self._held: list[int] = []
        while len(self) < count:
            port = FIRST_PORT + next(_candidates) % PORTS
            if self and port != self[-1] + 1:  # past the end: begin anew at the first
                self.release()
            try:
                self._held.append(_hold(port))
                self.append(port)
            except OSError:
                self.release()

    def release(self) -> None:
        for each in self._held:
            os.close(each)
        self._held.clear()
        self.clear()


def _hold(port: int) -> int:
    """Bound and not listening: a server with SO_REUSEADDR may start there, a second `_hold` may not."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return held.detach()

"""Takes connections on a port of its own, and gives each to a thread."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

BACKLOG: Final = 128


class Listener:
    """`serve` gets each connection, which is closed when it returns; that a connection breaks is no error."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._server = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self.port = int(self._server.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._server.accept()[0]
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            self._serve(client)

"""A client that sends requests of the tests and reads their responses."""

import socket
from typing import Any, Final

from highwater.reference.wire.framing import decode_response, encode_request
from highwater.reference.wire.registry import api_of

WAIT_S: Final = 20.0
SHORT_S: Final = 0.5
VERSION: Final = 2


class Client:
    """A connection that sends requests and reads responses one at a time."""

    def __init__(self, address: str, name: str = "app") -> None:
        host, _, port = address.rpartition(":")
        self.name, self._sent = name, dict[int, tuple[Any, int]]()
        self._socket = socket.create_connection((host, int(port)), WAIT_S)

    def send(self, message: Any, version: int = VERSION) -> int:
        number = len(self._sent) + 1
        self._sent[number] = (message, version)
        self._socket.sendall(encode_request(message, version, number, self.name))
        return number

    def receive(self, timeout_s: float = WAIT_S) -> tuple[int, Any] | None:
        """Return the number of a request and its response; None if the connection has been closed."""
        self._socket.settimeout(timeout_s)
        try:
            size = self._read(4)
        except ConnectionError:
            return None
        frame = self._read(int.from_bytes(size, "big"))
        number = int.from_bytes(frame[:4], "big")
        message, version = self._sent[number]
        return decode_response(api_of(type(message)), version, frame)

    def is_silent(self) -> bool:
        """Return whether the connection is open and nothing arrives."""
        try:
            self.receive(SHORT_S)
        except TimeoutError:
            return True
        return False

    def ask(self, message: Any, version: int = VERSION) -> Any:
        number = self.send(message, version)
        found = self.receive()
        assert found is not None
        assert found[0] == number
        return found[1]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return data

    def close(self) -> None:
        self._socket.close()

"""A proxy before one broker: nothing differs but what the planted defect spoils, and where the brokers are."""

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from highwater.conformance.defects import Crash, HangUp, OneSegment, OutOfTurn, Request, Silence, StaysOpen
from highwater.conformance.self_test.faults import Asked, Fault, changed_reply, read_request
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.metadata import DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest
from highwater.reference.wire.messages.produce import ProduceRequest

# --------------------------------------------------------------------------------------------------
# Takes connections on a port of its own, and gives each to a thread.


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


CHUNK: Final = 65536
MAX_FRAME: Final = 1 << 26
STRAY_BYTES: Final = struct.pack(">ii", 4, 7)
NAMES_BROKERS: Final[Mapping[type[Any], tuple[str, ...]]] = {
    MetadataRequest: ("brokers",),
    DescribeClusterRequest: ("brokers",),
    FindCoordinatorRequest: ("coordinators", ""),
    ProduceRequest: ("node_endpoints",),
    FetchRequest: ("node_endpoints",),
}
"""Where replies say a broker's host and port: whoever asks must hear of the proxies, or would find a way around."""


class Proxy:
    """`ports` leads from a broker's port to its proxy's; all proxies of a cluster share it and the fault."""

    def __init__(self, upstream: str, ports: dict[int, int], fault: Fault) -> None:
        host, _, port = upstream.rpartition(":")
        self.fault, self.ports, self._upstream = fault, ports, (host, int(port))
        self._listener = Listener(self._serve)
        ports[int(port)] = self._listener.port
        self.address, self.close = self._listener.address, self._listener.close

    def _serve(self, client: socket.socket) -> None:
        if isinstance(self.fault.defect, Crash) and self.fault.taken_effect:
            return
        with socket.create_connection(self._upstream) as broker:
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Conversation(self, client, broker).run()

    def renamed(self, reply: bytes, asked: Asked) -> bytes:
        places = NAMES_BROKERS.get(asked.api.request, ()) if asked.api else ()
        return changed_reply(reply, asked, lambda message: self._with_my_ports(message, places)) if places else reply

    def _with_my_ports(self, message: Any, places: tuple[str, ...]) -> Any:
        for place in places:
            if place:
                named = tuple(replace(each, port=self._mine(each.port)) for each in getattr(message, place))
                message = replace(message, **{place: named})
            else:
                message = replace(message, port=self._mine(message.port))
        return message

    def _mine(self, port: int) -> int:
        return self.ports.get(port, port)


class _Conversation:
    """A client's connection and its twin to the broker: requests in this thread, replies in another."""

    def __init__(self, proxy: Proxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy, self._fault, self._client, self._broker = proxy, proxy.fault, client, broker
        self._asked: deque[Asked] = deque()
        self._held = b""
        self._is_mute = self._client_left = False

    def run(self) -> None:
        replies = threading.Thread(target=self._pass_replies, daemon=True)
        replies.start()
        with suppress(OSError):
            self._pass_requests()
        self._client_left = True
        with suppress(OSError):
            self._broker.shutdown(socket.SHUT_RDWR)
        replies.join()

    # -- requests ------------------------------------------------------------------------------------

    def _pass_requests(self) -> None:
        """The start of a frame goes on at once, for a broker may refuse it by its size, unless it may be spoiled."""
        buffer, passed_on = bytearray(), 0
        while data := self._client.recv(CHUNK):
            buffer += data
            for frame in _whole_frames(buffer):
                if not self._pass_request(frame, passed_on):
                    return
                passed_on = 0
            if buffer and isinstance(self._fault.defect, OneSegment):
                self._fault.taken_effect = True
                return
            if not isinstance(self._fault.defect, Request | HangUp):
                self._send(buffer[passed_on:])
                passed_on = len(buffer)

    def _pass_request(self, frame: bytes, passed_on: int) -> bool:
        """False: hang up. The first bytes may have been passed on before."""
        asked = read_request(frame)
        if self._fault.meets(HangUp, asked):
            self._fault.taken_effect = True
            return False
        if not passed_on:
            frame = self._fault.spoiled_request(frame)
            asked = read_request(frame)
        if asked.has_reply:
            self._asked.append(asked)
        self._send(frame[passed_on:])
        return True

    def _send(self, data: bytes | bytearray) -> None:
        with suppress(OSError):  # a broker that has closed: its other half says so, or hides it
            self._broker.sendall(data)

    # -- replies -------------------------------------------------------------------------------------

    def _pass_replies(self) -> None:
        buffer = bytearray()
        with suppress(OSError):
            with suppress(ConnectionError):
                while data := self._broker.recv(CHUNK):
                    buffer += data
                    for frame in _whole_frames(buffer):
                        self._pass_reply(frame)
            if not self._client_left:
                self._say_goodbye()

    def _pass_reply(self, frame: bytes) -> None:
        asked = self._asked.popleft() if self._asked else Asked()
        if self._fault.meets(Silence, asked):
            self._fault.taken_effect = self._is_mute = True
        if self._is_mute:
            return
        frame = self._fault.spoiled_reply(self._proxy.renamed(frame, asked), asked)
        if self._fault.meets(OutOfTurn, asked) and not self._held:
            self._held, self._fault.taken_effect = frame, True
            return
        self._client.sendall(frame + self._held)
        self._held = b""

    def _say_goodbye(self) -> None:
        """The broker has closed."""
        self._fault.taken_effect |= isinstance(self._fault.defect, StaysOpen | Crash)
        if isinstance(self._fault.defect, StaysOpen):
            self._client.sendall(STRAY_BYTES)
        else:
            self._client.shutdown(socket.SHUT_RDWR)


def _whole_frames(buffer: bytearray) -> list[bytes]:
    """Taken off the buffer, sizes included; behind a size that is none, all that is there counts as one."""
    frames = []
    while len(buffer) >= 4:
        size = int.from_bytes(buffer[:4], "big", signed=True)
        end = 4 + size if 0 <= size <= MAX_FRAME else len(buffer)
        if len(buffer) < end:
            break
        frames.append(bytes(buffer[:end]))
        del buffer[:end]
    return frames

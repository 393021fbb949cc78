"""A proxy for one broker that applies the planted defect and replaces broker addresses by those of the proxies."""

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from highwater.conformance.defects import Crash, HangUp, OneSegment, OutOfTurn, Request, Silence, StaysOpen
from highwater.conformance.self_test.faults import Fault, SentRequest, read_request, rewrite_reply
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.metadata import DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest
from highwater.reference.wire.messages.produce import ProduceRequest

BACKLOG: Final = 128


class Listener:
    """Accepts connections and runs `serve` for each in a thread; connection errors are ignored."""

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
ADDRESS_FIELDS: Final[Mapping[type[Any], tuple[str, ...]]] = {
    MetadataRequest: ("brokers",),
    DescribeClusterRequest: ("brokers",),
    FindCoordinatorRequest: ("coordinators", ""),
    ProduceRequest: ("node_endpoints",),
    FetchRequest: ("node_endpoints",),
}
"""By request, the fields of the reply with broker addresses; clients would bypass the proxies if they were kept."""


class Proxy:
    """Proxy of one broker; `ports` maps broker ports to proxy ports, and is shared by the cluster like `fault`."""

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
            for connection in (client, broker):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _ProxiedConnection(self, client, broker).run()

    def rewrite_addresses(self, reply: bytes, request: SentRequest) -> bytes:
        fields = ADDRESS_FIELDS.get(request.api.request, ()) if request.api else ()
        return (
            rewrite_reply(reply, request, lambda message: self._with_proxy_ports(message, fields)) if fields else reply
        )

    def _with_proxy_ports(self, message: Any, fields: tuple[str, ...]) -> Any:
        for field in fields:
            if field:
                named = tuple(replace(broker, port=self._proxy_port(broker.port)) for broker in getattr(message, field))
                message = replace(message, **{field: named})
            else:
                message = replace(message, port=self._proxy_port(message.port))
        return message

    def _proxy_port(self, port: int) -> int:
        return self.ports.get(port, port)


class _ProxiedConnection:
    """A client connection and its broker connection: one thread forwards requests, another one replies."""

    def __init__(self, proxy: Proxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy, self._fault, self._client, self._broker = proxy, proxy.fault, client, broker
        self._unanswered: deque[SentRequest] = deque()
        self._delayed_reply = b""
        self._drops_replies = self._client_left = False

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
        """Forward requests. Incomplete frames are forwarded at once, since a broker may reject a frame by its size.

        They are held back only if the planted defect may change or drop the request.
        """
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
        """Forward a request, without the `passed_on` bytes already sent; return False to close the connection."""
        request = read_request(frame)
        if self._fault.matches(HangUp, request):
            self._fault.taken_effect = True
            return False
        if not passed_on:
            frame = self._fault.mutate_request(frame)
            request = read_request(frame)
        if request.has_reply:
            self._unanswered.append(request)
        self._send(frame[passed_on:])
        return True

    def _send(self, data: bytes | bytearray) -> None:
        with suppress(OSError):  # the broker closed the connection; _pass_replies handles that
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
                self._forward_close()

    def _pass_reply(self, frame: bytes) -> None:
        request = self._unanswered.popleft() if self._unanswered else SentRequest()
        if self._fault.matches(Silence, request):
            self._fault.taken_effect = self._drops_replies = True
        if self._drops_replies:
            return
        frame = self._fault.mutate_reply(self._proxy.rewrite_addresses(frame, request), request)
        if self._fault.matches(OutOfTurn, request) and not self._delayed_reply:
            self._delayed_reply, self._fault.taken_effect = frame, True
            return
        self._client.sendall(frame + self._delayed_reply)
        self._delayed_reply = b""

    def _forward_close(self) -> None:
        """Close the client connection after the broker's, or keep it open if that is the defect."""
        self._fault.taken_effect |= isinstance(self._fault.defect, StaysOpen | Crash)
        if isinstance(self._fault.defect, StaysOpen):
            self._client.sendall(STRAY_BYTES)
        else:
            self._client.shutdown(socket.SHUT_RDWR)


def _whole_frames(buffer: bytearray) -> list[bytes]:
    """Remove complete frames from the buffer, size included; after an invalid size the rest is one frame."""
    frames = []
    while len(buffer) >= 4:
        size = int.from_bytes(buffer[:4], "big", signed=True)
        end = 4 + size if 0 <= size <= MAX_FRAME else len(buffer)
        if len(buffer) < end:
            break
        frames.append(bytes(buffer[:end]))
        del buffer[:end]
    return frames

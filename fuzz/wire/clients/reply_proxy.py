"""A proxy for one broker that mutates replies on their way to a client, which is another program.

Each connection has two threads: one forwards the client's bytes and notes its requests, the other one reads replies. An
address of the broker in a reply is replaced by the proxy's, because the client would bypass the proxy otherwise.
"""

import socket
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from highwater.conformance.self_test.faults import PlantedDefect, SentRequest, read_request, rewrite_reply, take_frames
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.metadata import DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest
from highwater.reference.wire.messages.produce import ProduceRequest

BACKLOG: Final = 128
CHUNK: Final = 65536
ADDRESS_FIELDS: Final[Mapping[type[Any], tuple[str, ...]]] = {
    MetadataRequest: ("brokers",),
    DescribeClusterRequest: ("brokers",),
    FindCoordinatorRequest: ("coordinators", ""),
    ProduceRequest: ("node_endpoints",),
    FetchRequest: ("node_endpoints",),
}
"""By request, the fields of the reply with broker addresses; an empty name is the reply itself."""


class ReplyProxy:
    """Listens at `address` and applies `fault` to the replies of the broker `upstream`."""

    def __init__(self, upstream: str, fault: PlantedDefect) -> None:
        host, _, port = upstream.rpartition(":")
        self.fault, self._upstream = fault, (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._port = int(self._server.getsockname()[1])
        self.address = f"127.0.0.1:{self._port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._server.accept()[0]
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._upstream) as broker:
            for connection in (client, broker):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            unanswered: deque[SentRequest] = deque()
            replies = threading.Thread(target=self._pass_replies, args=(client, broker, unanswered), daemon=True)
            replies.start()
            with suppress(OSError):
                _pass_requests(client, broker, unanswered)
            with suppress(OSError):
                broker.shutdown(socket.SHUT_RDWR)
            replies.join()

    def _pass_replies(self, client: socket.socket, broker: socket.socket, unanswered: deque[SentRequest]) -> None:
        buffer = bytearray()
        with suppress(OSError):
            with suppress(ConnectionError):
                while data := broker.recv(CHUNK):
                    buffer += data
                    for frame in take_frames(buffer):
                        request = unanswered.popleft() if unanswered else SentRequest()
                        client.sendall(self.fault.mutate_reply(self._with_own_address(frame, request), request))
            client.shutdown(socket.SHUT_RDWR)

    def _with_own_address(self, reply: bytes, request: SentRequest) -> bytes:
        fields = ADDRESS_FIELDS.get(request.api.request, ()) if request.api else ()
        return rewrite_reply(reply, request, lambda message: self._replaced(message, fields)) if fields else reply

    def _replaced(self, message: Any, fields: tuple[str, ...]) -> Any:
        for field in fields:
            if field:
                message = replace(message, **{field: tuple(map(self._at_own_port, getattr(message, field)))})
            else:
                message = self._at_own_port(message)
        return message

    def _at_own_port(self, broker: Any) -> Any:
        return replace(broker, port=self._port) if broker.port == self._upstream[1] else broker


def _pass_requests(client: socket.socket, broker: socket.socket, unanswered: deque[SentRequest]) -> None:
    buffer = bytearray()
    while data := client.recv(CHUNK):
        buffer += data
        # Before the broker gets a request: its reply may arrive before this thread continues.
        unanswered.extend(request for frame in take_frames(buffer) if (request := read_request(frame)).has_reply)
        broker.sendall(data)

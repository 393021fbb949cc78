"""A proxy before a real broker that spoils its replies in one way: a broker with a defect that the suite must see."""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from reference.wire.errors import WireError
from reference.wire.framing import FrameReader, decode_request_header, decode_response, encode_response
from reference.wire.registry import APIS

Reply = bytes
"""A whole frame, size included."""
Mutation = Callable[[int, int, Reply], Reply]
"""Key and version of the request, and the reply to spoil."""
MAX_FRAME: Final = 1 << 26


def _edit(key: int, change: Callable[[Any], Any]) -> Mutation:
    """Change the decoded message of one API."""

    def mutate(api_key: int, version: int, reply: Reply) -> Reply:
        if api_key != key:
            return reply
        with suppress(WireError):
            correlation_id, message = decode_response(APIS[key], version, reply[4:])
            return encode_response(change(message), version, correlation_id)
        return reply

    return mutate


def _parts(field: str, inner: str, **fields: Any) -> Callable[[Any], Any]:
    """Set fields of every partition; a function as value gets the old one."""

    def one(part: Any) -> Any:
        return replace(
            part, **{name: new(getattr(part, name)) if callable(new) else new for name, new in fields.items()}
        )

    def change(message: Any) -> Any:
        groups = tuple(
            replace(group, **{inner: tuple(map(one, getattr(group, inner)))}) for group in getattr(message, field)
        )
        return replace(message, **{field: groups})

    return change


def _wrong_correlation_id(key: int, version: int, reply: Reply) -> Reply:
    """Of negative ones only: a broker that got all wrong could not even be found."""
    correlation_id = struct.unpack_from(">i", reply, 4)[0]
    return reply[:4] + struct.pack(">i", abs(correlation_id) & 0x7FFFFFFF) + reply[8:]


def _tagged_api_versions(key: int, version: int, reply: Reply) -> Reply:
    if key != 18 or version < 3:
        return reply
    return struct.pack(">i", len(reply) - 3) + reply[4:8] + b"\0" + reply[8:]


MUTATIONS: Final[dict[str, Mutation]] = {
    "wrong correlation id": _wrong_correlation_id,
    "tags in the header of ApiVersions": _tagged_api_versions,
    "Produce forgets its error": _edit(0, _parts("responses", "partition_responses", error_code=0)),
    "Produce shifts its offset": _edit(0, _parts("responses", "partition_responses", base_offset=lambda at: at + 1)),
    "Fetch forgets its error": _edit(1, _parts("responses", "partitions", error_code=0)),
    "Fetch loses the records": _edit(1, _parts("responses", "partitions", records=b"")),
    "ListOffsets shifts its offset": _edit(2, _parts("topics", "partitions", offset=lambda at: at + 1)),
    "Metadata names a stranger as leader": _edit(3, _parts("topics", "partitions", replica_nodes=(9,))),
    "Metadata forgets its error": _edit(
        3, lambda m: replace(m, topics=tuple(replace(t, error_code=0) for t in m.topics))
    ),
    "Heartbeat forgets its error": _edit(12, lambda message: replace(message, error_code=0)),
    "JoinGroup shifts its generation": _edit(11, lambda m: replace(m, generation_id=m.generation_id * 2)),
    "SyncGroup spoils the assignment": _edit(14, lambda m: replace(m, assignment=m.assignment + b"x")),
    "OffsetFetch forgets": _edit(
        9, lambda m: replace(m, groups=tuple(replace(g, topics=()) for g in m.groups), topics=())
    ),
    "OffsetForLeaderEpoch shifts": _edit(23, _parts("topics", "partitions", end_offset=lambda at: at + 1)),
    "answers instead of disconnecting": lambda key, version, reply: reply,
}


class MutantProxy:
    """Listens on `address`; each connection is passed on to `upstream`, replies through the mutation.

    Metadata and FindCoordinator name the proxy, so that nobody finds a way around it. Not for acks 0: no reply.
    """

    def __init__(self, upstream: str, name: str) -> None:
        self._upstream, self._mutation = upstream, MUTATIONS[name]
        self._stays_open = name == "answers instead of disconnecting"
        self._server = socket.create_server(("127.0.0.1", 0))
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
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        host, _, port = self._upstream.rpartition(":")
        asked: list[tuple[int, int]] = []
        with client, socket.create_connection((host, int(port))) as broker, suppress(OSError):
            back = threading.Thread(target=self._replies, args=(broker, client, asked), daemon=True)
            back.start()
            requests = FrameReader(MAX_FRAME)
            while data := client.recv(65536):
                with suppress(WireError):
                    for frame in requests.feed(data):
                        header, _ = decode_request_header(frame)
                        asked.append((header.api_key, header.api_version))
                broker.sendall(data)
            broker.shutdown(socket.SHUT_WR)

    def _replies(self, broker: socket.socket, client: socket.socket, asked: list[tuple[int, int]]) -> None:
        replies = FrameReader(MAX_FRAME)
        with suppress(OSError):
            while data := broker.recv(65536):
                for frame in replies.feed(data):
                    key, version = asked.pop(0)
                    whole = self._renamed(key, version, struct.pack(">i", len(frame)) + frame)
                    client.sendall(self._mutation(key, version, whole))
            if self._stays_open:
                client.sendall(struct.pack(">ii", 4, 7))
            client.shutdown(socket.SHUT_RDWR)

    def _renamed(self, key: int, version: int, reply: Reply) -> Reply:
        """Whoever asks where the broker is hears the proxy's port."""
        if key == 3:
            return _edit(3, lambda m: replace(m, brokers=tuple(replace(b, port=self.port) for b in m.brokers)))(
                key, version, reply
            )
        if key == 10:
            return _edit(10, self._coordinator)(key, version, reply)
        return reply

    def _coordinator(self, message: Any) -> Any:
        many = tuple(replace(each, port=self.port) for each in message.coordinators)
        return replace(message, coordinators=many) if many else replace(message, port=self.port)

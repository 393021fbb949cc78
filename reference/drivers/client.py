"""A blocking client for tools: requests in a version that both sides know, to any broker, ours or Apache Kafka's."""

import itertools
import socket
from types import TracebackType
from typing import Any, Final, Self

from reference.drivers.access import CLIENT_ID, Access
from reference.security.scram import AuthenticationError
from reference.wire.errors import ErrorCode, WireError
from reference.wire.framing import FrameReader, decode_response, encode_request
from reference.wire.messages.api_versions import ApiVersionsRequest
from reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from reference.wire.registry import api_of
from spec.formats.verdict import UsageError

MAX_REPLY: Final = 256 * 1024 * 1024
TIMEOUT_S: Final = 30.0
PLAINTEXT: Final = Access()
NEWEST: Final = {0: 12, 1: 12, 8: 9, 9: 7, 10: 3, 20: 5}
"""Beyond these, topics have ids only (KIP-516), or many groups share one request (KIP-699, KIP-709)."""


class Connection:
    """To one broker. `UsageError` when it cannot be reached, breaks off, or does not know a request."""

    def __init__(self, address: str, access: Access, *, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise UsageError("expected HOST:PORT", where=address, mend="e.g. --bootstrap-server localhost:9092")
        self.address = address
        self._correlation_ids = itertools.count(1)
        self._reader = FrameReader(MAX_REPLY)
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
            if access.context is not None:
                self._socket = access.context.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise UsageError(f"cannot connect ({error})", where=address, mend="is a broker listening there?") from error
        try:
            self._introduce(access)
            reply = self.exchange(ApiVersionsRequest(), 0)
        except BaseException:
            self.close()
            raise
        self._advertised = {each.api_key: (each.min_version, each.max_version) for each in reply.api_keys}

    def _introduce(self, access: Access) -> None:
        login = access.login()
        if login is None:
            return
        try:
            answer: bytes | None = login.first()
            while answer is not None:
                self._socket.sendall(answer)
                answer = login.receive(self._frame())
        except (OSError, WireError, AuthenticationError) as error:
            raise UsageError(f"cannot log in ({error})", where=self.address, mend="see --command-config") from error

    def call(self, request: object) -> Any:
        """The reply in the newest version that both know."""
        return self.exchange(request, self._version_of(type(request)))

    def _version_of(self, request: type[Any]) -> int:
        api = api_of(request)
        lowest, highest = self._advertised.get(api.key, (0, -1))
        version: int = min(highest, api.max_version, NEWEST.get(api.key, highest))
        if version < max(lowest, api.min_version):
            raise UsageError(f"this broker does not serve {api.name}", where=self.address)
        return version

    def exchange(self, request: object, version: int) -> Any:
        correlation_id = next(self._correlation_ids)
        try:
            self._socket.sendall(encode_request(request, version, correlation_id, CLIENT_ID))
            _, reply = decode_response(type(request), version, self._frame())
        except (OSError, WireError) as error:
            name = api_of(type(request)).name
            raise UsageError(
                f"no answer to {name} ({error})", where=self.address, mend="see the broker's log"
            ) from error
        return reply

    def _frame(self) -> bytes:
        while True:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("it closed the connection")
            frames = self._reader.feed(data)
            if frames:
                return frames[0]

    def close(self) -> None:
        self._socket.close()


class ClusterClient:
    """Connections to the brokers of one cluster, opened when they are first needed."""

    def __init__(self, bootstrap: str, access: Access = PLAINTEXT, *, timeout_s: float = TIMEOUT_S) -> None:
        self._access, self._timeout_s = access, timeout_s
        self._connections: dict[str, Connection] = {}
        self._bootstrap = bootstrap.split(",")
        self._any = self._first()

    def _first(self) -> Connection:
        refused: UsageError | None = None
        for address in self._bootstrap:
            try:
                return self.to(address)
            except UsageError as error:
                refused = error
        assert refused is not None
        raise refused

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for connection in self._connections.values():
            connection.close()

    def to(self, address: str) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(address, self._access, timeout_s=self._timeout_s)
        return self._connections[address]

    def call(self, request: object) -> Any:
        """Ask whichever broker we are connected to."""
        return self._any.call(request)

    def metadata(self, *topics: str) -> MetadataResponse:
        """Of these topics, or of all; UsageError for one that does not exist."""
        wanted = tuple(MetadataRequestTopic(name=topic) for topic in topics) if topics else None
        reply: MetadataResponse = self.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        for topic in reply.topics:
            if topic.error_code not in {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE}:
                refuse(topic.error_code, str(topic.name))
        return reply

    def brokers(self) -> MetadataResponse:
        """Brokers and controller, and no topic."""
        reply: MetadataResponse = self.call(MetadataRequest(topics=(), allow_auto_topic_creation=False))
        return reply

    def addresses(self) -> dict[int, str]:
        return {broker.node_id: f"{broker.host}:{broker.port}" for broker in self.brokers().brokers}

    def broker(self, broker_id: int) -> Connection:
        addresses = self.addresses()
        if broker_id not in addresses:
            raise UsageError(f"broker {broker_id} is not alive", where=self._any.address)
        return self.to(addresses[broker_id])

    def controller(self) -> Connection:
        return self.broker(self.brokers().controller_id)


def refuse(error_code: int, where: str, message: str | None = None) -> None:
    """UsageError with the broker's reason, unless there is none."""
    if error_code != ErrorCode.NONE:
        name = ErrorCode(error_code).name if error_code in set(ErrorCode) else f"error {error_code}"
        raise UsageError(f"{name}: {message}" if message else name, where=where)

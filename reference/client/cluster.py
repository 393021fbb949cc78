"""A blocking client for the command-line tools; it works with this broker and with Apache Kafka."""

from types import TracebackType
from typing import Any, Final, Self

from highwater.errors import UsageError
from highwater.reference.client.access import CLIENT_ID, PLAINTEXT, Access
from highwater.reference.client.connection import AccessError, Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.client.versions import NEWEST_OF_TOOLS
from highwater.reference.wire.errors import ErrorCode, WireError
from highwater.reference.wire.messages.metadata import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from highwater.reference.wire.registry import api_of

MAX_REPLY: Final = 256 * 1024 * 1024
TIMEOUT_S: Final = 30.0


class BrokerConnection:
    """A connection to one broker. Raises UsageError if it is unreachable, disconnects, or lacks an API."""

    def __init__(self, address: str, access: Access, *, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise UsageError("expected HOST:PORT", where=address, hint="e.g. --bootstrap-server localhost:9092")
        self.address = address
        try:
            self._connection = Connection(
                address, timeout_s=timeout_s, access=access, client_id=CLIENT_ID, max_frame=MAX_REPLY
            )
        except AccessError as error:
            raise UsageError(
                f"cannot log in ({error})", where=address, hint="check the file given with --command-config"
            ) from error
        except OSError as error:
            raise UsageError(
                f"cannot connect ({error})", where=address, hint="start a broker there, or give another address"
            ) from error
        try:
            reply = self.exchange(ApiVersionsRequest(), 0)
        except BaseException:
            self.close()
            raise
        self._advertised = {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}

    def call(self, request: object) -> Any:
        """Send a request in the newest version that both sides support; return the response body."""
        return self.exchange(request, self._version_of(type(request)))

    def _version_of(self, request: type[Any]) -> int:
        api = api_of(request)
        lowest, highest = self._advertised.get(api.key, (0, -1))
        version: int = min(highest, api.max_version, NEWEST_OF_TOOLS.get(api.key, highest))
        if version < max(lowest, api.min_version):
            raise UsageError(f"this broker does not serve {api.name}", where=self.address)
        return version

    def exchange(self, request: object, version: int) -> Any:
        try:
            return self._connection.exchange(request, version)
        except (ConnectionClosedError, ReplyTimeoutError, WireError) as error:
            name = api_of(type(request)).name
            raise UsageError(
                f"no response to {name} ({error})", where=self.address, hint="see the broker's log"
            ) from error

    def close(self) -> None:
        self._connection.close()


class ClusterClient:
    """Connections to the brokers of one cluster, opened on first use."""

    def __init__(self, bootstrap: str, access: Access = PLAINTEXT, *, timeout_s: float = TIMEOUT_S) -> None:
        self._access, self._timeout_s = access, timeout_s
        self._connections: dict[str, BrokerConnection] = {}
        self._bootstrap = bootstrap.split(",")
        self._bootstrap_connection = self._connect_to_first()

    def _connect_to_first(self) -> BrokerConnection:
        last_error: UsageError | None = None
        for address in self._bootstrap:
            try:
                return self.to(address)
            except UsageError as error:
                last_error = error
        assert last_error is not None
        raise last_error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for connection in self._connections.values():
            connection.close()

    def to(self, address: str) -> BrokerConnection:
        if address not in self._connections:
            self._connections[address] = BrokerConnection(address, self._access, timeout_s=self._timeout_s)
        return self._connections[address]

    def call(self, request: object) -> Any:
        """Send a request to the bootstrap broker; return the response body."""
        return self._bootstrap_connection.call(request)

    def metadata(self, *topics: str) -> MetadataResponse:
        """Return the metadata of these topics, or of all; raise UsageError if one does not exist."""
        requested = tuple(MetadataRequestTopic(name=topic) for topic in topics) if topics else None
        reply: MetadataResponse = self.call(MetadataRequest(topics=requested, allow_auto_topic_creation=False))
        for topic in reply.topics:
            if topic.error_code not in {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE}:
                refuse(topic.error_code, str(topic.name))
        return reply

    def brokers(self) -> MetadataResponse:
        """Return the metadata of the brokers and the controller, without topics."""
        reply: MetadataResponse = self.call(MetadataRequest(topics=(), allow_auto_topic_creation=False))
        return reply

    def addresses(self) -> dict[int, str]:
        return {broker.node_id: f"{broker.host}:{broker.port}" for broker in self.brokers().brokers}

    def broker(self, broker_id: int) -> BrokerConnection:
        addresses = self.addresses()
        if broker_id not in addresses:
            raise UsageError(f"broker {broker_id} is not alive", where=self._bootstrap_connection.address)
        return self.to(addresses[broker_id])

    def controller(self) -> BrokerConnection:
        return self.broker(self.brokers().controller_id)


def refuse(error_code: int, where: str, message: str | None = None) -> None:
    """Raise UsageError with the name of an error code and the broker's message, unless the code is NONE."""
    if error_code != ErrorCode.NONE:
        name = ErrorCode(error_code).name if error_code in set(ErrorCode) else f"error {error_code}"
        raise UsageError(f"{name}: {message}" if message else name, where=where)

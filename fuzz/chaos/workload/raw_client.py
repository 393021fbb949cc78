"""A raw client that returns fields which client libraries hide: high watermark, log start offset, leader epoch."""

import contextlib
from dataclasses import dataclass
from typing import Any

from highwater.reference.client.connection import Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import ErrorCode, WireError
from highwater.reference.wire.log_entries import decode_entry, entries
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from highwater.reference.wire.registry import api_of

# The newest versions that this client supports.
METADATA_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION, FIND_COORDINATOR_VERSION = 9, 11, 5, 2
LATEST = -1
CONSUMER = -1
FRAME_MAX = 64 * 1024 * 1024


class RawError(Exception):
    """A request failed; `code` is the error code of the response, or None if there was no response."""

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code


class RawConnection:
    """One connection with one request at a time; raises RawError for every failure on it."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self._connection = Connection(address, timeout_s=timeout_s, client_id="highwater-raw", max_frame=FRAME_MAX)
        self._newest: dict[int, int] = {}

    def newest(self) -> dict[int, int]:
        """Return the newest version of each API that the broker knows."""
        if not self._newest:
            reply = self._exchange(ApiVersionsRequest(), 0)
            self._newest = {api.api_key: api.max_version for api in reply.api_keys}
        return self._newest

    def ask(self, body: Any, version: int) -> Any:
        """Return the response, in the newest version up to `version` that the broker knows."""
        key = api_of(type(body)).key
        known = self.newest().get(key)
        if known is None:
            raise RawError(f"the broker has no API {key}")
        return self._exchange(body, min(version, known))

    def _exchange(self, body: Any, version: int) -> Any:
        try:
            return self._connection.exchange(body, version)
        except ConnectionClosedError as error:
            raise RawError("disconnected") from error
        except (ReplyTimeoutError, WireError) as error:
            raise RawError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader of a partition, its address and epoch, and the replicas of the partition."""

    node: int
    address: str
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """The response to a fetch of one partition; `records` are (offset, integer value)."""

    records: list[tuple[int, int]]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    next_offset: int


class RawClient:
    """Sends requests to brokers by address; an error closes the connection, and the next request opens a new one."""

    def __init__(self, bootstrap: str, timeout_s: float = 2.0) -> None:
        self._bootstrap = bootstrap.split(",")
        self._timeout_s = timeout_s
        self._connections: dict[str, RawConnection] = {}

    def ask(self, address: str, body: Any, version: int) -> Any:
        """Return the response of the broker at `address`; RawError if there is none."""
        try:
            connection = self._connections.get(address)
            if connection is None:
                connection = self._connections[address] = RawConnection(address, self._timeout_s)
            return connection.ask(body, version)
        except (RawError, OSError) as error:
            dead = self._connections.pop(address, None)
            if dead is not None:
                dead.close()
            raise error if isinstance(error, RawError) else RawError(str(error)) from error

    def newest(self) -> dict[int, int]:
        """Return the newest version of each API on the first broker that answers; RawError if none does."""
        for address in self._bootstrap:
            with contextlib.suppress(OSError, RawError):
                connection = RawConnection(address, self._timeout_s)
                try:
                    return connection.newest()
                finally:
                    connection.close()
        raise RawError("no broker to ask")

    def ask_any(self, body: Any, version: int, avoid: frozenset[str] = frozenset()) -> Any:
        """Return the response of the first broker that answers; RawError if none does."""
        last = RawError("no broker to ask")
        for address in self._bootstrap:
            if address not in avoid:
                try:
                    return self.ask(address, body, version)
                except RawError as error:
                    last = error
        raise last

    def metadata(self, topic: str | None, avoid: frozenset[str] = frozenset()) -> tuple[Any, dict[int, Leadership]]:
        """Return the Metadata response of the first broker that answers, and the leadership of each partition."""
        # All topics are requested, because a 0.10 broker may create a topic that is requested by name.
        reply = self.ask_any(MetadataRequest(topics=None), METADATA_VERSION, avoid)
        addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in reply.brokers}
        leaders = {
            p.partition_index: Leadership(
                p.leader_id, addresses.get(p.leader_id, ""), p.leader_epoch, p.isr_nodes, p.replica_nodes
            )
            for t in reply.topics
            if t.name == topic
            for p in t.partitions
        }
        return reply, leaders

    def coordinator(self, group: str, avoid: frozenset[str] = frozenset()) -> int:
        """Return the id of the coordinator of a group, or -1."""
        return int(self.ask_any(FindCoordinatorRequest(key=group), FIND_COORDINATOR_VERSION, avoid).node_id)

    def coordinator_address(self, group: str) -> str:
        """Return host:port of the coordinator of a group; RawError if the response has an error."""
        reply = self.ask_any(FindCoordinatorRequest(key=group), FIND_COORDINATOR_VERSION)
        if reply.error_code != ErrorCode.NONE:
            raise RawError(ErrorCode(reply.error_code).name, ErrorCode(reply.error_code))
        return f"{reply.host}:{reply.port}"

    def fetch(self, leader: Leadership, topic: str, partition: int, offset: int, max_wait_ms: int = 200) -> Fetched:
        """Fetch from `offset`; RawError if the response has an error."""
        requested = FetchPartition(
            partition=partition, current_leader_epoch=leader.leader_epoch, fetch_offset=offset,
            partition_max_bytes=1 << 20,
        )  # fmt: skip
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=8 << 20, session_epoch=-1,
            topics=(FetchTopic(topic=topic, partitions=(requested,)),),
        )  # fmt: skip
        data = self.ask(leader.address, request, FETCH_VERSION).responses[0].partitions[0]
        if data.error_code != ErrorCode.NONE:
            raise RawError(ErrorCode(data.error_code).name, ErrorCode(data.error_code))
        records, next_offset = [], offset
        for position, header in entries(data.records or b""):
            for record in decode_entry(data.records, position)[1]:
                if record.offset >= offset and not header.is_control:
                    records.append((record.offset, int(record.value or b"-1")))
            next_offset = max(next_offset, header.next_offset)
        return Fetched(records, data.high_watermark, data.last_stable_offset, data.log_start_offset, next_offset)

    def list_latest(self, leader: Leadership, topic: str, partition: int) -> int:
        """Return the latest offset that the leader returns; RawError if the response has an error."""
        requested = ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=leader.leader_epoch, timestamp=LATEST
        )
        request = ListOffsetsRequest(
            replica_id=CONSUMER, topics=(ListOffsetsTopic(name=topic, partitions=(requested,)),)
        )
        data = self.ask(leader.address, request, LIST_OFFSETS_VERSION).topics[0].partitions[0]
        if data.error_code != ErrorCode.NONE:
            raise RawError(ErrorCode(data.error_code).name, ErrorCode(data.error_code))
        return int(data.offset)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

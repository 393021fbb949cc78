"""A transactional producer built from single requests, and helpers that read what isolation levels return."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from highwater.conformance.cases.support.producers import init_producer_id, sequenced
from highwater.conformance.client.broker import Broker, Topic, produce_request, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.errors import TRANSACTION_NOT_READY
from highwater.reference.wire.messages.fetch import PartitionData
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, FindCoordinatorRequest
from highwater.reference.wire.messages.produce import PartitionProduceResponse, ProduceRequest
from highwater.reference.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from highwater.reference.wire.records import Record, batch_headers, decode_records

TRANSACTION_KEY: Final = 1
COMMIT, ABORT = True, False
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
BATCHED_COORDINATORS: Final = 4
CLASSIC_VERSIONS: Final = {
    ProduceRequest: 11,
    AddPartitionsToTxnRequest: 3,
    EndTxnRequest: 4,
    TxnOffsetCommitRequest: 4,
}
"""The newest versions for transaction.version below 2, where clients add partitions themselves (KIP-890)."""
TIMEOUT_MS: Final = 60_000
NEW_PRODUCE: Final = 12
NEW_END: Final = 5
NEW_OFFSETS: Final = 5


class Transactional:
    """A transactional producer; requests are repeated while the previous transaction is still completing."""

    def __init__(self, cluster: Cluster, transactional_id: str = "", *, timeout_ms: int | None = None) -> None:
        self._cluster = cluster
        allowed_ms = cluster.within(TIMEOUT_MS, at_most="transaction_max_timeout_ms")
        self.timeout_ms = allowed_ms if timeout_ms is None else timeout_ms
        self.id = transactional_id or cluster.name("x")
        self.coordinator = cluster.connect(coordinator_of(cluster, self.id))
        self.producer_id, self.epoch = -1, -1

    @classmethod
    def initialize(cls, cluster: Cluster, **fields: Any) -> "Transactional":
        found = cls(cluster, **fields)
        expect("error code of InitProducerId", 0, found.init().error_code)
        return found

    def init(self, version: int | None = None, **fields: Any) -> Any:
        """Send InitProducerId and return the reply; id and epoch are taken unless it is an error."""
        named = {"transactional_id": self.id, "transaction_timeout_ms": self.timeout_ms, **fields}
        reply = init_producer_id(self._cluster, self.coordinator, version, **named)
        if not reply.error_code:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
        return reply

    def reconnect(self) -> "Transactional":
        """Return the same producer with a connection to its present coordinator."""
        again = Transactional(self._cluster, self.id, timeout_ms=self.timeout_ms)
        again.producer_id, again.epoch = self.producer_id, self.epoch
        return again

    def _retry_until_ready(self, what: str, send_request: Any) -> Any:
        def once() -> Any:
            reply, error = send_request()
            return None if error in TRANSACTION_NOT_READY else (reply, error)

        return self._cluster.eventually(f"{what} to be possible", once, 15.0)

    def _version(self, request: type[Any], broker: Broker | None = None) -> int:
        return min((broker or self.coordinator).version_of(request), CLASSIC_VERSIONS[request])

    # -- requests of a transaction ---------------------------------------------------------------------

    def add(self, *topics: Topic, version: int | None = None) -> dict[str, int]:
        """Send AddPartitionsToTxn and return the error codes by topic."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id, v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=topic.name, partitions=(topic.partition,)) for topic in topics
            ),
        )  # fmt: skip
        chosen = self._version(AddPartitionsToTxnRequest) if version is None else version

        def send_request() -> tuple[dict[str, int], int]:
            reply = self.coordinator.call(request, chosen)
            found = {
                topic.name: only(topic.results_by_partition).partition_error_code
                for topic in reply.results_by_topic_v3_and_below
            }
            return found, max(found.values(), default=0)

        found: dict[str, int] = self._retry_until_ready("AddPartitionsToTxn", send_request)[0]
        return found

    def begin(self, *topics: Topic) -> None:
        """Add partitions to the transaction, as clients must before they write to them."""
        expect("error codes of AddPartitionsToTxn", True, self.add(*topics) == {topic.name: 0 for topic in topics})

    def produce(
        self, topic: Topic, sequence: int, *values: bytes, version: int | None = None, transactional: bool = True,
        transactional_id: str | None = "",
    ) -> PartitionProduceResponse:  # fmt: skip
        """Send a batch, by default in a classic version; `transactional` is the attribute of the batch."""
        written = values or (b"v",)
        records = sequenced(
            self._cluster.clock, self.producer_id, self.epoch, sequence, *written, transactional=transactional
        )
        named = self.id if transactional_id == "" else transactional_id
        request = replace(produce_request(topic, records), transactional_id=named)
        with self._cluster.connect(topic.leader) as leader:
            chosen = self._version(ProduceRequest, leader) if version is None else version

            def send_request() -> tuple[PartitionProduceResponse, int]:
                answer = only(only(leader.call(request, chosen).responses).partition_responses)
                return answer, answer.error_code

            answer: PartitionProduceResponse = self._retry_until_ready("Produce", send_request)[0]
        return answer

    def write(self, topic: Topic, sequence: int, *values: bytes, version: int | None = None) -> int:
        """Send a batch that must be accepted, and return its base offset."""
        answer = self.produce(topic, sequence, *values, version=version)
        expect("error code of Produce", 0, answer.error_code)
        return answer.base_offset

    def add_offsets(self, group: str, version: int | None = None) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )

        def send_request() -> tuple[Any, int]:
            reply = self.coordinator.call(request, version)
            return reply, reply.error_code

        return int(self._retry_until_ready("AddOffsetsToTxn", send_request)[1])

    def commit_offset(
        self, group: str, topic: Topic, offset: int, *, version: int | None = None, **fields: Any
    ) -> int:  # fmt: skip
        """Send TxnOffsetCommit to the coordinator of the group and return the error code."""
        part = TxnOffsetCommitRequestPartition(partition_index=topic.partition, committed_offset=offset)
        topics = (TxnOffsetCommitRequestTopic(name=topic.name, partitions=(part,)),)
        reply = self.commit_offsets(group, topics, version=version, **fields)
        return int(only(only(reply.topics).partitions).error_code)

    def commit_offsets(
        self, group: str, topics: tuple[TxnOffsetCommitRequestTopic, ...], *, version: int | None = None, **fields: Any
    ) -> Any:  # fmt: skip
        """Send TxnOffsetCommit to the coordinator of the group and return the reply."""
        request = TxnOffsetCommitRequest(
            transactional_id=self.id, group_id=group, producer_id=self.producer_id, producer_epoch=self.epoch,
            topics=topics, **fields,
        )  # fmt: skip
        with self._cluster.coordinator(group) as broker:
            chosen = self._version(TxnOffsetCommitRequest, broker) if version is None else version

            def send_request() -> tuple[Any, int]:
                reply = broker.call(request, chosen)
                errors = {part.error_code for topic in reply.topics for part in topic.partitions}
                return reply, next((error for error in errors if error in TRANSACTION_NOT_READY), 0)

            return self._retry_until_ready("TxnOffsetCommit", send_request)[0]

    # -- EndTxn ------------------------------------------------------------------------------------------

    def end_reply(self, *, commit: bool, version: int | None = None) -> Any:
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        chosen = self._version(EndTxnRequest) if version is None else version

        def send_request() -> tuple[Any, int]:
            reply = self.coordinator.call(request, chosen)
            return reply, reply.error_code

        return self._retry_until_ready("EndTxn", send_request)[0]

    def end(self, *, commit: bool, version: int | None = None) -> None:
        """End the transaction; take producer id and epoch of the reply from version 5 on."""
        reply = self.end_reply(commit=commit, version=version)
        expect("error code of EndTxn", 0, reply.error_code)
        if version is not None and version >= NEW_END:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch


def coordinator_of(cluster: Cluster, transactional_id: str) -> str:
    """Wait for the coordinator and return its address."""

    def poll() -> str | None:
        with cluster.connect() as broker:
            found = find_transaction_coordinator(broker, transactional_id)
        address = f"{found.host}:{found.port}"
        return None if found.error_code in TRANSACTION_NOT_READY or address in down else address

    # A broker may name one that has just been stopped, as long as it has not heard of that.
    down = {address for node, address in cluster.target.addresses.items() if not cluster.is_up(node)}
    return cluster.eventually(f"a coordinator of {transactional_id}", poll, 15.0)


def find_transaction_coordinator(broker: Broker, transactional_id: str, version: int | None = None) -> Any:
    chosen = broker.version_of(FindCoordinatorRequest, 1) if version is None else version
    if chosen >= BATCHED_COORDINATORS:
        many = FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=(transactional_id,))
        return only(broker.call(many, chosen).coordinators)
    return broker.call(FindCoordinatorRequest(key_type=TRANSACTION_KEY, key=transactional_id), chosen)


def need_transaction_version(broker: Broker, level: int) -> None:
    """Raise Unsupported unless the finalised transaction.version (KIP-890) is at least `level`."""
    request = ApiVersionsRequest(client_software_name="highwater", client_software_version="1.0")
    reply = broker.call(request, broker.version_of(ApiVersionsRequest, 3))
    found = {feature.name: feature.max_version_level for feature in reply.finalized_features}.get(
        "transaction.version", 0
    )
    if found < level:
        raise Unsupported(f"the case needs transaction.version {level}, the finalised level is {found}")


def code_id_epoch(reply: Any) -> tuple[int, int, int]:
    """Return error code, producer id and epoch of InitProducerId, or of EndTxn from version 5 on."""
    return reply.error_code, reply.producer_id, reply.producer_epoch


# -- reading ----------------------------------------------------------------------------------------------


def fetch_committed(leader: Broker, topic: Topic, offset: int = 0) -> PartitionData:
    return leader.fetch(topic, offset, isolation_level=READ_COMMITTED)


def read_all(leader: Broker, topic: Topic, isolation_level: int = READ_COMMITTED) -> Iterator[PartitionData]:
    """Yield fetches up to the end that the first one reports; a single Fetch stops at the end of a segment."""
    offset, end = 0, -1
    while end < 0 or offset < end:
        part = leader.fetch(topic, offset, isolation_level=isolation_level)
        if end < 0:
            end = part.last_stable_offset if isolation_level == READ_COMMITTED else part.high_watermark
        headers = [header for _, header in batch_headers(part.records or b"")]
        if not headers:
            return
        offset = headers[-1].next_offset
        yield part


def committed_values(leader: Broker, topic: Topic) -> list[bytes | None]:
    """Return the values that a read_committed consumer delivers, filtered by aborted_transactions as in a client."""
    values = list[bytes | None]()
    for part in read_all(leader, topic):
        data, aborting = part.records or b"", set[int]()
        starts = sorted(
            (transaction.first_offset, transaction.producer_id) for transaction in part.aborted_transactions or ()
        )
        for position, header in batch_headers(data):
            while starts and starts[0][0] <= header.last_offset:
                aborting.add(starts.pop(0)[1])
            if header.is_control:
                aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                values += [record.value for record in decode_records(data, position)[1]]
    return values


def stored_records(leader: Broker, topic: Topic) -> list[Record]:
    """Return all records, transaction markers included."""
    return [record for part in read_all(leader, topic, READ_UNCOMMITTED) for record in records_of(part.records)]


def eventually_stable(cluster: Cluster, leader: Broker, topic: Topic, offset: int, timeout_s: float = 10.0) -> None:
    """Wait for the last stable offset, which moves when the markers are written, after the reply of EndTxn."""
    cluster.eventually(
        f"the last stable offset to be {offset}",
        lambda: fetch_committed(leader, topic).last_stable_offset == offset,
        timeout_s,
    )


def describe_transaction(producer: Transactional) -> Any:
    """Return what the coordinator says of the transactional id."""
    return only(
        producer.coordinator.call(DescribeTransactionsRequest(transactional_ids=(producer.id,))).transaction_states
    )

"""A connection that knows what the broker advertises and how to ask the everyday things of one partition."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from highwater.conformance.connection import OPEN, Access, Connection, Patience
from highwater.conformance.exchange import ExchangeLog
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from highwater.reference.wire.messages.metadata import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from highwater.reference.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from highwater.reference.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from highwater.reference.wire.records import NewRecord, Record, batch_headers, build_batch, decode_records
from highwater.reference.wire.registry import APIS, api_of

T = TypeVar("T")
Advertised = Mapping[int, tuple[int, int]]

EVERYDAY: Final = {0: 12, 1: 12, 3: 8, 8: 9, 9: 9}
"""The newest version that helpers use unless a case needs more. From the next one on Produce, Fetch and committed
offsets name topics by id only (KIP-516), and a flexible Metadata that is wrong should fail its own cases, not all."""
NEEDED: Final = {0: 3, 1: 4}
"""What helpers write and read are record batches, which Produce and Fetch carry from here on (KIP-98)."""
CONSUMER: Final = -1
LATEST: Final = -1
EARLIEST: Final = -2
FEATURES_SINCE: Final = 3
ASKS_BEFORE_IT_CREATES: Final = 4
SHORT_WAIT_MS: Final = 5
"""Not 0, which has a case of its own: a broker that then reads nothing should not fail all others."""
NOW_MS: Final = 1_700_000_000_000
"""A timestamp for records whose time does not matter."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One partition of a topic, and where its leader listens."""

    name: str
    leader: str
    leader_id: int
    leader_epoch: int = -1
    partition: int = 0


def batch(*values: bytes | None, timestamp_ms: int = NOW_MS, **fields: Any) -> bytes:
    """A record batch with keys `k0`, `k1`, ...; `fields` as in `build_batch`."""
    records: list[NewRecord] = [(timestamp_ms, b"k%d" % number, value, ()) for number, value in enumerate(values)]
    return build_batch(records, **fields)


def records_of(data: bytes | None) -> list[Record]:
    """All whole batches of a fetch, record by record."""
    return [record for position, _ in batch_headers(data or b"") for record in decode_records(data or b"", position)[1]]


class Broker(Connection):
    def __init__(
        self, address: str, advertised: Advertised, *, timeout_s: float = 5.0, log: ExchangeLog | None = None,
        patience: Patience | None = None, access: Access = OPEN,
    ) -> None:  # fmt: skip
        super().__init__(address, timeout_s=timeout_s, log=log, patience=patience, access=access)
        self.advertised = advertised

    def version_of(self, request: type[Any], at_least: int = 0) -> int:
        """The newest version that both sides know; `Unsupported` without one."""
        api = api_of(request)
        lowest, highest = self.advertised.get(api.key, (0, -1))
        everyday = EVERYDAY.get(api.key, api.max_version)
        needed = max(at_least, NEEDED.get(api.key, 0))
        newest = min(highest, api.max_version, everyday if needed <= everyday else api.max_version)
        if newest < max(lowest, api.min_version, needed):
            raise Unsupported(f"{api.name} v{needed} or newer is not advertised")
        return newest

    def need(self, request: type[Any], version: int) -> None:
        """`Unsupported` unless this very version is advertised."""
        api = api_of(request)
        lowest, highest = self.advertised.get(api.key, (0, -1))
        if not lowest <= version <= highest:
            raise Unsupported(f"{api.name} v{version} is not advertised")

    def call(self, request: object, version: int | None = None, timeout_s: float | None = None) -> Any:
        """One request and its reply, by default in the newest version."""
        chosen = self.version_of(type(request)) if version is None else version
        self.need(type(request), chosen)
        return self.exchange(request, chosen, timeout_s)

    def metadata(self, *names: str, version: int | None = None) -> MetadataResponse:
        """Without creating them, where the version can say so."""
        chosen = self.version_of(MetadataRequest) if version is None else version
        topics = tuple(MetadataRequestTopic(name=name) for name in names)
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=chosen < ASKS_BEFORE_IT_CREATES)
        reply: MetadataResponse = self.call(request, chosen)
        return reply

    def produce(
        self, topic: Topic, records: bytes | None, *, acks: int = -1, version: int | None = None,
        timeout_ms: int = 4000, partition: int | None = None,
    ) -> PartitionProduceResponse:  # fmt: skip
        reply = self.call(produce_request(topic, records, acks, timeout_ms, partition), version, timeout_ms / 1000 + 5)
        answer: PartitionProduceResponse = only(only(reply.responses).partition_responses)
        return answer

    def fetch(
        self, topic: Topic, offset: int, *, max_wait_ms: int = SHORT_WAIT_MS, min_bytes: int = 1,
        max_bytes: int = 1 << 20, version: int | None = None, leader_epoch: int = -1, timeout_s: float | None = None,
        **fields: Any,
    ) -> PartitionData:  # fmt: skip
        part = FetchPartition(
            partition=topic.partition, fetch_offset=offset, partition_max_bytes=max_bytes,
            current_leader_epoch=leader_epoch,
        )  # fmt: skip
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes,
            topics=(FetchTopic(topic=topic.name, partitions=(part,)),), **fields,
        )  # fmt: skip
        reply = self.call(request, version, timeout_s)
        if reply.error_code:
            raise TargetFailure("error code of Fetch", expected="0", actual=str(reply.error_code))
        answer: PartitionData = only(only(reply.responses).partitions)
        return answer

    def list_offset(
        self, topic: Topic, timestamp: int, *, version: int | None = None, leader_epoch: int = -1
    ) -> ListOffsetsPartitionResponse:
        part = ListOffsetsPartition(
            partition_index=topic.partition, timestamp=timestamp, current_leader_epoch=leader_epoch
        )
        request = ListOffsetsRequest(
            replica_id=CONSUMER, topics=(ListOffsetsTopic(name=topic.name, partitions=(part,)),)
        )
        answer: ListOffsetsPartitionResponse = only(only(self.call(request, version).topics).partitions)
        return answer

    def end_offset(self, topic: Topic) -> int:
        answer = self.list_offset(topic, LATEST)
        expect("error code of ListOffsets", 0, answer.error_code)
        return answer.offset


def produce_request(
    topic: Topic, records: bytes | None, acks: int = -1, timeout_ms: int = 4000, partition: int | None = None
) -> ProduceRequest:
    index = topic.partition if partition is None else partition
    data = TopicProduceData(name=topic.name, partition_data=(PartitionProduceData(index=index, records=records),))
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=(data,))


def only(items: tuple[T, ...]) -> T:
    """The one thing that was asked for must be the one thing that is answered."""
    if len(items) != 1:
        raise TargetFailure("entries in the reply", expected="exactly 1", actual=str(len(items)))
    return items[0]


def expect(what: str, expected: object, actual: object) -> None:
    """`expected` may be a set of allowed values."""
    allowed: Collection[object] = expected if isinstance(expected, set | frozenset) else (expected,)
    if actual not in allowed:
        raise TargetFailure(what, expected=" or ".join(sorted(map(str, allowed))), actual=str(actual))


def advertised_by(address: str, timeout_s: float = 5.0, access: Access = OPEN) -> dict[int, tuple[int, int]]:
    """What a broker says that it speaks, by key."""
    with Connection(address, timeout_s=timeout_s, access=access) as connection:
        reply = connection.exchange(ApiVersionsRequest(), 0)
    return {each.api_key: (each.min_version, each.max_version) for each in reply.api_keys if each.api_key in APIS}


def features_of(address: str, access: Access = OPEN) -> dict[str, tuple[int, int]]:
    """The feature levels that the cluster has settled on (KIP-584), lowest and highest; none before ApiVersions 3."""
    request = ApiVersionsRequest(client_software_name="highwater", client_software_version="1")
    try:
        with Connection(address, access=access) as connection:
            reply = connection.exchange(request, FEATURES_SINCE)
    except TargetFailure:
        return {}
    return {each.name: (each.min_version_level, each.max_version_level) for each in reply.finalized_features}

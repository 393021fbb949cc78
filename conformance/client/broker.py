"""A connection that chooses versions by ApiVersions, with helpers for the usual requests on one partition."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from highwater.conformance.client.connection import OPEN, Access, Connection, WaitLimit
from highwater.conformance.client.exchange import ExchangeLog
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.reference.client.transport import Clock
from highwater.reference.client.versions import NEWEST_OF_CASES, OLDEST_OF_CASES
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.framing import decode_response
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
AdvertisedVersions = Mapping[int, tuple[int, int]]

BY_ID_SINCE: Final = 13
"""First version of Produce and of Fetch that names topics by id only; below, the id is not sent."""
TOPIC_ID_SINCE: Final = 10
CONSUMER: Final = -1
LATEST: Final = -1
EARLIEST: Final = -2
FEATURES_SINCE: Final = 3
AUTO_CREATION_FLAG_SINCE: Final = 4
SHORT_WAIT_MS: Final = 5
"""Not 0: a broker that returns nothing for max_wait_ms 0 should fail only the case about it."""
NOW_MS: Final = 1_700_000_000_000
"""A fixed timestamp for records, 14 November 2023."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One partition of a topic and the address of its leader."""

    name: str
    leader: str
    leader_id: int
    leader_epoch: int = -1
    partition: int = 0


def now_ms(clock: Clock) -> int:
    """Return the wall clock in milliseconds, as timestamps of records have it."""
    return int(clock.time() * 1000)


def batch(*values: bytes | None, timestamp_ms: int = NOW_MS, **fields: Any) -> bytes:
    """Build a record batch with keys `k0`, `k1`, ...; `fields` as in `build_batch`."""
    records: list[NewRecord] = [(timestamp_ms, b"k%d" % number, value, ()) for number, value in enumerate(values)]
    return build_batch(records, **fields)


def records_of(data: bytes | None) -> list[Record]:
    """Decode the records of all complete batches in the data of a Fetch."""
    return [record for position, _ in batch_headers(data or b"") for record in decode_records(data or b"", position)[1]]


class Broker(Connection):
    """A connection to a broker whose supported versions are known."""

    def __init__(
        self, address: str, advertised: AdvertisedVersions, *, timeout_s: float = 5.0, log: ExchangeLog | None = None,
        wait_limit: WaitLimit | None = None, access: Access = OPEN,
    ) -> None:  # fmt: skip
        super().__init__(address, timeout_s=timeout_s, log=log, wait_limit=wait_limit, access=access)
        self.advertised = advertised
        self._topic_ids: dict[str, bytes] = {}

    def version_of(self, request: type[Any], at_least: int = 0) -> int:
        """Return the newest version that both sides support; raises Unsupported if there is none."""
        api = api_of(request)
        lowest, highest = self.advertised.get(api.key, (0, -1))
        everyday = NEWEST_OF_CASES.get(api.key, api.max_version)
        needed = max(at_least, OLDEST_OF_CASES.get(api.key, 0))
        newest = min(highest, api.max_version, everyday if needed <= everyday else api.max_version)
        if newest < max(lowest, api.min_version, needed):
            raise Unsupported(f"{api.name} v{needed} or newer is not advertised")
        return newest

    def need(self, request: type[Any], version: int) -> None:
        """Raise Unsupported unless the broker advertises this version."""
        api = api_of(request)
        lowest, highest = self.advertised.get(api.key, (0, -1))
        if not lowest <= version <= highest:
            raise Unsupported(f"{api.name} v{version} is not advertised")

    def call(self, request: object, version: int | None = None, timeout_s: float | None = None) -> Any:
        """Send a request and return the reply, by default in the newest common version."""
        chosen = self.version_of(type(request)) if version is None else version
        self.need(type(request), chosen)
        return self.exchange(request, chosen, timeout_s)

    def metadata(self, *names: str, version: int | None = None) -> MetadataResponse:
        """Describe topics, without auto-creation from version 4 on."""
        chosen = self.version_of(MetadataRequest) if version is None else version
        topics = tuple(MetadataRequestTopic(name=name) for name in names)
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=chosen < AUTO_CREATION_FLAG_SINCE)
        reply: MetadataResponse = self.call(request, chosen)
        return reply

    def topic_id(self, topic: Topic) -> bytes:
        """Return the id by which Produce and Fetch name a topic from version 13 on (KIP-516)."""
        if topic.name not in self._topic_ids:
            self._topic_ids[topic.name] = only(self.metadata(topic.name, version=TOPIC_ID_SINCE).topics).topic_id
        return self._topic_ids[topic.name]

    def produce(
        self, topic: Topic, records: bytes | None, *, acks: int = -1, version: int | None = None,
        timeout_ms: int = 4000, partition: int | None = None,
    ) -> PartitionProduceResponse:  # fmt: skip
        request = produce_request(topic, records, acks, timeout_ms, partition)
        if version is not None and version >= BY_ID_SINCE:
            self.need(ProduceRequest, version)
            named = replace(only(request.topic_data), topic_id=self.topic_id(topic))
            request = replace(request, topic_data=(named,))
        reply = self.call(request, version, timeout_ms / 1000 + 5)
        result: PartitionProduceResponse = only(only(reply.responses).partition_responses)
        return result

    def fetch(
        self, topic: Topic, offset: int, *, max_wait_ms: int = SHORT_WAIT_MS, min_bytes: int = 1,
        max_bytes: int = 1 << 20, version: int | None = None, leader_epoch: int = -1, timeout_s: float | None = None,
        **fields: Any,
    ) -> PartitionData:  # fmt: skip
        request = fetch_request(
            topic, offset=offset, part_bytes=max_bytes, leader_epoch=leader_epoch, max_wait_ms=max_wait_ms,
            min_bytes=min_bytes, max_bytes=max_bytes, **fields,
        )  # fmt: skip
        if version is not None and version >= BY_ID_SINCE:
            self.need(FetchRequest, version)
            request = replace(request, topics=(replace(only(request.topics), topic_id=self.topic_id(topic)),))
        reply = self.call(request, version, timeout_s)
        expect("error code of Fetch", 0, reply.error_code)
        result: PartitionData = only(only(reply.responses).partitions)
        return result

    def list_offset(
        self, topic: Topic, timestamp: int, *, version: int | None = None, leader_epoch: int = -1, **fields: Any
    ) -> ListOffsetsPartitionResponse:
        part = ListOffsetsPartition(
            partition_index=topic.partition, timestamp=timestamp, current_leader_epoch=leader_epoch
        )
        request = ListOffsetsRequest(
            replica_id=CONSUMER, topics=(ListOffsetsTopic(name=topic.name, partitions=(part,)),), **fields
        )
        result: ListOffsetsPartitionResponse = only(only(self.call(request, version).topics).partitions)
        return result

    def end_offset(self, topic: Topic) -> int:
        result = self.list_offset(topic, LATEST)
        expect("error code of ListOffsets", 0, result.error_code)
        return result.offset


def produce_request(
    topic: Topic, records: bytes | None, acks: int = -1, timeout_ms: int = 4000, partition: int | None = None
) -> ProduceRequest:
    index = topic.partition if partition is None else partition
    data = TopicProduceData(name=topic.name, partition_data=(PartitionProduceData(index=index, records=records),))
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=(data,))


def fetch_request(
    *topics: Topic, offset: int = 0, part_bytes: int = 1 << 20, leader_epoch: int = -1, **fields: Any
) -> FetchRequest:
    """Return a Fetch of at most `part_bytes` of each partition, from the same offset on; `fields` are the request's."""
    named = tuple(
        FetchTopic(topic=topic.name, partitions=(
            FetchPartition(
                partition=topic.partition, fetch_offset=offset, partition_max_bytes=part_bytes,
                current_leader_epoch=leader_epoch,
            ),
        ))
        for topic in topics
    )  # fmt: skip
    return FetchRequest(topics=named, **fields)


def advertised_versions(address: str, timeout_s: float = 5.0, access: Access = OPEN) -> dict[int, tuple[int, int]]:
    """Return the version ranges of ApiVersions by API key, unknown keys left out.

    The reply may be wrong, since cases check it: another correlation id is ignored, and if the body does not decode,
    ApiVersions v0 counts as the only request. Raises TargetFailure if there is no reply that a broker could have sent.
    """
    api = api_of(ApiVersionsRequest)
    with Connection(address, timeout_s=timeout_s, access=access) as connection:
        correlation_id = connection.send(ApiVersionsRequest(), 0)
        frame = connection.receive_frame()
    try:
        reply = decode_response(api, 0, frame)[1]
    except DecodeError as error:
        if not frame.startswith(correlation_id.to_bytes(4, "big")):
            raise TargetFailure(f"the reply to ApiVersions v0 does not decode: {error}") from error
        return {api.key: (0, 0)}
    return {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys if api.api_key in APIS}


def read_finalized_features(address: str, access: Access = OPEN) -> dict[str, tuple[int, int]]:
    """Return the finalised feature levels (KIP-584), lowest and highest; empty if ApiVersions 3 is not supported."""
    request = ApiVersionsRequest(client_software_name="highwater", client_software_version="1")
    try:
        with Connection(address, access=access) as connection:
            reply = connection.exchange(request, FEATURES_SINCE)
    except TargetFailure:
        return {}
    return {
        feature.name: (feature.min_version_level, feature.max_version_level) for feature in reply.finalized_features
    }

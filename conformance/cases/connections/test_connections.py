"""Connections: many at once, pipelined requests, fragmented frames, client and correlation ids."""

import struct

import pytest

from highwater.conformance import CLIENT_ID
from highwater.conformance.cases.support.admin import NAMED, features
from highwater.conformance.clause import KRAFT, clause
from highwater.conformance.client.broker import Broker, Topic, batch, fetch_request, produce_request, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Garbled, HangUp, OneSegment, OutOfTurn, Reply, Silence, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, MetadataRequest
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.registry import APIS, api_of

MANY = 100
MANY_BEHIND = 700
WAIT_MS = 300
PIECE = 1_000
OVERHEAD = 1000
LARGE = 500_000


@clause("FRM-14")
@defect(HangUp(MetadataRequest))
def test_a_hundred_connections_are_served(cluster: Cluster) -> None:
    """Send on all connections, in the order in which they were opened and in reverse order."""
    brokers = [cluster.connect() for _ in range(MANY)]
    for order in (brokers, brokers[::-1]):
        sent = [delta.send(MetadataRequest(topics=()), 1) for delta in order]
        for connection, number in zip(order, sent, strict=True):
            expect("there are brokers", True, bool(connection.receive(APIS[3], 1, number).brokers))


@clause("FRM-2", "kinds")
@defect(OutOfTurn(ListOffsetsRequest))
def test_requests_of_all_kinds_are_answered_in_order(leader: Broker, topic: Topic) -> None:
    kinds = [
        produce_request(topic, batch(b"v")),
        ListOffsetsRequest(
            replica_id=-1, topics=(ListOffsetsTopic(name=topic.name, partitions=(ListOffsetsPartition(timestamp=-1),)),)
        ),
        fetch_request(topic, max_wait_ms=0),
        MetadataRequest(topics=()),
        ApiVersionsRequest(),
    ] * 4
    sent = [(api_of(type(request)), leader.version_of(type(request)), request) for request in kinds]
    numbers = [leader.send(request, version) for _, version, request in sent]
    for (api, version, _), number in zip(sent, numbers, strict=True):
        leader.receive(api, version, number)
    expect("end offset", 4, leader.end_offset(topic))


@clause("FRM-2", "slow first")
@defect(OutOfTurn(FetchRequest))
def test_a_request_behind_one_that_waits_is_answered_later(leader: Broker, topic: Topic) -> None:
    version = leader.version_of(FetchRequest)
    first = leader.send(fetch_request(topic, max_wait_ms=WAIT_MS, min_bytes=1), version)
    second = leader.send(ApiVersionsRequest(), 0)
    leader.receive(APIS[1], version, first)
    leader.receive(APIS[18], 0, second)


@clause("FRM-2", "many behind a slow one")
@defect(OutOfTurn(FetchRequest))
def test_any_number_of_requests_may_be_behind_one_that_waits(leader: Broker, topic: Topic) -> None:
    """A broker that stops reading while too many wait must read on when they have been answered."""
    version = leader.version_of(FetchRequest)
    for _ in range(2):
        first = leader.send(fetch_request(topic, max_wait_ms=WAIT_MS, min_bytes=1), version)
        others = [leader.send(ApiVersionsRequest(), 0) for _ in range(MANY_BEHIND)]
        leader.receive(APIS[1], version, first)
        for other in others:
            leader.receive(APIS[18], 0, other)
    expect("end offset", 0, leader.end_offset(topic))


@clause("FRM-3", "large")
@defect(OneSegment())
def test_a_large_frame_comes_in_pieces(cluster: Cluster, leader: Broker, topic: Topic) -> None:
    version = leader.version_of(ProduceRequest)
    size = cluster.within(LARGE + OVERHEAD, at_most="largest_message_bytes") - OVERHEAD
    value = bytes(range(256)) * (size // 256)
    frame = encode_request(produce_request(topic, batch(value)), version, 7, CLIENT_ID)
    for start in range(0, len(frame), PIECE):
        leader.send_bytes(frame[start : start + PIECE], what="<- part of a frame")
    answer = only(only(leader.receive(APIS[0], version, 7).responses).partition_responses)
    expect("error code", 0, answer.error_code)
    read = only(tuple(records_of(leader.fetch(topic, 0).records)))
    expect("the value is read back unchanged", True, read.value == value)


@clause("FRM-15")
@defect(Silence(MetadataRequest))
def test_half_a_frame_holds_up_nobody_else(cluster: Cluster, broker: Broker) -> None:
    frame = encode_request(MetadataRequest(topics=()), 1, 7, CLIENT_ID)
    broker.send_bytes(frame[:-3], what="<- all but three bytes")
    other = cluster.connect(broker.address)
    expect("there are brokers", True, bool(other.call(MetadataRequest(topics=()), 1).brokers))
    broker.send_bytes(frame[-3:], what="<- three bytes")
    broker.receive(APIS[3], 1, 7)


@clause("FRM-16")
@defect(Garbled(MetadataRequest, lambda frame: frame[:4] + struct.pack(">i", 1) + frame[8:]))
def test_a_correlation_id_may_come_again(broker: Broker) -> None:
    for _ in range(3):
        broker.send_bytes(encode_request(MetadataRequest(topics=()), 1, 7, CLIENT_ID))
    for _ in range(3):
        broker.receive(APIS[3], 1, 7)


@clause("FRM-9", "odd")
@pytest.mark.parametrize(
    "name", ["", " ", "ä€𝄞", "x" * 1000, "a/b\\c:d\t"], ids=["empty", "space", "unicode", "long", "signs"]
)
@defect(HangUp(MetadataRequest))
def test_an_odd_client_id_is_accepted(broker: Broker, name: str) -> None:
    for version in (1, 9):
        broker.need(MetadataRequest, version)
        broker.send_bytes(encode_request(MetadataRequest(topics=()), version, 7, name))
        broker.receive(APIS[3], version, 7)


@clause("FRM-17")
@defect(HangUp(ApiVersionsRequest))
def test_a_connection_may_be_used_as_long_as_one_likes(broker: Broker) -> None:
    for _ in range(200):
        broker.call(ApiVersionsRequest(), 0)


# -- ApiVersions ---------------------------------------------------------------------------------------


@clause("API-8")
@KRAFT
@defect(
    Reply(ApiVersionsRequest, "supported_features", ()),
    Reply(ApiVersionsRequest, "finalized_features.max_version_level", 1000),
)
def test_finalised_levels_are_supported_ones(broker: Broker) -> None:
    reply = features(broker)
    supported = {feature.name: (feature.min_version, feature.max_version) for feature in reply.supported_features}
    if not supported and not reply.finalized_features:
        raise Unsupported("the target has no features")
    for feature in reply.finalized_features:
        low, high = supported.get(feature.name, (1, 0))
        if not low <= feature.max_version_level <= high:
            raise TargetFailure(f"{feature.name} {feature.max_version_level}: expected a level from {low} to {high}")


@clause("API-10")
@defect(HangUp(ApiVersionsRequest))
def test_a_client_that_was_too_new_tries_again_on_the_same_connection(broker: Broker) -> None:
    broker.send_bytes(encode_request(NAMED, 4, 7, "c").replace(b"\0\x12\0\x04", b"\0\x12\x7f\xff", 1))
    expect("error code", ErrorCode.UNSUPPORTED_VERSION, broker.receive(APIS[18], 0, 7).error_code)
    expect("error code of the next request", 0, broker.call(ApiVersionsRequest(), 0).error_code)


@clause("API-11")
@defect(Reply(ApiVersionsRequest, "error_code", ErrorCode.UNSUPPORTED_VERSION))
def test_versions_may_be_asked_for_at_any_time(broker: Broker) -> None:
    first = {api.api_key: api for api in broker.call(ApiVersionsRequest(), 0).api_keys}
    broker.call(MetadataRequest(topics=()), 1)
    again = broker.call(ApiVersionsRequest(), 0)
    expect("error code", 0, again.error_code)
    expect("the same ranges", True, {api.api_key: api for api in again.api_keys} == first)


def drop_last_key(frame: bytes) -> bytes:
    """Drop the last key from a reply of version 0, which ends with a key and its range (6 bytes)."""
    count = struct.unpack_from(">i", frame, 10)[0]
    if len(frame) != 14 + 6 * count:
        return frame
    return struct.pack(">i", len(frame) - 10) + frame[4:10] + struct.pack(">i", count - 1) + frame[14:-6]


@clause("API-12")
@defect(Garbled(ApiVersionsRequest, drop_last_key))
def test_every_version_tells_of_the_same_keys(broker: Broker) -> None:
    newest = broker.version_of(ApiVersionsRequest)
    found = [{api.api_key for api in broker.call(NAMED, version).api_keys} for version in range(newest + 1)]
    expect("keys of each version", True, all(keys == found[0] for keys in found))

"""Framing: sizes, headers, order of replies, and invalid frames that must end the connection."""

import struct

import pytest

from highwater.conformance import CLIENT_ID
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import (
    Crash,
    Garbled,
    HangUp,
    OneSegment,
    OutOfTurn,
    Request,
    Silence,
    StaysOpen,
    defect,
)
from highwater.conformance.expectations import expect
from highwater.reference.wire.framing import RequestHeader, encode_request, encode_request_header
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.offsets import ListOffsetsRequest
from highwater.reference.wire.registry import APIS

API_VERSIONS, METADATA = APIS[18], APIS[3]
FLEXIBLE_METADATA = 9
PLAIN_METADATA = 1
PAUSE_S = 0.002  # without a pause the broker may read several bytes at once
EMPTY_ARRAY = struct.pack(">i", 0)


def change_correlation_id(reply: bytes) -> bytes:
    return reply[:4] + bytes([reply[4] ^ 1]) + reply[5:]


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int, correlation_id: int = 7, tags: tuple[tuple[int, bytes], ...] = ()) -> bytes:
    return encode_request_header(
        RequestHeader(
            api_key=api_key, api_version=version, correlation_id=correlation_id, client_id=CLIENT_ID, tags=tags
        )
    )


def assert_broker_answers(cluster: Cluster) -> None:
    cluster.connect().exchange(ApiVersionsRequest(), 0)


def assert_refused(cluster: Cluster, broker: Broker, data: bytes) -> None:
    """Send bytes for which the broker must close the connection without a reply, and go on serving others."""
    broker.send_bytes(data)
    broker.expect_disconnect()
    assert_broker_answers(cluster)


@clause("FRM-1")
@defect(Garbled(ApiVersionsRequest, change_correlation_id), Silence(ApiVersionsRequest))
@pytest.mark.parametrize("correlation_id", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_the_reply_has_its_size_and_the_correlation_id(broker: Broker, correlation_id: int) -> None:
    broker.send_bytes(encode_request(ApiVersionsRequest(), 0, correlation_id, CLIENT_ID))
    broker.receive(API_VERSIONS, 0, correlation_id)


@clause("FRM-2")
@defect(OutOfTurn(ListOffsetsRequest), OutOfTurn(ApiVersionsRequest))
def test_pipelined_requests_are_answered_in_order(broker: Broker) -> None:
    kinds = [ApiVersionsRequest(), MetadataRequest(topics=()), ListOffsetsRequest(replica_id=-1)] * 5
    frames = [encode_request(request, 1, number, CLIENT_ID) for number, request in enumerate(kinds)]
    broker.need(ListOffsetsRequest, 1)
    broker.need(ApiVersionsRequest, 1)
    broker.send_bytes(b"".join(frames))
    for number, request in enumerate(kinds):
        api = next(api for api in APIS.values() if api.request is type(request))
        broker.receive(api, 1, number)


@clause("FRM-3", "split")
@defect(OneSegment())
def test_a_frame_may_come_byte_by_byte(broker: Broker) -> None:
    for byte in encode_request(ApiVersionsRequest(), 0, 7, CLIENT_ID):
        broker.send_bytes(bytes([byte]), what="<- one byte")
        broker.clock.sleep(PAUSE_S)
    broker.receive(API_VERSIONS, 0, 7)


@clause("FRM-3", "joined")
@defect(OneSegment())
def test_a_segment_may_hold_a_frame_and_the_start_of_the_next(broker: Broker) -> None:
    first, second = (encode_request(ApiVersionsRequest(), 0, number, CLIENT_ID) for number in (7, 8))
    broker.send_bytes(first + second[:5])
    broker.receive(API_VERSIONS, 0, 7)
    broker.send_bytes(second[5:], what="<- rest of the frame")
    broker.receive(API_VERSIONS, 0, 8)


@clause("FRM-4")
@defect(StaysOpen(), Crash())
@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1])
def test_an_impossible_size_ends_the_connection(cluster: Cluster, broker: Broker, size: int) -> None:
    assert_refused(cluster, broker, struct.pack(">i", size) + b"\0" * 8)


@clause("FRM-5")
@defect(StaysOpen(), Crash())
@pytest.mark.parametrize("key", [-1, 1000, 2**15 - 1])
def test_an_unknown_key_ends_the_connection(cluster: Cluster, broker: Broker, key: int) -> None:
    body = struct.pack(">hhih", key, 0, 7, len(CLIENT_ID)) + CLIENT_ID.encode() + EMPTY_ARRAY
    assert_refused(cluster, broker, frame(body))


@clause("FRM-6")
@defect(StaysOpen(), Crash())
@pytest.mark.parametrize("version", [-1, 1000])
def test_an_unsupported_version_ends_the_connection(cluster: Cluster, broker: Broker, version: int) -> None:
    body = struct.pack(">hhih", METADATA.key, version, 7, len(CLIENT_ID)) + CLIENT_ID.encode() + b"\0" + EMPTY_ARRAY
    assert_refused(cluster, broker, frame(body))


@clause("FRM-7", "short")
@defect(StaysOpen(), Crash())
@pytest.mark.parametrize("size", [pytest.param(0, marks=era("1.1")), 3, 7])
def test_a_header_that_ends_early_ends_the_connection(cluster: Cluster, broker: Broker, size: int) -> None:
    assert_refused(cluster, broker, frame(header(METADATA.key, PLAIN_METADATA)[:size]))


@clause("FRM-7", "client id")
@defect(StaysOpen(), Crash())
def test_a_client_id_longer_than_the_frame_ends_the_connection(cluster: Cluster, broker: Broker) -> None:
    assert_refused(cluster, broker, frame(struct.pack(">hhih", METADATA.key, PLAIN_METADATA, 7, 1000) + b"short"))


@clause("FRM-8")
@defect(StaysOpen(), Crash())
def test_a_header_without_its_body_ends_the_connection(cluster: Cluster, broker: Broker) -> None:
    assert_refused(cluster, broker, frame(header(METADATA.key, PLAIN_METADATA)))


@clause("FRM-9")
@defect(HangUp(MetadataRequest), Silence(MetadataRequest))
def test_a_null_client_id_is_accepted(broker: Broker) -> None:
    broker.send_bytes(encode_request(MetadataRequest(topics=()), PLAIN_METADATA, 7, None))
    broker.receive(METADATA, PLAIN_METADATA, 7)


@clause("FRM-10", "plain")
@defect(StaysOpen(), Crash())  # KAFKA-2878, CVE-2022-34917
@pytest.mark.parametrize("count", [2**31 - 1, 1000])
def test_a_count_beyond_the_frame_ends_the_connection(cluster: Cluster, broker: Broker, count: int) -> None:
    assert_refused(cluster, broker, frame(header(METADATA.key, PLAIN_METADATA) + struct.pack(">i", count)))


@clause("FRM-10", "compact")
@defect(StaysOpen(), Crash())  # KAFKA-2878, CVE-2022-34917
def test_a_compact_count_beyond_the_frame_ends_the_connection(cluster: Cluster, broker: Broker) -> None:
    broker.need(MetadataRequest, FLEXIBLE_METADATA)
    body = header(METADATA.key, FLEXIBLE_METADATA) + b"\xff\xff\xff\xff\x07" + b"\0\0\0\0"
    assert_refused(cluster, broker, frame(body))


@clause("FRM-11", "header")
@defect(HangUp(MetadataRequest), Silence(MetadataRequest))
def test_an_unknown_tag_in_the_header_is_skipped(broker: Broker) -> None:
    broker.need(MetadataRequest, FLEXIBLE_METADATA)
    body = encode_request(MetadataRequest(topics=()), FLEXIBLE_METADATA, 7, CLIENT_ID)
    plain = header(METADATA.key, FLEXIBLE_METADATA)
    tagged = header(METADATA.key, FLEXIBLE_METADATA, tags=((1000, b"unknown"),))
    broker.send_bytes(frame(tagged + body[4 + len(plain) :]))
    broker.receive(METADATA, FLEXIBLE_METADATA, 7)


@clause("FRM-11", "body")
@defect(HangUp(MetadataRequest), Silence(MetadataRequest))
def test_an_unknown_tag_in_the_body_is_skipped(broker: Broker) -> None:
    broker.need(MetadataRequest, FLEXIBLE_METADATA)
    whole = encode_request(MetadataRequest(topics=()), FLEXIBLE_METADATA, 7, CLIENT_ID)[4:]
    broker.send_bytes(frame(whole[:-1] + b"\x01\xe8\x07\x03abc"))
    broker.receive(METADATA, FLEXIBLE_METADATA, 7)


@clause("FRM-12", "long")
@defect(StaysOpen(), Crash())
def test_a_varint_of_more_than_five_bytes_ends_the_connection(cluster: Cluster, broker: Broker) -> None:
    broker.need(MetadataRequest, FLEXIBLE_METADATA)
    body = header(METADATA.key, FLEXIBLE_METADATA) + b"\x81\x80\x80\x80\x80\x00" + b"\0\0\0\0"
    assert_refused(cluster, broker, frame(body))


@clause("FRM-12", "padded")
@defect(HangUp(MetadataRequest), Request(MetadataRequest, "topics", None))
@pytest.mark.usefixtures("topic")
def test_a_varint_padded_to_five_bytes_is_accepted(broker: Broker) -> None:
    broker.need(MetadataRequest, FLEXIBLE_METADATA)
    body = header(METADATA.key, FLEXIBLE_METADATA) + b"\x81\x80\x80\x80\x00" + b"\0\0\0\0"
    broker.send_bytes(frame(body))
    reply = broker.receive(METADATA, FLEXIBLE_METADATA, 7)
    expect("number of topics", 0, len(reply.topics))


@clause("FRM-13")
@defect(StaysOpen(), Crash())
def test_null_where_the_schema_has_none_ends_the_connection(cluster: Cluster, broker: Broker) -> None:
    one_name = encode_request(MetadataRequest(topics=(MetadataRequestTopic(name=""),)), 1, 7, CLIENT_ID)[4:]
    assert_refused(cluster, broker, frame(one_name[:-2] + struct.pack(">h", -1)))

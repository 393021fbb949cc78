"""Cases that detect nothing, for different reasons; the self-test must report each of them."""

import struct

from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, OneSegment, Reply, Request, defect
from highwater.conformance.expectations import expect
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, MetadataRequest
from highwater.reference.wire.messages.produce import ProduceRequest

ACCEPTED = Reply(ProduceRequest, "responses.partition_responses.error_code", 0)


@clause("PRD-3", "looks away")
@defect(ACCEPTED)
def test_a_case_that_ignores_the_error_code(leader: Broker, topic: Topic) -> None:
    leader.produce(topic, batch(b"v"), acks=2)


@clause("PRD-3", "elsewhere")
@defect(Request(MetadataRequest, "topics", ()))
def test_a_defect_of_a_request_that_is_never_sent(leader: Broker, topic: Topic) -> None:
    expect("error code", 21, leader.produce(topic, batch(b"v"), acks=2).error_code)


@clause("PRD-3", "no such field")
@defect(Reply(ProduceRequest, "responses.partitions.error_code", 0))
def test_a_defect_in_a_missing_field(leader: Broker, topic: Topic) -> None:
    expect("error code", 21, leader.produce(topic, batch(b"v"), acks=2).error_code)


@clause("PRD-3", "stumbles")
@defect(ACCEPTED)
def test_a_defect_that_makes_the_case_raise(leader: Broker, topic: Topic) -> None:
    expect("name", "refused", {21: "refused"}[leader.produce(topic, batch(b"v"), acks=2).error_code])


@clause("PRD-3", "says none")
def test_a_case_without_a_defect(leader: Broker, topic: Topic) -> None:
    expect("error code", 21, leader.produce(topic, batch(b"v"), acks=2).error_code)


@clause("PRD-3", "guard")
@defect(GuardOff("FenceInstance"))
def test_a_guard_that_the_case_never_reaches(leader: Broker, topic: Topic) -> None:
    expect("error code", 21, leader.produce(topic, batch(b"v"), acks=2).error_code)


@clause("PRD-3", "wrong")
@defect(ACCEPTED)
def test_a_case_that_a_correct_broker_fails(leader: Broker, topic: Topic) -> None:
    expect("error code", 87, leader.produce(topic, batch(b"v"), acks=2).error_code)


@clause("FRM-3", "silence")
@defect(OneSegment())
def test_a_case_that_a_silent_server_passes(cluster: Cluster) -> None:
    broker = cluster.connect()
    broker.send_bytes(b"\0")
    broker.expect_silence(0.05)


@clause("FRM-4", "hangs up")
@defect(Request(ApiVersionsRequest, "client_software_name", "other"))
def test_a_case_that_a_disconnecting_server_passes(cluster: Cluster) -> None:
    broker = cluster.connect()
    broker.send_bytes(struct.pack(">i", -1))
    broker.expect_disconnect()

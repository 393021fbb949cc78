"""Idempotent producers: repeated batches are not appended again, and gaps are rejected."""

import pytest

from highwater.conformance.cases.support.offsets import delete_records
from highwater.conformance.cases.support.producers import LAST_SEQUENCE, IdempotentProducer, init_producer_id
from highwater.conformance.cases.support.replicas import restart_leader
from highwater.conformance.clause import clause, era, sweep
from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.errors import LEADER_NOT_READY, ErrorCode
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.transactions import (
    DescribeProducersRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TopicRequest,
)

PRODUCE_ERROR = "responses.partition_responses.error_code"
BASE_OFFSET = "responses.partition_responses.base_offset"


@pytest.fixture
def producer(cluster: Cluster, topic: Topic) -> IdempotentProducer:
    return IdempotentProducer.create(cluster, topic)


def assert_refused(producer: IdempotentProducer, sequence: int, error: int | set[int], count: int = 1) -> None:
    """The broker returns the error and appends nothing."""
    before = producer.end_offset()
    expect("error code of Produce", error, producer.send(sequence, count).error_code)
    expect("end offset after the refusal", before, producer.end_offset())


@clause("IDM-1")
@defect(Reply(InitProducerIdRequest, "producer_id", 7))
@sweep(InitProducerIdRequest, 0, 5)
def test_a_new_producer_has_an_id_of_its_own_and_epoch_0(cluster: Cluster, version: int) -> None:
    broker = cluster.connect()
    first, second = (init_producer_id(cluster, broker, version) for _ in range(2))
    expect("error codes and epochs", (0, 0, 0, 0), _codes_and_epochs(first, second))
    expect("producer ids are different and not negative", True, 0 <= first.producer_id != second.producer_id >= 0)


def _codes_and_epochs(first: InitProducerIdResponse, second: InitProducerIdResponse) -> tuple[int, int, int, int]:
    return first.error_code, second.error_code, first.producer_epoch, second.producer_epoch


@clause("IDM-1", "brokers")
@defect(Reply(InitProducerIdRequest, "producer_id", 7))
def test_brokers_do_not_give_the_same_id(cluster: Cluster) -> None:
    cluster.need_brokers(2)
    brokers = [cluster.connect(address) for address in cluster.target.addresses.values()]
    producer_ids = [init_producer_id(cluster, broker).producer_id for broker in brokers for _ in range(3)]
    expect("number of different ids", len(producer_ids), len(set(producer_ids)))


@clause("IDM-2")
@defect(Reply(ProduceRequest, BASE_OFFSET, lambda offset: offset + 1))
@sweep(ProduceRequest, 3)
def test_a_resent_batch_is_answered_from_memory(producer: IdempotentProducer, version: int) -> None:
    offsets = [producer.send_accepted(sequence, version=version) for sequence in (0, 1, 1)]
    expect("offsets of two batches and of the repeated second one", True, offsets == [0, 1, 1])
    expect("end offset", 2, producer.end_offset())


@clause("IDM-2", "of five")
@defect(Reply(ProduceRequest, BASE_OFFSET, 0), GuardOff("RememberBatches"))
@pytest.mark.parametrize("back", [5, 4, 3, 2], ids=lambda back: f"{back} back")
def test_any_of_the_last_five_batches_is_remembered(producer: IdempotentProducer, back: int) -> None:
    for number in range(7):
        producer.send_accepted(2 * number, 2)
    expect("offset of the repeated batch", 2 * (7 - back), producer.send_accepted(2 * (7 - back), 2))
    expect("end offset", 14, producer.end_offset())


@clause("IDM-3")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0), GuardOff("RefuseSequenceGap"))
@pytest.mark.parametrize("gap", [1, 1000], ids=lambda gap: f"{gap} missing")
def test_a_gap_is_refused(producer: IdempotentProducer, gap: int) -> None:
    producer.send_accepted(0, 2)
    assert_refused(producer, 2 + gap, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    producer.send_accepted(2)


@clause("IDM-4")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0), GuardOff("BeginAtZero"))
@pytest.mark.parametrize("sequence", [1, 5])
def test_a_new_epoch_begins_at_0(producer: IdempotentProducer, sequence: int) -> None:
    producer.send_accepted(0)
    producer.epoch += 1
    assert_refused(producer, sequence, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    expect("offset of the first batch of the new epoch", 1, producer.send_accepted(0))
    expect("end offset", 2, producer.end_offset())


@clause("IDM-5")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0), GuardOff("FenceStaleProduce"))
@pytest.mark.parametrize("sequence", [0, 1], ids=["resent", "next"])
def test_an_older_epoch_is_refused(producer: IdempotentProducer, sequence: int) -> None:
    producer.send_accepted(0)
    producer.epoch = 1
    producer.send_accepted(0)
    producer.epoch = 0
    assert_refused(producer, sequence, ErrorCode.INVALID_PRODUCER_EPOCH)


@clause("IDM-6", "next")
@era("2.5")  # older releases require unknown producers to begin at 0
@defect(Reply(ProduceRequest, PRODUCE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
def test_the_sequence_goes_on_at_0(producer: IdempotentProducer) -> None:
    producer.send_accepted(LAST_SEQUENCE)
    producer.send_accepted(0)
    expect("end offset", 2, producer.end_offset())


@clause("IDM-6", "inside")
@era("2.5")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
def test_the_sequence_wraps_inside_of_a_batch(producer: IdempotentProducer) -> None:
    producer.send_accepted(LAST_SEQUENCE - 1, 4)
    producer.send_accepted(2)
    expect("offset of the repeated batch", 0, producer.send_accepted(LAST_SEQUENCE - 1, 4))
    expect("end offset", 5, producer.end_offset())


@clause("IDM-7")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0))
def test_a_producer_id_needs_a_sequence(producer: IdempotentProducer) -> None:
    assert_refused(producer, -1, ErrorCode.INVALID_RECORD)


@clause("IDM-8", "deleted records")
@defect(Reply(ProduceRequest, BASE_OFFSET, 0))
def test_the_state_outlives_the_records(producer: IdempotentProducer) -> None:
    for sequence in range(3):
        producer.send_accepted(sequence)
    error, _ = delete_records(producer.broker, producer.topic, -1, timeout_ms=5000)
    expect("error code of DeleteRecords", 0, error)
    expect("offset of the repeated batch", 2, producer.send_accepted(2))
    assert_refused(producer, 4, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    producer.send_accepted(3)


@clause("IDM-8", "restart")
@defect(Reply(ProduceRequest, BASE_OFFSET, 0))
@pytest.mark.cluster_fault
@pytest.mark.slow
def test_the_state_outlives_a_restart(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    topic = cluster.create_topic(replicas=1)
    before = IdempotentProducer.create(cluster, topic)
    for sequence in range(0, 9, 3):
        before.send_accepted(sequence, 3)
    again, leader = restart_leader(cluster, topic)
    producer = IdempotentProducer(leader, again, before.producer_id)
    cluster.eventually("the restarted broker to lead", lambda: producer.send(6, 3).error_code not in LEADER_NOT_READY)
    expect("offset of the repeated batch", 6, producer.send_accepted(6, 3))
    assert_refused(producer, 10, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    expect("offset of the next batch", 9, producer.send_accepted(9))


@clause("IDM-8", "new leader")
@defect(Reply(ProduceRequest, BASE_OFFSET, 0), GuardOff("RebuildWindow"))
@pytest.mark.cluster_fault
@pytest.mark.slow
def test_a_new_leader_knows_the_producers(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3)
    before = IdempotentProducer.create(cluster, topic)
    for sequence in range(3):
        before.send_accepted(sequence)
    cluster.stop(topic.leader_id)
    follower = cluster.topic(topic.name, excluded_leader=topic.leader_id)
    producer = IdempotentProducer(cluster.leader(follower), follower, before.producer_id)
    expect("offset of the repeated batch", 2, producer.send_accepted(2))
    assert_refused(producer, 4, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


@clause("IDM-9")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 59))
@pytest.mark.parametrize("sequence", [0, 1, 1000])
def test_a_producer_that_is_unknown_may_begin_anywhere(cluster: Cluster, topic: Topic, sequence: int) -> None:
    producer = IdempotentProducer.create(cluster, topic)
    producer.send_accepted(sequence)
    producer.send_accepted(sequence + 1)


@clause("IDM-10")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0), GuardOff("RefuseUsedSequence"))
def test_a_batch_beyond_memory_is_refused(producer: IdempotentProducer) -> None:
    offsets = [producer.send_accepted(sequence) for sequence in range(7)]
    answer = producer.send(1)
    if answer.error_code == 0:  # the broker remembers more than five batches
        expect("base offset of a repetition", offsets[1], answer.base_offset)
    else:
        refusals = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}
        expect("error code of Produce", refusals, answer.error_code)
    expect("end offset", offsets[-1] + 1, producer.end_offset())


@clause("IDM-10", "overlap")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0))
@pytest.mark.parametrize(("sequence", "count"), [(0, 1), (0, 3), (1, 1), (1, 2)])
def test_part_of_a_remembered_batch_is_no_repetition(producer: IdempotentProducer, sequence: int, count: int) -> None:
    producer.send_accepted(0, 2)
    assert_refused(
        producer, sequence, {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}, count
    )


@clause("IDM-11")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
def test_each_partition_has_sequences_of_its_own(cluster: Cluster, producer: IdempotentProducer) -> None:
    other = cluster.create_topic()
    producer.send_accepted(0, 3)
    other_producer = IdempotentProducer(cluster.leader(other), other, producer.producer_id, producer.epoch)
    other_producer.send_accepted(0)
    producer.send_accepted(3)
    other_producer.send_accepted(1)


@clause("IDM-12")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
def test_a_refused_batch_uses_up_no_sequence(cluster: Cluster) -> None:
    producer = IdempotentProducer.create(cluster, cluster.create_topic(configs={"max.message.bytes": "1000"}))
    producer.send_accepted(0)
    expect("error code of a batch that is too large", ErrorCode.MESSAGE_TOO_LARGE, producer.send(1, 400).error_code)
    producer.send_accepted(1)


@clause("IDM-13")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
def test_two_producers_do_not_disturb_one_another(cluster: Cluster, producer: IdempotentProducer) -> None:
    other = IdempotentProducer.create(cluster, producer.topic)
    offsets = [sender.send_accepted(sequence) for sequence in range(2) for sender in (producer, other)]
    expect("offsets", True, offsets == [0, 1, 2, 3])
    expect("offset of the repeated batch", 2, producer.send_accepted(1))


@clause("IDM-14")
@defect(Reply(DescribeProducersRequest, "topics.partitions.active_producers.last_sequence", -1))
def test_a_leader_tells_the_last_sequence(producer: IdempotentProducer) -> None:
    producer.send_accepted(0, 3)
    producer.send_accepted(3, 2)
    requested = TopicRequest(name=producer.topic.name, partition_indexes=(producer.topic.partition,))
    part = only(only(producer.broker.call(DescribeProducersRequest(topics=(requested,))).topics).partitions)
    expect("error code", 0, part.error_code)
    found = only(part.active_producers)
    expect("id, epoch, sequence, open transaction", (producer.producer_id, 0, 4, -1), _state(found))


def _state(found: object) -> tuple[int, ...]:
    names = ("producer_id", "producer_epoch", "last_sequence", "current_txn_start_offset")
    return tuple(int(getattr(found, name)) for name in names)


@clause("IDM-14", "errors")
@defect(Reply(DescribeProducersRequest, "topics.partitions.error_code", 0))
def test_producers_of_a_partition_that_is_not_there(broker: Broker, topic: Topic) -> None:
    requested = TopicRequest(name=topic.name, partition_indexes=(1000,))
    part = only(only(broker.call(DescribeProducersRequest(topics=(requested,))).topics).partitions)
    expect("error code", 3, part.error_code)


@clause("IDM-15")
@defect(Reply(InitProducerIdRequest, "error_code", 0))
@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)], ids=["id alone", "epoch alone"])
def test_id_and_epoch_come_together(broker: Broker, producer_id: int, epoch: int) -> None:
    version = broker.version_of(InitProducerIdRequest, 3)
    request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    expect("error code", ErrorCode.INVALID_REQUEST, broker.call(request, version).error_code)

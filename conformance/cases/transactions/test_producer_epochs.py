"""The last epochs of a producer id: a broker replaces the id before a client could receive the largest epoch.

Epochs have 16 bits and no request lets a client choose one, so each case sends 32,766 InitProducerId requests first.
"""

from collections import deque
from typing import Final

import pytest

from highwater.conformance.cases.support.transactions import (
    ABORT,
    COMMIT,
    NEW_END,
    NEW_PRODUCE,
    Transactional,
    code_id_epoch,
    committed_values,
    eventually_stable,
    need_transaction_version,
)
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.connection import Connection
from highwater.conformance.defects import GuardOff, Reply, defect
from highwater.conformance.expectations import expect
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.transactions import EndTxnRequest, InitProducerIdRequest
from highwater.reference.wire.registry import api_of

LAST_EPOCH: Final = 32_766
"""The largest epoch that a client receives; 32767 is left for fencing."""
IN_FLIGHT: Final = 20
QUICK_TIMEOUT_MS: Final = 3_000


@pytest.fixture
def last(cluster: Cluster) -> Transactional:
    """Return a producer with the last epoch of its id."""
    producer = Transactional.initialize(cluster, timeout_ms=QUICK_TIMEOUT_MS)
    advance(cluster, producer)
    return producer


def advance(cluster: Cluster, producer: Transactional) -> None:
    """Let the producer have the last epoch, by as many InitProducerId requests, many of them in flight."""
    api, version = api_of(InitProducerIdRequest), producer.coordinator.version_of(InitProducerIdRequest)
    request = InitProducerIdRequest(transactional_id=producer.id, transaction_timeout_ms=producer.timeout_ms)
    sent: deque[int] = deque()
    address, access = producer.coordinator.address, cluster.access
    with Connection(address, access=access) as connection:  # its own log: these exchanges would hide those of the case
        for left in range(LAST_EPOCH - producer.epoch, -IN_FLIGHT, -1):
            if left > 0:
                sent.append(connection.send(request, version))
            if len(sent) >= IN_FLIGHT or (left <= 0 and sent):
                reply = connection.receive(api, version, sent.popleft())
                expect("error code of InitProducerId", 0, reply.error_code)
    expect("producer id, epoch", (producer.producer_id, LAST_EPOCH), (reply.producer_id, reply.producer_epoch))
    producer.epoch = reply.producer_epoch


@clause("TXN-38", "InitProducerId")
@defect(Reply(InitProducerIdRequest, "producer_epoch", 7))
@pytest.mark.slow
@pytest.mark.long
def test_the_next_instance_has_a_new_id(cluster: Cluster, topic: Topic, last: Transactional) -> None:
    named = {"producer_id": last.producer_id, "producer_epoch": LAST_EPOCH}
    following = Transactional(cluster, last.id)
    first, again = following.init(**named), following.init(**named)
    expect("error and epoch of InitProducerId", (0, 0), (first.error_code, first.producer_epoch))
    expect("it has another producer id", True, first.producer_id != last.producer_id)
    expect("error, id, epoch of the repeated request", code_id_epoch(first), code_id_epoch(again))
    expect("error code of the old id", ErrorCode.INVALID_PRODUCER_ID_MAPPING, last.add(topic)[topic.name])
    newest = Transactional.initialize(cluster, transactional_id=last.id)
    expect("id and epoch of another instance", (first.producer_id, 1), (newest.producer_id, newest.epoch))
    expect("error code of the first request, late", ErrorCode.PRODUCER_FENCED, following.init(**named).error_code)


@clause("TXN-38")
@defect(
    Reply(EndTxnRequest, "producer_epoch", 7), GuardOff("NewIdWhenExhausted"), GuardOff("MarkersKeepOldId"),
    GuardOff("AnswerPreviousId"),
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.long
def test_the_next_transaction_has_a_new_id(cluster: Cluster, topic: Topic, last: Transactional) -> None:
    need_transaction_version(last.coordinator, 2)
    last.write(topic, 0, b"last", version=NEW_PRODUCE)
    replies = [last.end_reply(commit=COMMIT, version=NEW_END) for _ in range(2)]
    expect("error and epoch of EndTxn", (0, 0), (replies[0].error_code, replies[0].producer_epoch))
    expect("it has another producer id", True, replies[0].producer_id != last.producer_id)
    expect("error, id, epoch of the repeated request", *map(code_id_epoch, replies))
    last.producer_id, last.epoch = replies[0].producer_id, replies[0].producer_epoch
    _check_next(cluster, topic, last, [b"last", b"next"])


@clause("TXN-39")
@defect(Reply(EndTxnRequest, "producer_epoch", LAST_EPOCH + 1), GuardOff("NewIdAfterFence"))
@pytest.mark.slow
@pytest.mark.long
def test_a_timeout_under_the_last_epoch_leaves_no_transaction_open(
    cluster: Cluster, topic: Topic, last: Transactional
) -> None:
    """The abort is asked for after the timeout; a producer that gets an epoch with it must be able to use it."""
    need_transaction_version(last.coordinator, 2)
    last.write(topic, 0, b"late", version=NEW_PRODUCE)
    scan_s = cluster.setting("transaction_abort_timed_out_transaction_cleanup_interval_ms") / 1000
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 2, 10.0 + 2 * scan_s)
    reply = last.end_reply(commit=ABORT, version=NEW_END)
    if reply.error_code:
        expect("error code of EndTxn", ErrorCode.PRODUCER_FENCED, reply.error_code)
        last.init()
    else:
        last.producer_id, last.epoch = reply.producer_id, reply.producer_epoch
    _check_next(cluster, topic, last, [b"next"])


def _check_next(cluster: Cluster, topic: Topic, producer: Transactional, values: list[bytes]) -> None:
    """Write and commit the next transaction of the producer; it is visible."""
    producer.write(topic, 0, b"next", version=NEW_PRODUCE)
    expect("error code of the next EndTxn", 0, producer.end_reply(commit=COMMIT, version=NEW_END).error_code)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 4)
    expect("committed values", True, committed_values(leader, topic) == values)

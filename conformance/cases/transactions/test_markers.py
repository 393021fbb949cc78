"""Transaction markers that the case writes itself, like a coordinator whose request or response is late (KIP-1228)."""

import struct
from dataclasses import replace

import pytest

from highwater.conformance.cases.support.transactions import (
    ABORT,
    COMMIT,
    NEW_END,
    NEW_PRODUCE,
    Transactional,
    committed_values,
    eventually_stable,
    fetch_committed,
)
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import LATEST, Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from highwater.reference.wire.records import batch_headers, decode_records

VERSIONED = 2
"""First version of WriteTxnMarkers that states the transaction version."""
TRANSACTION_VERSION = 2
ERROR = "markers.topics.partitions.error_code"


def write_marker(leader: Broker, topic: Topic, producer: Transactional, *, commit: bool, epoch: int) -> int:
    """Send the marker of a transaction of version 2 and return the error code of the partition."""
    marker = WritableTxnMarker(
        producer_id=producer.producer_id, producer_epoch=epoch, transaction_result=commit,
        coordinator_epoch=coordinator_epoch(leader, topic), transaction_version=TRANSACTION_VERSION,
    )  # fmt: skip
    return send_marker(leader, topic, marker, leader.version_of(WriteTxnMarkersRequest, VERSIONED))


def send_marker(leader: Broker, topic: Topic, marker: WritableTxnMarker, version: int) -> int:
    """Send a marker for this partition and return its error code."""
    partition = WritableTxnMarkerTopic(name=topic.name, partition_indexes=(topic.partition,))
    reply = leader.call(WriteTxnMarkersRequest(markers=(replace(marker, topics=(partition,)),)), version)
    return int(only(only(only(reply.markers).topics).partitions).error_code)


def coordinator_epoch(leader: Broker, topic: Topic) -> int:
    """Return the epoch in the newest marker of the log."""
    data = leader.fetch(topic, 0).records or b""
    control = [position for position, header in batch_headers(data) if header.is_control]
    expect("the log has a marker", True, bool(control))
    value = only(tuple(decode_records(data, control[-1])[1])).value or b""
    return int(struct.unpack_from(">hi", value)[1])


def end_first(cluster: Cluster, leader: Broker, topic: Topic, producer: Transactional, *, commit: bool) -> None:
    """Write a transaction of one record and end it; the marker then has the epoch of the next transaction."""
    leader.version_of(WriteTxnMarkersRequest, VERSIONED)
    producer.write(topic, 0, b"first", version=NEW_PRODUCE)
    producer.end(commit=commit, version=NEW_END)
    eventually_stable(cluster, leader, topic, 2)


@clause("TXN-34")
@defect(Reply(WriteTxnMarkersRequest, ERROR, 0), GuardOff("MarkerNeedsNewEpoch"))
@pytest.mark.parametrize("commit", [COMMIT, ABORT], ids=["commit", "abort"])
def test_a_marker_that_arrives_twice_does_not_end_the_next_transaction(
    cluster: Cluster, topic: Topic, new_producer: Transactional, commit: bool
) -> None:
    leader = cluster.leader(topic)
    end_first(cluster, leader, topic, new_producer, commit=commit)
    new_producer.write(topic, 0, b"second", version=NEW_PRODUCE)
    error = write_marker(leader, topic, new_producer, commit=commit, epoch=new_producer.epoch)
    expect("error code", ErrorCode.INVALID_PRODUCER_EPOCH, error)
    expect("last stable offset", 2, fetch_committed(leader, topic).last_stable_offset)
    new_producer.end(commit=not commit, version=NEW_END)
    eventually_stable(cluster, leader, topic, 4)
    expect("committed values", True, committed_values(leader, topic) == ([b"first"] if commit else [b"second"]))


@clause("TXN-35")
@defect(Reply(WriteTxnMarkersRequest, ERROR, ErrorCode.INVALID_PRODUCER_EPOCH), GuardOff("AnswerRepeatedMarker"))
def test_a_marker_may_be_sent_again(cluster: Cluster, topic: Topic, new_producer: Transactional) -> None:
    leader = cluster.leader(topic)
    end_first(cluster, leader, topic, new_producer, commit=COMMIT)
    error = write_marker(leader, topic, new_producer, commit=COMMIT, epoch=new_producer.epoch)
    expect("error code", 0, error)
    new_producer.write(topic, 0, b"second", version=NEW_PRODUCE)
    expect("committed values", True, committed_values(leader, topic) == [b"first"])
    expect("the second transaction is open", True, is_open(leader, topic))


def is_open(leader: Broker, topic: Topic) -> bool:
    return fetch_committed(leader, topic).last_stable_offset < leader.list_offset(topic, LATEST).offset


@clause("TXN-34", "own")
@defect(Request(WriteTxnMarkersRequest, "markers.transaction_result", ABORT), Reply(WriteTxnMarkersRequest, ERROR, 47))
def test_a_marker_of_the_open_transaction_ends_it(cluster: Cluster, topic: Topic, new_producer: Transactional) -> None:
    leader = cluster.leader(topic)
    end_first(cluster, leader, topic, new_producer, commit=ABORT)
    new_producer.write(topic, 0, b"second", version=NEW_PRODUCE)
    error = write_marker(leader, topic, new_producer, commit=COMMIT, epoch=new_producer.epoch + 1)
    expect("error code", 0, error)
    expect("committed values", True, committed_values(leader, topic) == [b"second"])


# -- classic transactions, of which a marker has the epoch of the records ------------------------------


def classic_marker(leader: Broker, topic: Topic, producer: Transactional) -> tuple[WritableTxnMarker, int]:
    """Return the commit marker of an open transaction, and the newest version in which it ends a classic one."""
    version = min(leader.version_of(WriteTxnMarkersRequest), VERSIONED - 1)
    marker = WritableTxnMarker(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, transaction_result=COMMIT,
        coordinator_epoch=coordinator_epoch(leader, topic),
    )  # fmt: skip
    return marker, version


def open_second(cluster: Cluster, leader: Broker, topic: Topic, producer: Transactional, sequence: int) -> None:
    """Begin a transaction behind one that has ended, and write a record to it."""
    eventually_stable(cluster, leader, topic, 2)
    producer.begin(topic)
    producer.write(topic, sequence, b"second")


@clause("TXN-37", "producer epoch")
@defect(Reply(WriteTxnMarkersRequest, ERROR, 0), GuardOff("FenceStaleMarker"))
def test_a_marker_of_an_older_producer_epoch_is_refused(
    cluster: Cluster, topic: Topic, producer: Transactional
) -> None:
    leader = cluster.leader(topic)
    producer.begin(topic)
    producer.write(topic, 0, b"first")
    producer.end(commit=COMMIT)
    later = Transactional.initialize(cluster, transactional_id=producer.id)
    open_second(cluster, leader, topic, later, 0)
    marker, version = classic_marker(leader, topic, producer)
    error = send_marker(leader, topic, marker, version)
    expect("error code", ErrorCode.INVALID_PRODUCER_EPOCH, error)
    expect("last stable offset", 2, fetch_committed(leader, topic).last_stable_offset)
    expect("error code of the marker of the open transaction", 0, _end_by_marker(leader, topic, later, 0))


@clause("TXN-37", "coordinator epoch")
@defect(Reply(WriteTxnMarkersRequest, ERROR, 0), GuardOff("FenceOldCoordinator"))
def test_a_marker_of_an_older_coordinator_is_refused(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    leader = cluster.leader(topic)
    producer.begin(topic)
    producer.write(topic, 0, b"first")
    producer.end(commit=COMMIT)
    open_second(cluster, leader, topic, producer, 1)
    error = _end_by_marker(leader, topic, producer, -1)
    expect("error code", ErrorCode.TRANSACTION_COORDINATOR_FENCED, error)
    expect("last stable offset", 2, fetch_committed(leader, topic).last_stable_offset)
    expect("error code of the marker of the coordinator", 0, _end_by_marker(leader, topic, producer, 0))


def _end_by_marker(leader: Broker, topic: Topic, producer: Transactional, later: int) -> int:
    """Send the marker of the open transaction with the last coordinator epoch plus `later`; return the error code."""
    marker, version = classic_marker(leader, topic, producer)
    return send_marker(leader, topic, replace(marker, coordinator_epoch=marker.coordinator_epoch + later), version)

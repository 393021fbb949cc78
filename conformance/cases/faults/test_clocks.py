"""What expires while the wall clocks of all brokers move forward by days: offsets of groups, transactional ids."""

from functools import partial
from typing import Final

import pytest

from highwater.conformance.cases.support.committed_offsets import commit, committed_offset
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.cases.support.transactions import COMMIT, Transactional, describe_transaction
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.conformance.targets.base import CLOCKS, STOP_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest
from highwater.reference.wire.messages.transactions import DescribeTransactionsRequest

pytestmark = [pytest.mark.cluster_fault, pytest.mark.slow]

DAY_S: Final = 86_400
HALF_S: Final = 4 * DAY_S
"""More than half of offsets.retention.minutes and transactional.id.expiration.ms, which are a week by default."""
GONE: Final = -1
CHECKS_S: Final = 3.0
"""Longer than two intervals between checks for expired offsets and ids of a launched target."""
OFFSET: Final = "groups.topics.partitions.committed_offset"


def pass_half(cluster: Cluster) -> None:
    """Move the clocks by more than half of a retention, and wait until everything has been checked."""
    cluster.move_clocks(HALF_S)
    cluster.clock.sleep(CHECKS_S)


# -- groups ----------------------------------------------------------------------------------------------


def left_group(cluster: Cluster, topic: Topic) -> str:
    """Return a group with an offset, whose only member leaves when half of the retention has passed."""
    driver = GroupDriver(cluster, cluster.group())
    session_ms = cluster.setting("group_max_session_timeout_ms")
    member = driver.stable_member(session_timeout_ms=session_ms, rebalance_timeout_ms=session_ms)
    error = commit(member.broker, driver.group, topic, 7, generation=member.generation, member_id=member.member_id)
    expect("error code of a member's commit", 0, error)
    pass_half(cluster)
    expect("error code of LeaveGroup", 0, member.leave_error())
    return driver.group


def offset_of(cluster: Cluster, group: str, topic: Topic) -> int:
    with cluster.coordinator(group) as broker:
        return committed_offset(broker, group, topic)


@clause("GRP-65", "since it became empty")
@defect(Reply(OffsetFetchRequest, OFFSET, GONE), Reply(OffsetFetchRequest, OFFSET, increment))
def test_an_offset_expires_a_retention_after_its_group_became_empty(cluster: Cluster, topic: Topic) -> None:
    """Not after its commit (KIP-211); that of a group that never had members expires after its commit."""
    cluster.need(CLOCKS)
    simple = cluster.group()
    with cluster.coordinator(simple) as broker:
        expect("error code of a simple commit", 0, commit(broker, simple, topic, 5))
    left = left_group(cluster, topic)
    pass_half(cluster)
    cluster.eventually("no offset of the simple group", lambda: offset_of(cluster, simple, topic) == GONE)
    expect("offset of a group that became empty half a retention ago", 7, offset_of(cluster, left, topic))
    pass_half(cluster)
    cluster.eventually("no offset of the group that was left", lambda: offset_of(cluster, left, topic) == GONE)


@clause("GRP-65", "next coordinator")
@defect(Reply(OffsetFetchRequest, OFFSET, GONE))
def test_the_next_coordinator_knows_when_a_group_became_empty(cluster: Cluster) -> None:
    cluster.need(CLOCKS)
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3)
    left = left_group(cluster, topic)
    with cluster.coordinator(left) as broker:
        address = broker.address
    cluster.stop(next(node for node, each in cluster.target.addresses.items() if each == address))
    pass_half(cluster)
    expect("offset at the next coordinator, half a retention later", 7, offset_of(cluster, left, topic))
    pass_half(cluster)
    cluster.eventually("no offset at the next coordinator", lambda: offset_of(cluster, left, topic) == GONE)


# -- transactional ids -----------------------------------------------------------------------------------


@clause("TXN-17", "expired id")
@defect(
    Reply(DescribeTransactionsRequest, "transaction_states.error_code", 0),
    Reply(DescribeTransactionsRequest, "transaction_states.error_code", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
)
def test_a_transactional_id_expires_after_its_last_transaction(cluster: Cluster, topic: Topic) -> None:
    """A week after the last change of its state, also if no transaction was begun (transactional.id.expiration.ms)."""
    cluster.need(CLOCKS)
    if cluster.setting("transaction_remove_expired_transaction_cleanup_interval_ms") > CHECKS_S * 500:
        raise Unsupported("the target seldom looks for transactional ids that have expired")
    empty, ended, again = producers = [Transactional.initialize(cluster) for _ in range(3)]
    for producer in (ended, again):
        producer.begin(topic)
        producer.write(topic, 0)
        producer.end(commit=COMMIT)
    pass_half(cluster)
    for producer in producers:
        expect("error code of an id used half a retention ago", 0, describe_transaction(producer).error_code)
    expect("error code of InitProducerId", 0, again.init().error_code)
    pass_half(cluster)
    for producer in (empty, ended):
        cluster.eventually("an id to be forgotten", partial(_is_forgotten, producer))
    expect("error code of an id that was used again", 0, describe_transaction(again).error_code)


def _is_forgotten(producer: Transactional) -> bool:
    return int(describe_transaction(producer).error_code) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

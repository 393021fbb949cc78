"""Brokers that lose what they had not flushed: a power failure, after which no acknowledged record is missing."""

from typing import Final

import pytest

from highwater.conformance.cases.support.reassignments import move_leaders
from highwater.conformance.cases.support.replicas import FAILOVER_S, await_isr, create_assigned_topic, values_at
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect
from highwater.conformance.expectations import expect
from highwater.conformance.targets.base import LOST_TAILS, STOP_NODE
from highwater.reference.wire.messages.fetch import FetchRequest

pytestmark = [pytest.mark.cluster_fault, pytest.mark.slow]

TOPICS: Final = 3
VALUES: Final = 3
VALUE_BYTES: Final = 1_600
"""A batch of several pages of a file, of which a power failure loses some."""


@clause("REP-12", "lost tail")
@pytest.mark.parametrize("first_stop", ["none", "controlled"])
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_a_leader_that_lost_its_tail_leads_with_all_records_again(cluster: Cluster, first_stop: str) -> None:
    """A controlled stop before leaves a mark of a clean shutdown, which must not be there after the power failure."""
    cluster.need(LOST_TAILS)
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    victim, *others = sorted(cluster.target.addresses)
    topics = [create_assigned_topic(cluster, [victim, *others]) for _ in range(TOPICS)]
    if first_stop == "controlled":
        cluster.stop(victim)
        cluster.start(victim)
        _move_to(cluster, topics, victim)
    written = [b"%d " % number * (VALUE_BYTES // 2) for number in range(VALUES)]
    for value in written:
        for topic in topics:
            expect("error code of acks=all", 0, cluster.leader(topic).produce(topic, batch(value)).error_code)
    cluster.kill_losing_tail(victim)
    cluster.start(victim)
    for node in (others[0], victim):
        for topic in _move_to(cluster, topics, node):
            _await_values(cluster, topic, written, f"broker {node} after broker {victim} lost its tail")


def _move_to(cluster: Cluster, topics: list[Topic], node: int) -> list[Topic]:
    """Let a broker lead all topics once every replica is in sync."""
    for topic in topics:
        await_isr(cluster, topic, 3)
    move_leaders(cluster, topics, node)
    return [cluster.topic(topic.name, timeout_s=FAILOVER_S) for topic in topics]


def _await_values(cluster: Cluster, topic: Topic, written: list[bytes], where: str) -> None:
    """Wait for exactly these values: a new leader returns the last ones when it has heard that they are committed."""
    leader = cluster.leader(topic)

    def are_all_read() -> bool:
        found = [bytes(value or b"") for value in values_at(leader, topic)]
        begin = [value[:2] for value in found]
        expect(f"values at {where} are the first that were written: {begin}", True, found == written[: len(found)])
        return found == written

    cluster.eventually(f"{len(written)} values at {where}", are_all_read, FAILOVER_S)

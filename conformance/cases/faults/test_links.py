"""Links between brokers that are cut or slow: the ISR, new leaders that lag, preferred replicas and late markers.

Clients reach every broker all the time.
"""

import itertools
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from highwater.conformance.cases.fetches.test_other_replicas import RACKS_SINCE, fetch_reply
from highwater.conformance.cases.support.committed_offsets import coordinated_offset
from highwater.conformance.cases.support.reassignments import await_replicas, elect_preferred, reassign
from highwater.conformance.cases.support.replicas import FAILOVER_S, await_isr, controller_last, create_assigned_topic
from highwater.conformance.cases.support.transactions import ABORT, COMMIT, Transactional, coordinator_of
from highwater.conformance.cases.topics.test_replicas import log_sizes
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import EARLIEST, LATEST, NOW_MS, Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.conformance.targets.base import LINKS
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest
from highwater.reference.wire.messages.produce import ProduceRequest

pytestmark = [pytest.mark.cluster_fault, pytest.mark.slow]

ISR: Final = "topics.partitions.isr_nodes"
OFFSET: Final = "topics.partitions.offset"
PREFERRED: Final = "responses.partitions.preferred_read_replica"
LATENCY_MS: Final = 250
LOAD_S: Final = 6.0
MAX_TIMESTAMP: Final = -3
LAGS_SINCE: Final = 5
"""First version of ListOffsets with OFFSET_NOT_AVAILABLE; older ones return LEADER_NOT_AVAILABLE."""
STABLE_SINCE: Final = 7
LEADER_ONLY: Final = 1
ATTEMPTS: Final = 20
"""Names that are tried until one has a coordinator on another broker."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A topic that `leader` leads; the controller is another broker, whose links are never cut."""

    topic: Topic
    leader: int
    lagging: int
    controller: int

    @classmethod
    def create(cls, cluster: Cluster) -> "Placed":
        """Create the topic; raises Unsupported without three brokers or without links that can be cut."""
        cluster.need_brokers(3)
        leader, lagging, controller = controller_last(cluster)[-3:]
        cluster.need(LINKS)
        return cls(create_assigned_topic(cluster, [leader, lagging, controller]), leader, lagging, controller)


def lag_s(cluster: Cluster) -> float:
    return cluster.setting("replica_lag_time_max_ms") / 1000


def need_time(cluster: Cluster, until_s: float) -> None:
    """Raise Unsupported after this time: the follower may have left the ISR, and nothing would be checked."""
    if cluster.clock.monotonic() >= until_s:
        raise Unsupported("the machine is busy: the steps took longer than replica.lag.time.max.ms allows")


def append(leader: Broker, topic: Topic, *values: bytes, acks: int = -1) -> int:
    """Append a batch, which must succeed, and return its offset."""
    answer = leader.produce(topic, batch(*values), acks=acks)
    expect("error code of Produce", 0, answer.error_code)
    return answer.base_offset


# -- the ISR ---------------------------------------------------------------------------------------------


@clause("REP-21", "cut")
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", ErrorCode.REQUEST_TIMED_OUT))
def test_a_follower_that_is_cut_off_leaves_the_isr_each_time(cluster: Cluster) -> None:
    """acks=all is answered as soon as it has left, and it returns when it has caught up, more than once."""
    placed = Placed.create(cluster)
    leader, wait_ms = cluster.leader(placed.topic), int(lag_s(cluster) * 4000)
    for _ in range(3):
        cluster.cut_links(placed.lagging, placed.leader)
        answer = leader.produce(placed.topic, batch(b"v"), timeout_ms=wait_ms)
        expect("error code of acks=all while a follower is cut off", 0, answer.error_code)
        expect("ISR", sorted((placed.leader, placed.controller)), sorted(cluster.isr_of(placed.topic)))
        cluster.restore_links()
        await_isr(cluster, placed.topic, 3)


@clause("REP-25", "idle")
@defect(Reply(MetadataRequest, ISR, lambda nodes: nodes[:2]))
def test_a_follower_that_has_all_records_stays_in_the_isr(cluster: Cluster) -> None:
    """However long it does not fetch, as long as nothing is written (Partition.isFollowerOutOfSync)."""
    placed = Placed.create(cluster)
    append(cluster.leader(placed.topic), placed.topic, b"v")
    cluster.clock.sleep(1)
    cluster.cut_links(placed.lagging, placed.leader)
    cluster.clock.sleep(2.5 * lag_s(cluster))
    expect("members of the ISR", 3, len(cluster.isr_of(placed.topic)))


@clause("REP-25", "slow link")
@defect(Reply(MetadataRequest, ISR, lambda nodes: nodes[:2]))
def test_a_follower_that_is_always_a_fetch_behind_stays_in_the_isr(cluster: Cluster) -> None:
    """It has caught up with the end that the leader had when it last fetched (Replica.updateFetchState)."""
    placed = Placed.create(cluster)
    leader, end_s = cluster.leader(placed.topic), cluster.clock.monotonic() + LOAD_S + 2 * lag_s(cluster)
    cluster.slow_links(placed.lagging, placed.leader, delay_ms=LATENCY_MS)
    while cluster.clock.monotonic() < end_s:
        append(leader, placed.topic, b"v", acks=LEADER_ONLY)
        cluster.clock.sleep(LATENCY_MS / 5000)
        expect("members of the ISR under load", 3, len(cluster.isr_of(placed.topic)))


# -- a leader that lags ----------------------------------------------------------------------------------


@clause("LST-4", "new leader behind")
@defect(Reply(ListOffsetsRequest, "topics.partitions.error_code", 0), Reply(ListOffsetsRequest, OFFSET, increment))
def test_a_new_leader_that_lags_returns_the_log_start_and_no_end(cluster: Cluster) -> None:
    """Its high watermark is below the start of its epoch, as a follower cannot fetch (KIP-207).

    What is below the high watermark is returned, and a fetch above it waits without an error.
    """
    placed = Placed.create(cluster)
    topic, leader = placed.topic, cluster.leader(placed.topic)
    append(leader, topic, b"early", b"early")
    order = placed.controller, placed.lagging, placed.leader
    expect("error code of a reassignment", 0, reassign(cluster, topic.name, order))
    await_replicas(cluster, topic, order)
    cluster.clock.sleep(1)  # the followers learn of the high watermark
    cluster.cut_links(placed.lagging, placed.leader, placed.controller)
    until_s = cluster.clock.monotonic() + lag_s(cluster) * 3 / 4
    late = batch(b"late", timestamp_ms=NOW_MS + 1)
    expect("error code of acks=1", 0, leader.produce(topic, late, acks=LEADER_ONLY).error_code)
    cluster.eventually("the record at the next leader", lambda: _has_fetched(cluster, placed), FAILOVER_S)
    topic = elect_preferred(cluster, topic)
    leader = cluster.leader(topic)
    _expect_no_end(leader, topic, until_s)
    cluster.restore_links()
    await_isr(cluster, topic, 3)
    cluster.eventually("the log end 3", lambda: leader.list_offset(topic, LATEST).offset == 3, FAILOVER_S)


def _has_fetched(cluster: Cluster, placed: Placed) -> bool:
    """Return whether the follower that is not cut off has the late record, by the size of its log."""
    sizes = []
    for node in (placed.controller, placed.leader):
        with cluster.connect(cluster.target.addresses[node]) as broker:
            sizes.append(log_sizes(broker)[placed.topic.name, 0])
    return sizes[0] == sizes[1]


def _expect_no_end(leader: Broker, topic: Topic, until_s: float) -> None:
    asked = 0
    while leader.clock.monotonic() < until_s:
        for timestamp in (EARLIEST, NOW_MS, LATEST, MAX_TIMESTAMP, NOW_MS + 1):
            version = leader.version_of(ListOffsetsRequest, 7)
            found = leader.list_offset(topic, timestamp, version=version)
            if leader.clock.monotonic() < until_s and found.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                lags = timestamp not in (EARLIEST, NOW_MS)
                expected = (ErrorCode.OFFSET_NOT_AVAILABLE, -1) if lags else (0, 0)
                what = f"error code and offset of ListOffsets({timestamp})"
                expect(what, expected, (found.error_code, found.offset))
                asked += 1
        fetched = leader.fetch(topic, 3)
        if leader.clock.monotonic() < until_s and fetched.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            expect("error code and records of a fetch above", (0, b""), (fetched.error_code, fetched.records or b""))
        leader.clock.sleep(0.05)
    if not asked:
        raise Unsupported("the election took longer than replica.lag.time.max.ms")


# -- preferred replicas ----------------------------------------------------------------------------------


@clause("FET-43", "lagging")
@defect(Reply(FetchRequest, PREFERRED, -1))
def test_a_replica_that_lacks_the_offset_or_is_out_of_sync_is_not_preferred(cluster: Cluster) -> None:
    racks, (*_, controller) = _racks(cluster), controller_last(cluster)
    leads, lagging = next(
        (one, other)
        for one, other in itertools.permutations(racks, 2)
        if other != controller and racks[one] != racks[other]
    )
    topic = create_assigned_topic(cluster, [leads, lagging])
    leader = cluster.leader(topic)
    append(leader, topic, b"both")
    rack = racks[lagging]
    cluster.eventually("a redirection to the follower", lambda: _preferred(leader, topic, 1, rack) == lagging)
    until_s = cluster.clock.monotonic() + lag_s(cluster) / 2
    cluster.cut_links(lagging, leads)
    append(leader, topic, b"leader only", acks=LEADER_ONLY)
    found = _preferred(leader, topic, 2, rack)
    need_time(cluster, until_s)
    expect("preferred replica at an offset that it lacks", -1, found)
    await_isr(cluster, topic, 1)
    expect("preferred replica at 0 while it is out of sync", -1, _preferred(leader, topic, 0, rack))


@clause("FET-41", "lagging")
@defect(Reply(FetchRequest, PREFERRED, -1))
def test_of_two_replicas_in_a_rack_the_one_with_more_records_is_preferred(cluster: Cluster) -> None:
    """At each offset that both have, too (RackAwareReplicaSelector, by log end offset)."""
    racks = _racks(cluster)
    shared = {rack: nodes for rack in racks.values() if len(nodes := [n for n in racks if racks[n] == rack]) == 2}
    if not shared:
        raise Unsupported("two of three brokers need a rack of their own")
    rack, pair = next(iter(shared.items()))
    leads = next(node for node in racks if node not in pair)
    topic = create_assigned_topic(cluster, [leads, *pair])
    leader = cluster.leader(topic)
    append(leader, topic, b"all")
    cluster.eventually("a redirection to the rack", lambda: _preferred(leader, topic, 1, rack) in pair)
    for lagging, other in (pair, pair[::-1]):
        until_s = cluster.clock.monotonic() + lag_s(cluster) * 3 / 4
        cluster.cut_links(lagging, leads)
        end = append(leader, topic, b"not all", acks=LEADER_ONLY) + 1
        cluster.eventually("a redirection at the end", partial(_redirects, leader, topic, end, rack))
        found = [_preferred(leader, topic, offset, rack) for offset in (0, end - 1, end)]
        need_time(cluster, until_s)
        expect("preferred replicas at the start, before and at the end", [other] * 3, found)
        cluster.restore_links()
        await_isr(cluster, topic, 3)


def _redirects(leader: Broker, topic: Topic, offset: int, rack: str) -> bool:
    return _preferred(leader, topic, offset, rack) != -1


def _preferred(leader: Broker, topic: Topic, offset: int, rack: str) -> int:
    version = leader.version_of(FetchRequest, RACKS_SINCE)
    return fetch_reply(leader, topic, version, offset, rack=rack)[1].preferred_read_replica


def _racks(cluster: Cluster) -> dict[int, str]:
    """Return the racks of all brokers; raises Unsupported without three brokers in two racks, or without links."""
    cluster.need_brokers(3)
    cluster.need(LINKS)
    with cluster.connect() as broker:
        racks = {node.node_id: node.rack or "" for node in broker.call(MetadataRequest(topics=()), 8).brokers}
    if not all(racks.values()) or len(set(racks.values())) < 2:
        raise Unsupported("the brokers need two racks")
    return racks


# -- markers that are not replicated ---------------------------------------------------------------------


@clause("TXN-10", "unreplicated marker")
@pytest.mark.parametrize("outcome", [COMMIT, ABORT], ids=["commit", "abort"])
@defect(Reply(OffsetFetchRequest, "topics.partitions.committed_offset", increment))
def test_offsets_of_a_transaction_are_valid_when_their_marker_is_replicated(cluster: Cluster, outcome: bool) -> None:
    """A follower of the group's partition of __consumer_offsets cannot fetch the marker."""
    cluster.need_brokers(3)
    cluster.need(LINKS)
    topic = cluster.create_topic()
    producer, group, leader, follower = _apart(cluster)
    producer.add_offsets(group)
    producer.commit_offset(group, topic, 4)
    before = -1
    cluster.clock.sleep(0.5)
    until_s = cluster.clock.monotonic() + lag_s(cluster) / 2
    cluster.cut_links(follower, leader)
    producer.end(commit=outcome)
    need_time(cluster, until_s)
    while cluster.clock.monotonic() < until_s:
        found = coordinated_offset(cluster, group, topic)
        if cluster.clock.monotonic() < until_s:
            expect("committed offset before the marker is replicated", before, found)
        cluster.clock.sleep(0.05)
    cluster.restore_links()
    after = 4 if outcome else before
    cluster.eventually(
        f"the committed offset {after}", lambda: coordinated_offset(cluster, group, topic) == after, FAILOVER_S
    )


def _apart(cluster: Cluster) -> tuple[Transactional, str, int, int]:
    """Return a producer that the controller coordinates, a group of another coordinator, that one, and a third broker.

    A coordinator of both would wait for the replica that is cut off before it writes any marker. In KRaft brokers name
    any of them as controller, each time another, and the links to the real one stay as they are.
    """
    nodes = {address: node for node, address in cluster.target.addresses.items()}
    for _ in range(ATTEMPTS):
        controller, transactional_id, group = controller_last(cluster)[-1], cluster.name("x"), cluster.group()
        leader = nodes[cluster.coordinator(group).address]
        if nodes[coordinator_of(cluster, transactional_id)] == controller != leader:
            producer = Transactional.initialize(cluster, transactional_id=transactional_id)
            return producer, group, leader, next(node for node in nodes.values() if node not in (leader, controller))
    raise Unsupported("one broker coordinates all groups and transactions")

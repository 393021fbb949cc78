"""Readers at each replica (KIP-392): the leader and its followers return the same, also while transactions are open."""

from highwater.conformance.cases.fetches.test_other_replicas import UNUSED_RACK, fetch_reply, outcome, racks_of
from highwater.conformance.cases.records.walks.test_mixed_failovers import Producers
from highwater.conformance.cases.support.log_walks.reads import (
    EPOCH_SINCE,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Read,
    fetch,
    read_everything,
)
from highwater.conformance.cases.support.log_walks.walk import APPEND_TIME, Key, Walk
from highwater.conformance.cases.support.log_walks.writes import Deletion, delete
from highwater.conformance.cases.support.reassignments import move_leaders
from highwater.conformance.cases.support.replicas import FAILOVER_S, FOLLOWERS_SERVE_SINCE
from highwater.conformance.cases.topics.test_replicas import delete_records
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, increment
from highwater.conformance.expectations import expect
from highwater.conformance.models.batches import NONE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest

ROUNDS = 3


def compare_replicas(walk: Walk) -> None:
    """Read all logs from each replica, under both isolation levels, and with leader epochs around the present one."""
    walk.await_replicas()
    walk.await_ends(stable=True)
    read_everything(walk)
    for node in sorted(walk.cluster.target.addresses):
        if node != walk.topics[walk.keys[0]].leader_id:
            with walk.at_follower(node):
                _await_start(walk)
                walk.await_ends(stable=True)
                read_everything(walk)
                _read_with_epochs(walk)
            _expect_refusals(walk, node)


def _await_start(walk: Walk) -> None:
    """Wait until the follower has deleted what the leader has: it learns that with the records that it fetches."""
    for key, topic in walk.topics.items():
        log, broker = walk.logs[key], walk.broker(topic.leader)
        walk.cluster.eventually(
            f"the start {log.start} of {walk.show(key)}",
            lambda: broker.fetch(topic, log.end).log_start_offset == log.start,  # noqa: B023
        )


def _read_with_epochs(walk: Walk) -> None:
    version = walk.version(FetchRequest, EPOCH_SINCE)
    for step in (-1, 0, 1):
        reads = [
            Read(key, walk.random.randint(log.start - 1, log.end + 1), leader_epoch=log.leader_epoch + step)
            for key, log in walk.logs.items()
        ]
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            fetch(walk, [*reads, Read(walk.unknown_keys[0], 0)], version=version, isolation=isolation)


def _expect_refusals(walk: Walk, node: int) -> None:
    """Expect that a follower refuses all that only a leader does, and changes nothing."""
    key = walk.random.choice(walk.keys)
    topic, broker = walk.topics[key], walk.broker(walk.cluster.target.addresses[node])
    found = {
        "Produce": broker.produce(topic, batch(b"v")).error_code,
        "ListOffsets": broker.list_offset(topic, NONE).error_code,
        "DeleteRecords": delete_records(broker, topic, NONE).error_code,
    }
    oldest = walk.versions(FetchRequest)[0]
    if oldest < FOLLOWERS_SERVE_SINCE:
        found["Fetch"] = broker.fetch(topic, walk.logs[key].start, version=oldest).error_code
    for name, error in found.items():
        expect(f"error code of {name} at a follower", ErrorCode.NOT_LEADER_OR_FOLLOWER, error)


@clause("FET-33", "mixed")
@defect(
    Request(FetchRequest, "isolation_level", READ_UNCOMMITTED),
    Reply(FetchRequest, "responses.partitions.last_stable_offset", increment),
    Reply(FetchRequest, "responses.partitions.aborted_transactions", ()),
)
def test_all_replicas_return_the_same(cluster: Cluster) -> None:
    """Records are written, deleted and left open in transactions while the leader is each replica in turn."""
    cluster.need_brokers(3)
    walk = Walk(cluster, 33, {}, APPEND_TIME)
    walk.versions(FetchRequest, FOLLOWERS_SERVE_SINCE)
    producers = Producers(walk)
    for node in sorted(cluster.target.addresses)[:ROUNDS]:
        move_leaders(cluster, list(walk.topics.values()), node)
        walk.follow_leaders()
        producers.write()
        walk.await_replicas()
        walk.await_ends(stable=True)
        delete(walk, [Deletion(key, walk.random.randint(log.start, log.stable)) for key, log in walk.logs.items()])
        compare_replicas(walk)
    producers.end()
    compare_replicas(walk)


@clause("FET-41", "mixed")
@defect(
    Request(FetchRequest, "rack_id", ""),
    Reply(FetchRequest, "responses.partitions.preferred_read_replica", increment),
    Reply(FetchRequest, "responses.partitions.error_code", 0),
)
def test_each_rack_and_each_offset_have_their_replica(cluster: Cluster) -> None:
    """Each replica leads in turn, and a reader in each rack reads at, before and after both ends of the log."""
    cluster.need_brokers(3)
    racks = racks_of(cluster)
    walk = Walk(cluster, 41, {})
    producers = Producers(walk)
    for leader in sorted(racks):
        move_leaders(cluster, list(walk.topics.values()), leader)
        walk.follow_leaders()
        producers.write()
        walk.await_replicas()
        walk.await_ends(stable=True)
        delete(walk, [Deletion(key, walk.random.randint(log.start, log.stable)) for key, log in walk.logs.items()])
        for rack in (*sorted(set(racks.values())), UNUSED_RACK):
            near = {node for node, its in racks.items() if its == rack}
            for key in walk.keys:
                _compare_rack(walk, key, rack, set() if leader in near else near)


def _compare_rack(walk: Walk, key: Key, rack: str, near: set[int]) -> None:
    """Compare the reply of the leader to a reader in a rack: one of these replicas, or else records or an error."""
    log, topic = walk.logs[key], walk.topics[key]
    broker = walk.broker(topic.leader)
    versions = walk.versions(FetchRequest, FOLLOWERS_SERVE_SINCE)

    def read(offset: int) -> tuple[int, int, int]:
        version = walk.random.choice(versions)
        return outcome(fetch_reply(broker, topic, version, offset, rack=rack)[1])

    def is_known() -> bool:
        """The leader learns with the next fetch of a follower where its log begins and ends."""
        ends = {read(offset)[1] for offset in (log.start, log.end)}
        return ends <= (near or {NONE}) and read(log.start - 1)[0] == ErrorCode.OFFSET_OUT_OF_RANGE

    walk.cluster.eventually("the leader to know both ends of the log of its followers", is_known, FAILOVER_S)
    for offset in (log.start - 1, log.start, (log.start + log.end) // 2, log.end, log.end + 1):
        error, replica, records = read(offset)
        what = f"partition {walk.show(key)}, offset {offset} of {log.start} to {log.end}, from {rack}"
        exists = log.start <= offset <= log.end
        expect(f"{what}: error code", 0 if exists else ErrorCode.OFFSET_OUT_OF_RANGE, error)
        expect(f"{what}: preferred replica", near if exists and near else {NONE}, replica)
        expect(f"{what}: there are records", offset < log.end and exists and not near, records > 0)

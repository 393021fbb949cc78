"""Mixed requests before, between and after restarts and changes of leader: nothing that was stored changes."""

import pytest

from highwater.conformance.cases.support.log_walks.choices import plain_batch
from highwater.conformance.cases.support.log_walks.reads import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    EpochLookup,
    Lookup,
    Read,
    describe_producers,
    epoch_ends,
    fetch,
    list_offsets,
    read_everything,
)
from highwater.conformance.cases.support.log_walks.senders import Sender
from highwater.conformance.cases.support.log_walks.walk import APPEND_TIME, Walk
from highwater.conformance.cases.support.log_walks.writers import Classic
from highwater.conformance.cases.support.log_walks.writes import Deletion, Write, delete, produce
from highwater.conformance.clause import clause, era
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, increment
from highwater.conformance.models.batches import ABORT, COMMIT
from highwater.conformance.models.log import EARLIEST, LATEST
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import OffsetForLeaderEpochRequest

ROUNDS = 3


class Producers:
    """Producers with and without transactions, which go on in the next round."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.senders = [Sender.create(walk) for _ in range(2)]
        self.writers = [Classic(walk, verified=False) for _ in range(2)]

    def write(self) -> None:
        """Send requests of all producers; a transaction that a writer begins may stay open."""
        for _ in range(6):
            self._write_without_transactions()
            writer, kind = self.walk.random.choice(self.writers), self.walk.random.random()
            if not writer.added:
                writer.add(self.walk.random.sample(self.walk.keys, 3))
            elif kind < 0.25:
                writer.end(self.walk.random.choice((ABORT, COMMIT)))
            if writer.added:
                writer.write(writer.choose_keys())

    def _write_without_transactions(self) -> None:
        writes = list[Write]()
        for key in self.walk.keys:
            if self.walk.random.random() < 0.3:
                writes.append(Write(key, plain_batch(self.walk, (Compression.NONE, Compression.GZIP))))
            else:
                writes.append(self.walk.random.choice(self.senders).write(key))
        produce(self.walk, writes)
        for sender in self.senders:
            sender.learn_epochs()

    def reconnect(self) -> None:
        for writer in self.writers:
            writer.reconnect()

    def end(self) -> None:
        for writer in self.writers:
            if writer.added:
                writer.end(ABORT)


def compare_everything(walk: Walk) -> None:
    """Read all logs under both isolation levels, with their ends, epochs and producers."""
    walk.await_ends(stable=True)
    read_everything(walk)
    describe_producers(walk)
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        for timestamp in (EARLIEST, LATEST):
            list_offsets(walk, [Lookup(key, timestamp) for key in walk.keys], isolation=isolation)
        of_one_segment = [key for key in walk.keys if key[0] == walk.names[1]]
        list_offsets(walk, [Lookup(key, walk.began_ms) for key in of_one_segment], isolation=isolation)
    newest = max(log.leader_epoch for log in walk.logs.values())
    for epoch in range(-1, newest + 2):
        epoch_ends(walk, [EpochLookup(key, epoch) for key in walk.keys])
        fetch(walk, [Read(key, log.end, last_epoch=max(epoch, 0)) for key, log in walk.logs.items()])
    old = [
        EpochLookup(key, log.leader_epoch, log.leader_epoch - 1) for key, log in walk.logs.items() if log.leader_epoch
    ]
    epoch_ends(walk, old)


@clause("FET-16", "new leaders")
@defect(
    Request(FetchRequest, "isolation_level", READ_UNCOMMITTED),
    Reply(OffsetForLeaderEpochRequest, "topics.partitions.end_offset", increment),
)
@pytest.mark.cluster_fault
@pytest.mark.slow
def test_the_next_leader_has_the_same_records_epochs_and_producers(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    walk = Walk(cluster, 9, {}, APPEND_TIME)
    producers = Producers(walk)
    for _ in range(ROUNDS):
        producers.write()
        walk.await_replicas()
        read_everything(walk, isolations=(READ_UNCOMMITTED,))
        delete(walk, [Deletion(key, walk.random.randint(log.start, log.stable)) for key, log in walk.logs.items()])
        leader = walk.topics[walk.keys[0]].leader_id
        cluster.stop(leader)
        walk.follow_leaders(excluded=leader)
        producers.reconnect()
        compare_everything(walk)
        producers.write()
        cluster.start(leader)
        walk.follow_leaders()
        walk.restart()
        walk.await_replicas()
        producers.reconnect()
    producers.end()
    compare_everything(walk)


@clause("FET-16", "restarts")
@era("3.9")  # 2.8.2 forgets a producer whose records are deleted
@defect(
    Request(FetchRequest, "isolation_level", READ_UNCOMMITTED),
    Reply(OffsetForLeaderEpochRequest, "topics.partitions.end_offset", increment),
)
@pytest.mark.cluster_fault
@pytest.mark.slow
def test_a_restarted_broker_has_the_same_records_epochs_and_producers(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    walk = Walk(cluster, 10, {"segment.ms": "10000"}, APPEND_TIME, replicas=1)
    producers = Producers(walk)
    for _ in range(ROUNDS):
        producers.write()
        read_everything(walk, isolations=(READ_UNCOMMITTED,))
        delete(walk, [Deletion(key, walk.random.randint(log.start, log.stable)) for key, log in walk.logs.items()])
        leader = walk.topics[walk.keys[0]].leader_id
        cluster.stop(leader)
        cluster.start(leader)
        walk.follow_leaders()
        walk.restart()
        producers.reconnect()
        compare_everything(walk)
    producers.write()
    producers.end()
    compare_everything(walk)

"""Overlapping transactions of several producers over six partitions, compared with a model after every step."""

from highwater.conformance.cases.support.log_walks.choices import around, plain_batch
from highwater.conformance.cases.support.log_walks.reads import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    SPECIAL_SINCE,
    Lookup,
    Read,
    describe_producers,
    fetch,
    follow,
    list_offsets,
    read_everything,
)
from highwater.conformance.cases.support.log_walks.walk import APPEND_TIME, Walk
from highwater.conformance.cases.support.log_walks.writers import Classic, Newer, TransactionWriter
from highwater.conformance.cases.support.log_walks.writes import Deletion, Write, delete, produce
from highwater.conformance.cases.support.transactions import need_transaction_version
from highwater.conformance.clause import clause
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.batches import ABORT, COMMIT
from highwater.conformance.models.log import EARLIEST, LATEST, MAX_TIMESTAMP
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest
from highwater.reference.wire.messages.produce import ProduceRequest


def look(walk: Walk) -> None:
    """Read each partition from any offset, and its end, under an isolation level."""
    isolation = walk.random.choice((READ_COMMITTED, READ_COMMITTED, READ_UNCOMMITTED))
    fetch(
        walk,
        [Read(key, walk.random.randint(log.start, log.end)) for key, log in walk.logs.items()],
        isolation=isolation,
    )
    list_offsets(walk, [Lookup(key, walk.random.choice((LATEST, EARLIEST))) for key in walk.keys], isolation=isolation)


def look_up_times(walk: Walk) -> None:
    """Search for times at, before and after those of records, markers included, and for the largest one."""
    read_everything(walk, isolations=(READ_UNCOMMITTED,))
    special = (MAX_TIMESTAMP,) if walk.supports(ListOffsetsRequest, SPECIAL_SINCE[MAX_TIMESTAMP]) else ()
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        for _ in range(4):
            lookups = []
            for key, log in walk.logs.items():
                times = [timestamp for _, timestamp, _ in log.times()]
                largest = () if log.largest_is_deleted else special
                chosen = walk.random.choice((around(walk.random, [0, *times]), *largest))
                lookups.append(Lookup(key, chosen))
            list_offsets(walk, lookups, isolation=isolation)


def write_plainly(walk: Walk) -> None:
    keys = [key for key in walk.keys if walk.random.random() < 0.3]
    produce(walk, [Write(key, plain_batch(walk, (Compression.NONE,))) for key in keys])


def end_all(walk: Walk, writers: list[TransactionWriter]) -> None:
    """End all transactions, then compare all that is stored and known."""
    for writer in writers:
        if writer.added:
            writer.end(walk.random.choice((ABORT, COMMIT)))
    read_everything(walk)
    describe_producers(walk)
    for writer in writers:
        writer.describe()


def verifies(walk: Walk) -> bool:
    """Whether the broker refuses batches to partitions outside of the transaction."""
    try:
        need_transaction_version(walk.cluster.connect(), 1)
    except Unsupported:
        return False
    return True


@clause("TXN-29", "mixed")
@defect(
    Request(FetchRequest, "isolation_level", READ_UNCOMMITTED),
    Reply(ProduceRequest, "responses.partition_responses.error_code", 0),
    Reply(FetchRequest, "responses.partitions.aborted_transactions", ()),
)
def test_overlapping_transactions_have_each_its_own_end(cluster: Cluster) -> None:
    walk = Walk(cluster, 7, {}, APPEND_TIME)
    writers = [Classic(walk, verified=verifies(walk)) for _ in range(3)]
    for number in walk.steps(45):
        writer, kind = walk.random.choice(writers), walk.random.random()
        if kind < 0.15 or not writer.added:
            added = walk.random.sample(walk.keys, walk.random.randint(1, 4))
            writer.add(added + ([walk.random.choice(walk.unknown_keys)] if kind < 0.08 else []))
        elif kind < 0.6:
            writer.write(writer.choose_keys())
        elif kind < 0.75:
            writer.end(walk.random.choice((ABORT, COMMIT)))
        elif kind < 0.85:
            write_plainly(walk)
        elif kind < 0.9:
            writer.write_without_id(writer.added)
        writer.describe()
        look(walk)
        if number % 9 == 8:
            look_up_times(walk)
        if number in (15, 30) and walk.supports(DeleteRecordsRequest):
            follow(walk, READ_UNCOMMITTED)  # the timestamps that the broker chose are learnt from it
            delete(walk, [Deletion(key, min((log.start + log.end) // 2, log.stable)) for key, log in walk.logs.items()])
    follow(walk, READ_UNCOMMITTED)
    describe_producers(walk)
    end_all(walk, list(writers))


@clause("TXN-14", "mixed")
@defect(
    Request(FetchRequest, "isolation_level", READ_UNCOMMITTED),
    Reply(ProduceRequest, "responses.partition_responses.error_code", 0),
)
def test_overlapping_transactions_with_epochs_that_rise(cluster: Cluster) -> None:
    need_transaction_version(cluster.connect(), 2)
    walk = Walk(cluster, 8, {}, APPEND_TIME)
    writers = [Newer(walk) for _ in range(3)]
    for number in walk.steps(45):
        writer, kind = walk.random.choice(writers), walk.random.random()
        if kind < 0.6 or not writer.added:
            writer.write(walk.random.sample(walk.keys, walk.random.randint(1, 4)))
        elif kind < 0.8:
            writer.end(walk.random.choice((ABORT, COMMIT)))
        else:
            write_plainly(walk)
        writer.describe()
        look(walk)
        if number % 9 == 8:
            look_up_times(walk)
    follow(walk, READ_UNCOMMITTED)
    describe_producers(walk)
    end_all(walk, list(writers))

"""Offsets committed in a transaction: visible after its commit, never after its abort (KIP-98)."""

from typing import Final

from highwater.fuzz.wire.sequences.context import TOPICS, SequenceAbandoned, SequenceContext
from highwater.fuzz.wire.sequences.groups import Group, commit_metadata, committed
from highwater.fuzz.wire.sequences.logs import POLLS_MAX, Producer, init_producer
from highwater.fuzz.wire.sequences.transactions import TRANSACTION, end_request
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest
from highwater.reference.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TRANSACTIONS: Final = (1, 3)


def run(context: SequenceContext) -> None:
    """Run some transactions with one offset commit each."""
    connection, name = context.connect(), f"fuzz-offsets-{context.rng.getrandbits(40):x}"
    context.call(connection, FindCoordinatorRequest(key=name))
    version = context.version(FindCoordinatorRequest, at_least=1)
    context.call(connection, FindCoordinatorRequest(key=name, key_type=TRANSACTION), version)
    context.topic(connection, TOPICS[0])
    producer, group = init_producer(context, connection, name), Group(name)
    for _ in context.steps(*TRANSACTIONS):
        _transact(context, connection, producer, group)


def _transact(context: SequenceContext, connection: Connection, producer: Producer, group: Group) -> None:
    offset = context.rng.randrange(1 << 40)
    add_offsets = AddOffsetsToTxnRequest(
        transactional_id=group.name,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group.name,
    )
    context.accepted(context.call(connection, add_offsets).error_code)
    part = TxnOffsetCommitRequestPartition(committed_offset=offset, committed_metadata=commit_metadata(offset))
    commit = TxnOffsetCommitRequest(
        transactional_id=group.name, group_id=group.name, producer_id=producer.producer_id,
        producer_epoch=producer.epoch, topics=(TxnOffsetCommitRequestTopic(name=TOPICS[0], partitions=(part,)),),
    )  # fmt: skip
    context.accepted(context.call(connection, commit).topics[0].partitions[0].error_code)
    _expect(context, connection, group, "in an open transaction")
    is_committed = context.rng.random() < 0.5
    context.accepted(context.call(connection, end_request(producer, committed=is_committed)).error_code)
    group.committed = offset if is_committed else group.committed
    _await_marker(context, connection, group)
    _expect(context, connection, group, "after its commit" if is_committed else "after its abort")


def _expect(context: SequenceContext, connection: Connection, group: Group, when: str) -> None:
    code, part = committed(context, group, connection)
    if code != ErrorCode.GROUP_ID_NOT_FOUND and not context.accepted(code, ErrorCode.UNSTABLE_OFFSET_COMMIT):
        return
    offset = part.committed_offset if part is not None else -1
    context.require(offset == group.committed, f"committed offset {offset} {when}, {group.committed} expected")


def _await_marker(context: SequenceContext, connection: Connection, group: Group) -> None:
    """Wait for the marker, which is written after the response; until then a stable fetch fails (KIP-447)."""
    for _ in range(POLLS_MAX):
        code, part = committed(context, group, connection, stable=True)
        if code == ErrorCode.GROUP_ID_NOT_FOUND or (not code and (part is None or not part.error_code)):
            return
    raise SequenceAbandoned("the marker is not written yet")

"""Offsets that are committed in a transaction: seen when it is committed, and never when it is aborted (KIP-98)."""

from typing import Final

from highwater.fuzz.wire.sequences.context import TOPICS, Abandoned, Stage
from highwater.fuzz.wire.sequences.groups import Group, committed, said_with
from highwater.fuzz.wire.sequences.logs import LOOKS_MAX, Producer, idempotent
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

ENDS: Final = (1, 3)


def play(stage: Stage) -> None:
    """Some transactions, each with one commit in it."""
    line, name = stage.line(), f"fuzz-offsets-{stage.chance.getrandbits(40):x}"
    stage.call(line, FindCoordinatorRequest(key=name))
    version = stage.version(FindCoordinatorRequest, at_least=1)
    stage.call(line, FindCoordinatorRequest(key=name, key_type=TRANSACTION), version)
    stage.topic(line, TOPICS[0])
    producer, group = idempotent(stage, line, name), Group(name)
    for _ in stage.steps(*ENDS):
        _transact(stage, line, producer, group)


def _transact(stage: Stage, line: Connection, producer: Producer, group: Group) -> None:
    offset = stage.chance.randrange(1 << 40)
    taken_in = AddOffsetsToTxnRequest(
        transactional_id=group.name,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group.name,
    )
    stage.accepted(stage.call(line, taken_in).error_code)
    part = TxnOffsetCommitRequestPartition(committed_offset=offset, committed_metadata=said_with(offset))
    commit = TxnOffsetCommitRequest(
        transactional_id=group.name, group_id=group.name, producer_id=producer.producer_id,
        producer_epoch=producer.epoch, topics=(TxnOffsetCommitRequestTopic(name=TOPICS[0], partitions=(part,)),),
    )  # fmt: skip
    stage.accepted(stage.call(line, commit).topics[0].partitions[0].error_code)
    _expect(stage, line, group, "in an open transaction")
    is_committed = stage.chance.random() < 0.5
    stage.accepted(stage.call(line, end_request(producer, committed=is_committed)).error_code)
    group.committed = offset if is_committed else group.committed
    _settled(stage, line, group)
    _expect(stage, line, group, "after its commit" if is_committed else "after its abort")


def _expect(stage: Stage, line: Connection, group: Group, when: str) -> None:
    code, part = committed(stage, group, line)
    if code != ErrorCode.GROUP_ID_NOT_FOUND and not stage.accepted(code, ErrorCode.UNSTABLE_OFFSET_COMMIT):
        return
    seen = part.committed_offset if part is not None else -1
    stage.require(seen == group.committed, f"committed offset {seen} {when}, {group.committed} expected")


def _settled(stage: Stage, line: Connection, group: Group) -> None:
    """The marker is written after the answer; who asks for what is stable is told to wait for it (KIP-447)."""
    for _ in range(LOOKS_MAX):
        code, part = committed(stage, group, line, stable=True)
        if code == ErrorCode.GROUP_ID_NOT_FOUND or (not code and (part is None or not part.error_code)):
            return
    raise Abandoned("no marker yet")

"""A scripted transactional producer, classic or under transaction version 2, for tests."""

from typing import Any

from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

BUSY = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
BUSY |= {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER}


class Producer:
    """A producer; `newest` uses EndTxn 5, Produce 12 and TxnOffsetCommit 5, otherwise the versions before them."""

    def __init__(self, world: Simulated, name: str, *, newest: bool = False, timeout_ms: int = 60_000) -> None:
        self.world, self.name, self.newest, self.timeout_ms = world, name, newest, timeout_ms
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    def _coordinator(self) -> int:
        return self.world.coordinator(self.name, 1)

    def _retried(self, ask: Any) -> Any:
        """Repeat the request while the coordinator is loading or has a transition in progress, as clients do."""
        answer = ask()
        while answer.error_code in BUSY:
            self.world.run(20)
            answer = ask()
        return answer

    def try_init(self, *, bump: bool = False) -> Any:
        who = (self.producer_id, self.epoch) if bump else (-1, -1)
        body = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=self.timeout_ms,
            producer_id=who[0], producer_epoch=who[1],
        )  # fmt: skip
        return self._retried(lambda: self.world.ask(body, 4, self._coordinator()))

    def init(self, *, bump: bool = False) -> "Producer":
        answer = self.try_init(bump=bump)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
        self._now_is(answer.producer_id, answer.producer_epoch)
        return self

    def _now_is(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()

    def try_add(self, topic: str, number: int = 0) -> ErrorCode:
        wanted = AddPartitionsToTxnTopic(name=topic, partitions=(number,))
        body = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name, v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch, v3_and_below_topics=(wanted,),
        )  # fmt: skip
        while True:
            answer = self.world.ask(body, 3, self._coordinator())
            error = ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
            if error not in BUSY:
                return error
            self.world.run(20)

    def produce_request(self, topic: str, value: bytes, number: int = 0) -> tuple[ProduceRequest, int]:
        """Return a request with the next batch, and its version."""
        body = self.world.produce_request(
            topic, [value], number, transactional_id=self.name, producer_id=self.producer_id,
            producer_epoch=self.epoch, base_sequence=self.sequences.get((topic, number), 0), transactional=True,
        )  # fmt: skip
        return body, 12 if self.newest else 9

    def try_write(self, topic: str, *values: bytes, number: int = 0) -> ErrorCode:
        """Without AddPartitionsToTxn."""
        sequence = self.sequences.get((topic, number), 0)
        answer = self._retried(
            lambda: self.world.produce(
                topic, list(values), number, version=12 if self.newest else 9, transactional_id=self.name,
                producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence, transactional=True,
            )
        )  # fmt: skip
        if answer.error_code == ErrorCode.NONE:
            self.sequences[topic, number] = sequence + len(values)
        return ErrorCode(answer.error_code)

    def write(self, topic: str, *values: bytes, number: int = 0) -> None:
        if not self.newest:
            assert self.try_add(topic, number) is ErrorCode.NONE
        error = self.try_write(topic, *values, number=number)
        assert error is ErrorCode.NONE, error.name

    def end_request(self, *, commit: bool) -> tuple[EndTxnRequest, int]:
        body = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        return body, 5 if self.newest else 3

    def try_end(self, *, commit: bool) -> ErrorCode:
        request = self.end_request(commit=commit)
        answer = self._retried(lambda: self.world.ask(*request, self._coordinator()))
        if answer.error_code == ErrorCode.NONE and self.newest:
            self._now_is(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def end(self, *, commit: bool) -> None:
        error = self.try_end(commit=commit)
        assert error is ErrorCode.NONE, error.name

    def commit(self) -> None:
        self.end(commit=True)

    def abort(self) -> None:
        self.end(commit=False)

    # -- offsets ---------------------------------------------------------------------------------

    def try_commit_offset(
        self, group: str, topic: str, offset: int, *, generation: int = -1, member: str = ""
    ) -> ErrorCode:
        if not self.newest:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
            )
            error = self._retried(lambda: self.world.ask(adding, 3, self._coordinator())).error_code
            assert error == ErrorCode.NONE, ErrorCode(error).name
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        body = TxnOffsetCommitRequest(
            transactional_id=self.name, group_id=group, producer_id=self.producer_id, producer_epoch=self.epoch,
            generation_id=generation, member_id=member,
            topics=(TxnOffsetCommitRequestTopic(name=topic, partitions=(partition,)),),
        )  # fmt: skip
        while True:
            answer = self.world.ask(body, 5 if self.newest else 3, self.world.coordinator(group, 0))
            error = ErrorCode(answer.topics[0].partitions[0].error_code)
            if error not in BUSY:
                return error
            self.world.run(20)

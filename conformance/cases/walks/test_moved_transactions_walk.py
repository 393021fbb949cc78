"""Transactions whose coordinator moves to another broker and back, while all brokers are up: as in the model.

What a coordinator forgets when it resigns, and reads when it is elected, shows only if it runs on between the two.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from highwater.conformance.cases.support.committed_offsets import java_hash
from highwater.conformance.cases.support.polling import eventually_equal
from highwater.conformance.cases.support.reassignments import move_leader, replicas_of
from highwater.conformance.cases.support.replicas import await_isr
from highwater.conformance.cases.support.transactions import (
    ABORT,
    COMMIT,
    Transactional,
    committed_values,
    coordinator_of,
    eventually_stable,
)
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, increment
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.transactions import ABORTED, COMMITTED, EMPTY, ONGOING, ModelTransaction
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)

pytestmark = [pytest.mark.cluster_fault, pytest.mark.slow]

TRANSACTION_LOG = "__transaction_state"
MOVED_S = 20.0


class MovingTransactions:
    """Transactional producers of one partition of the transaction log, each with what is described of it."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        cluster.need_brokers(2)
        self.cluster = cluster
        names = self._beside_each_other(count)
        self.partition = cluster.topic(TRANSACTION_LOG, partition=self._partition_of(names[0]))
        self.nodes = list(replicas_of(cluster, self.partition))
        await_isr(cluster, self.partition, len(self.nodes))
        self.found = [ModelTransaction(Transactional.initialize(cluster, transactional_id=n), EMPTY) for n in names]

    def _partition_of(self, name: str) -> int:
        log = self.cluster.describe(TRANSACTION_LOG)
        if log is None or not log.partitions:
            raise Unsupported(f"the target has no {TRANSACTION_LOG}")
        return java_hash(name) % len(log.partitions)

    def _beside_each_other(self, count: int) -> list[str]:
        """Return transactional ids of one partition."""
        found = [self.cluster.name("x")]
        coordinator_of(self.cluster, found[0])  # the topic is created for the first of them
        first = self._partition_of(found[0])
        while len(found) < count:
            if self._partition_of(name := self.cluster.name("x")) == first:
                found.append(name)
        return found

    def begin(self, number: int, *topics: Topic) -> None:
        """Begin a transaction of a producer with a record in each partition."""
        producer = self.found[number].producer
        producer.begin(*topics)
        for topic in topics:
            producer.write(topic, 0, b"of %d" % number)
        self.found[number] = ModelTransaction(producer, ONGOING, topics)

    def end(self, number: int, *, commit: bool) -> None:
        producer = self.found[number].producer
        producer.end(commit=commit)
        self.found[number] = ModelTransaction(producer, COMMITTED if commit else ABORTED)

    def move(self) -> None:
        """Let the other of two replicas lead the partition, and wait until both brokers know."""
        former = self.found[0].producer.coordinator
        node = next(each for each in self.nodes if each != self.partition.leader_id)
        self.partition = move_leader(self.cluster, self.partition, node)
        name = self.found[0].producer.id
        self.cluster.eventually(
            "the next coordinator", lambda: coordinator_of(self.cluster, name) == self.partition.leader, MOVED_S
        )
        self.cluster.eventually("the resignation of the former", partial(self._has_resigned, former), MOVED_S)
        self.found = [replace(each, producer=each.producer.reconnect()) for each in self.found]

    def _has_resigned(self, broker: Broker) -> bool:
        request = DescribeTransactionsRequest(transactional_ids=(self.found[0].producer.id,))
        return bool(only(broker.call(request).transaction_states).error_code == ErrorCode.NOT_COORDINATOR)

    def check(self) -> None:
        """Compare what the coordinator describes, and what each broker lists: the others nothing of these."""
        ids = tuple(each.producer.id for each in self.found)
        request = DescribeTransactionsRequest(transactional_ids=ids)
        described = DescribeTransactionsResponse(transaction_states=tuple(each.described for each in self.found))
        coordinator = self.found[0].producer.coordinator
        eventually_equal(self.cluster, "DescribeTransactions", described, partial(coordinator.call, request), 0)
        states = {each.producer.id: each.state for each in self.found}
        for node, address in self.cluster.target.addresses.items():
            expected = states if node == self.partition.leader_id else {}
            with self.cluster.connect(address) as broker:
                expect(f"transactions that broker {node} lists", expected, self._listed(broker, states))

    def _listed(self, broker: Broker, names: dict[str, str]) -> dict[str, str]:
        reply = broker.call(ListTransactionsRequest())
        expect("error code of ListTransactions", 0, reply.error_code)
        found = reply.transaction_states
        return {each.transactional_id: each.transaction_state for each in found if each.transactional_id in names}

    def check_refusals(self, former: Sequence[Transactional]) -> None:
        """Expect NOT_COORDINATOR for what producers still send to the coordinator that has resigned."""
        for producer in former:
            request = EndTxnRequest(
                transactional_id=producer.id, producer_id=producer.producer_id, producer_epoch=producer.epoch,
                committed=COMMIT,
            )  # fmt: skip
            wrong = ErrorCode.NOT_COORDINATOR
            expect("error code of EndTxn", wrong, producer.coordinator.call(request, 1).error_code)
            init = InitProducerIdRequest(transactional_id=producer.id, transaction_timeout_ms=producer.timeout_ms)
            expect("error code of InitProducerId", wrong, producer.coordinator.call(init, 1).error_code)


@clause("TXN-28", "moved coordinator")
@era("3.0")  # DescribeTransactions and ListTransactions (KIP-664)
@defect(
    Reply(ListTransactionsRequest, "transaction_states", ()),
    Reply(DescribeTransactionsRequest, "transaction_states.producer_epoch", increment),
    Request(EndTxnRequest, "committed", lambda committed: not committed),
)
def test_transactions_follow_the_model_while_their_coordinator_moves(cluster: Cluster) -> None:
    """Two are open, one is committed, one aborted, one has not begun; a former coordinator must know none of them."""
    cluster.connect().version_of(ListTransactionsRequest)
    first, second = (cluster.create_topic() for _ in range(2))
    moving = MovingTransactions(cluster, 5)
    for number, topics in enumerate(((first,), (first, second), (second,), (second,))):
        moving.begin(number, *topics)
    moving.end(2, commit=COMMIT)
    moving.end(3, commit=ABORT)
    moving.check()
    former = [each.producer for each in moving.found]
    moving.move()
    moving.check_refusals(former)
    moving.check()
    moving.end(0, commit=COMMIT)
    moving.begin(4, first)
    again = Transactional.initialize(cluster, transactional_id=moving.found[3].producer.id)
    moving.found[3] = ModelTransaction(again, EMPTY)
    moving.check()
    moving.move()
    moving.check()
    moving.end(1, commit=ABORT)
    moving.end(4, commit=COMMIT)
    moving.check()
    for topic, values in ((first, [b"of 0", b"of 4"]), (second, [b"of 2"])):
        with cluster.leader(topic) as leader:
            eventually_stable(cluster, leader, topic, 6)
            found = committed_values(leader, topic)
        expect(f"values for read_committed: {found}", True, found == values)

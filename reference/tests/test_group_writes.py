"""What a group coordinator writes: late commits, deletions beside open transactions, and members that never join."""

from typing import Any

import pytest

from highwater.reference.effects import broker_peer
from highwater.reference.tests.test_group_coordinator import GROUP, TOPIC, Coordinator
from highwater.reference.tests.transactional import Producer
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from highwater.reference.wire.messages.groups import (
    DeleteGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from highwater.reference.wire.messages.transactions import (
    DescribeTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

E = ErrorCode
MINUTE_MS = 60_000
BOTH = pytest.mark.parametrize("newest", [False, True], ids=["classic", "version 2"])


class Paired(Coordinator):
    """Two brokers; `stop_follower` crashes the one that does not coordinate the group."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(brokers=2, **settings)
        self.follower = next(each for each in self.broker_ids if each != self.at)

    def stop_follower(self) -> None:
        self.world.crash(broker_peer(self.follower), lose_unflushed=False)

    def start_follower(self) -> None:
        self.world.start(broker_peer(self.follower))


def delete_offset(world: Coordinator) -> tuple[ErrorCode, ErrorCode | None]:
    """Return the error of the request, and that of the partition."""
    wanted = (OffsetDeleteRequestTopic(name=TOPIC, partitions=(OffsetDeleteRequestPartition(partition_index=0),)),)
    answer = world.ask(OffsetDeleteRequest(group_id=GROUP, topics=wanted), 0, world.at)
    found = [ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions]
    return ErrorCode(answer.error_code), next(iter(found), None)


def delete_group(world: Coordinator) -> ErrorCode:
    answer = world.ask(DeleteGroupsRequest(groups_names=(GROUP,)), 2, world.at)
    return ErrorCode(answer.results[0].error_code)


# -- writes that are committed late -------------------------------------------------------------------


def test_a_commit_that_timed_out_is_applied_once_it_is_replicated() -> None:
    """It is in the log: the next coordinator would load it. Apache Kafka shows it when the high watermark passes it."""
    world = Paired()
    assert world.commit("", -1, 5) is E.NONE
    world.stop_follower()
    assert world.commit("", -1, 6) is E.COORDINATOR_NOT_AVAILABLE
    assert world.committed() == {TOPIC: [5]}
    world.start_follower()
    world.wait(lambda: world.committed() == {TOPIC: [6]})


def test_late_commits_are_applied_in_the_order_of_the_log() -> None:
    world = Paired()
    world.stop_follower()
    first = world.begin_commit("", -1, 1)
    world.run(100)
    second = world.begin_commit("", -1, 2)
    assert world.answer(first).topics[0].partitions[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    world.start_follower()
    world.answer(second)
    world.run(10_000)
    assert world.committed() == {TOPIC: [2]}


def test_a_deletion_that_timed_out_is_applied_once_it_is_replicated() -> None:
    world = Paired()
    assert world.commit("", -1, 5) is E.NONE
    world.stop_follower()
    assert delete_group(world) is E.COORDINATOR_NOT_AVAILABLE
    assert world.committed() == {TOPIC: [5]}
    world.start_follower()
    world.wait(lambda: world.committed() == {})
    assert world.state == "Dead"


# -- offsets of open transactions ----------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("commit", [True, False])
def test_a_deleted_group_takes_the_offsets_of_open_transactions_with_it(newest: bool, commit: bool) -> None:
    world = Coordinator()
    producer = Producer(world, "tx", newest=newest).init()
    assert producer.try_commit_offset(GROUP, TOPIC, 7) is E.NONE
    assert delete_group(world) is E.NONE
    assert world.state == "Dead"
    producer.end(commit=commit)
    world.run(1_000)
    assert world.committed() == {}
    world.restart()
    assert world.committed() == {}


@BOTH
def test_an_offset_of_an_open_transaction_can_be_deleted(newest: bool) -> None:
    world = Coordinator()
    producer = Producer(world, "tx", newest=newest).init()
    assert producer.try_commit_offset(GROUP, TOPIC, 7) is E.NONE
    assert delete_offset(world) == (E.NONE, E.NONE)
    producer.commit()
    world.run(1_000)
    assert world.committed() == {}
    world.restart()
    assert world.committed() == {}


@pytest.mark.parametrize("wait_ms", range(0, 40, 2))
def test_an_offset_that_its_transaction_commits_while_the_group_is_deleted_is_deleted(wait_ms: int) -> None:
    """The marker may come before the tombstones in the log, and be committed after they were written."""
    world = Coordinator(brokers=3)
    producer = Producer(world, "tx").init()
    assert producer.try_commit_offset(GROUP, TOPIC, 7) is E.NONE
    ending = world.send(*producer.end_request(commit=True), world.coordinator("tx", 1))
    world.run(wait_ms)
    assert delete_group(world) is E.NONE
    assert world.answer(ending).error_code == E.NONE
    world.run(1_000)
    assert world.committed() == {}
    world.world.crash(broker_peer(world.at), lose_unflushed=False)
    world.wait(lambda: world.coordinator(GROUP, 0) != world.at)
    world.at = world.coordinator(GROUP, 0)
    assert world.committed() == {}


def test_offsets_of_a_group_of_another_kind_stay_while_it_has_members() -> None:
    world = Coordinator()
    body = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=10_000, rebalance_timeout_ms=5_000, member_id="",
        protocol_type="connect", protocols=(JoinGroupRequestProtocol(name="default", metadata=b""),),
    )  # fmt: skip
    assert world.commit("", -1, 5) is E.NONE
    joined = world.ask(body, 3, world.at)
    assert joined.error_code == E.NONE
    assert delete_offset(world) == (E.NON_EMPTY_GROUP, None)
    assert world.committed() == {TOPIC: [5]}


def transactional_commit(
    world: Coordinator, producer: Producer, version: int, *topics: str, generation: int = -1, member: str = ""
) -> list[ErrorCode]:
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    body = TxnOffsetCommitRequest(
        transactional_id=producer.name, group_id=GROUP, producer_id=producer.producer_id,
        producer_epoch=producer.epoch, generation_id=generation, member_id=member,
        topics=tuple(TxnOffsetCommitRequestTopic(name=name, partitions=(part,)) for name in topics),
    )  # fmt: skip
    answer = world.ask(body, version, world.at)
    return [ErrorCode(topic.partitions[0].error_code) for topic in answer.topics]


def state_of(world: Coordinator, producer: Producer) -> str:
    answer = world.ask(DescribeTransactionsRequest(transactional_ids=(producer.name,)), 0, world.at)
    return str(answer.transaction_states[0].transaction_state)


@pytest.mark.parametrize(("version", "expected"), [(3, E.INVALID_TXN_STATE), (4, E.TRANSACTION_ABORTABLE)])
def test_offsets_of_a_group_that_was_not_added_are_refused(version: int, expected: ErrorCode) -> None:
    """KIP-890: from version 4 on with an error after which the transaction can be aborted."""
    world = Coordinator()
    producer = Producer(world, "tx").init()
    assert transactional_commit(world, producer, version, TOPIC) == [expected]
    assert transactional_commit(world, producer, version, "unknown", TOPIC) == [
        E.UNKNOWN_TOPIC_OR_PARTITION, expected,
    ]  # fmt: skip


def test_unknown_partitions_alone_begin_no_transaction() -> None:
    world = Coordinator()
    producer = Producer(world, "tx", newest=True).init()
    assert transactional_commit(world, producer, 5, "unknown") == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert transactional_commit(world, producer, 5) == []
    assert state_of(world, producer) == "Empty"


def test_the_producer_is_checked_before_the_member() -> None:
    world = Coordinator()
    producer = Producer(world, "tx", newest=True).init()
    current, producer.epoch = producer.epoch, producer.epoch + 1
    assert transactional_commit(world, producer, 5, TOPIC, generation=3, member="m") == [E.INVALID_PRODUCER_EPOCH]
    producer.epoch = current
    assert transactional_commit(world, producer, 5, TOPIC, generation=3, member="m") == [E.ILLEGAL_GENERATION]
    assert state_of(world, producer) == "Ongoing"


# -- members ------------------------------------------------------------------------------------------


def test_a_new_member_waits_five_minutes_for_its_first_generation() -> None:
    """Its connection may be gone, which nothing shows; another member may take longer to join again."""
    world = Coordinator(group_max_session_timeout_ms=30 * MINUTE_MS)
    old = world.one(rebalance_ms=10 * MINUTE_MS, session_ms=20 * MINUTE_MS)
    waiting = world.begin_join(world.new_id())
    world.run(4 * MINUTE_MS + 50_000)
    assert waiting not in world.hand.answers
    world.run(20_000)
    assert world.answer(waiting).error_code == E.UNKNOWN_MEMBER_ID
    assert world.join(old.member_id, rebalance_ms=10 * MINUTE_MS, session_ms=20 * MINUTE_MS).error_code == E.NONE


# -- group ids ------------------------------------------------------------------------------------------


def test_an_empty_group_id_may_commit_and_fetch_offsets() -> None:
    """Clients of early versions did so; a group of members needs a name."""
    world = Coordinator()
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topics = (OffsetCommitRequestTopic(name=TOPIC, partitions=(part,)),)
    committed = world.ask(OffsetCommitRequest(group_id="", topics=topics), 2, world.at)
    assert committed.topics[0].partitions[0].error_code == E.NONE
    fetched = world.ask(OffsetFetchRequest(group_id="", topics=None), 7, world.at)
    assert fetched.topics[0].partitions[0].committed_offset == 5
    joined = JoinGroupRequest(group_id="", session_timeout_ms=10_000, member_id="", protocol_type="consumer")
    assert world.ask(joined, 3, world.at).error_code == E.INVALID_GROUP_ID


def test_an_error_of_a_group_is_returned_once() -> None:
    world = Paired()
    topics = (OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0,)),)
    asked = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=GROUP, topics=topics),))
    elsewhere = next(each for each in world.broker_ids if each != world.at)
    found = world.ask(asked, 8, elsewhere).groups[0]
    assert (found.error_code, found.topics) == (E.NOT_COORDINATOR, ())

"""Transactions in the simulator with one or three brokers and a scripted producer (KIP-98, KIP-447, KIP-890)."""

from itertools import permutations

import pytest

from highwater.reference.api_versions import TRANSACTION_VERSION
from highwater.reference.effects import broker_peer
from highwater.reference.tests.simulated import Simulated
from highwater.reference.tests.transactional import Producer
from highwater.reference.transactions.records import pack_key, pack_value, unpack_key, unpack_value
from highwater.reference.transactions.states import STEPS, TABLE, TransactionState
from highwater.reference.transactions.transaction import MAX_EPOCH, Transaction
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from highwater.reference.wire.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol, SyncGroupRequest
from highwater.reference.wire.messages.metadata import ApiVersionsRequest
from highwater.reference.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TopicRequest,
)

TOPIC = "t"
BOTH = pytest.mark.parametrize("newest", [False, True], ids=["classic", "version 2"])


@pytest.fixture
def world() -> Simulated:
    world = Simulated()
    world.create(TOPIC, 2)
    return world


def settled(world: Simulated, topic: str = TOPIC, number: int = 0) -> None:
    """Wait until the markers of all transactions are written."""
    world.wait(lambda: 0 <= world.end_offset(topic, number) == world.end_offset(topic, number, isolation_level=1))


# -- atomicity --------------------------------------------------------------------------------------


@BOTH
def test_a_committed_transaction_is_visible_in_all_its_partitions(world: Simulated, newest: bool) -> None:
    producer = Producer(world, "tx", newest=newest).init()
    producer.write(TOPIC, b"one")
    producer.write(TOPIC, b"two", number=1)
    assert world.read_committed(TOPIC) == world.read_committed(TOPIC, 1) == []
    assert (world.end_offset(TOPIC), world.end_offset(TOPIC, isolation_level=1)) == (1, 0)
    producer.commit()
    settled(world)
    settled(world, number=1)
    assert world.read_committed(TOPIC) == [b"one"]
    assert world.read_committed(TOPIC, 1) == [b"two"]
    assert world.end_offset(TOPIC) == 2  # the marker takes an offset


@BOTH
def test_an_aborted_transaction_is_never_visible(world: Simulated, newest: bool) -> None:
    producer = Producer(world, "tx", newest=newest).init()
    producer.write(TOPIC, b"no")
    producer.abort()
    producer.write(TOPIC, b"yes")
    producer.commit()
    settled(world)
    assert world.read_committed(TOPIC) == [b"yes"]
    data = world.fetch(TOPIC, isolation_level=1)
    assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions] == [(producer.producer_id, 0)]
    assert world.fetch(TOPIC).aborted_transactions is None


def test_an_open_transaction_holds_back_later_records(world: Simulated) -> None:
    slow, quick = Producer(world, "slow").init(), Producer(world, "quick").init()
    slow.write(TOPIC, b"slow")
    quick.write(TOPIC, b"quick")
    quick.commit()
    world.run(500)
    assert world.read_committed(TOPIC) == []
    assert world.fetch(TOPIC).last_stable_offset == 0
    slow.abort()
    settled(world)
    assert world.read_committed(TOPIC) == [b"quick"]


# -- fencing ---------------------------------------------------------------------------------------


@BOTH
def test_init_producer_id_fences_the_previous_producer_and_aborts_its_transaction(
    world: Simulated, newest: bool
) -> None:
    zombie = Producer(world, "tx", newest=newest).init()
    zombie.write(TOPIC, b"left open")
    successor = Producer(world, "tx", newest=newest).init()
    assert successor.producer_id == zombie.producer_id
    assert successor.epoch > zombie.epoch
    assert zombie.try_write(TOPIC, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.try_end(commit=True) is ErrorCode.PRODUCER_FENCED
    assert zombie.try_init(bump=True).error_code == ErrorCode.PRODUCER_FENCED
    successor.write(TOPIC, b"successor")
    successor.commit()
    settled(world)
    assert world.read_committed(TOPIC) == [b"successor"]


def test_a_repeated_epoch_bump_gets_the_same_reply(world: Simulated) -> None:
    """KIP-360."""
    producer = Producer(world, "tx").init()
    before = producer.epoch
    first, again = producer.try_init(bump=True), producer.try_init(bump=True)
    assert (first.producer_epoch, again.producer_epoch) == (before + 1, before + 1)


@BOTH
def test_a_transaction_is_aborted_after_its_timeout(world: Simulated, newest: bool) -> None:
    producer = Producer(world, "tx", newest=newest, timeout_ms=1_000).init()
    producer.write(TOPIC, b"too long")
    settled(world)
    assert world.world.now_ms > 1_000
    assert world.read_committed(TOPIC) == []
    assert producer.try_end(commit=True) is ErrorCode.PRODUCER_FENCED


def test_an_exhausted_epoch_gets_a_new_producer_id(world: Simulated) -> None:
    producer = Producer(world, "tx").init()
    entry = world.broker().transactions.store.entries["tx"]
    entry.current = Transaction("tx", producer.producer_id, MAX_EPOCH - 2, timeout_ms=60_000)
    second = Producer(world, "tx").init()
    assert (second.producer_id, second.epoch) == (producer.producer_id, MAX_EPOCH - 1)
    third = Producer(world, "tx", newest=True).init()
    assert third.producer_id != producer.producer_id
    assert third.epoch == 0
    entry.current = Transaction("tx", third.producer_id, MAX_EPOCH - 1, timeout_ms=60_000)
    third.epoch = MAX_EPOCH - 1
    request = third.end_request(commit=False)
    third.write(TOPIC, b"last of its id")
    third.commit()
    assert third.producer_id != request[0].producer_id
    assert third.epoch == 0
    third.write(TOPIC, b"first of the next")
    third.commit()
    settled(world)
    assert world.read_committed(TOPIC) == [b"last of its id", b"first of the next"]


# -- refused requests -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "timeout_ms", "error"),
    [
        ("", 1_000, ErrorCode.INVALID_REQUEST),
        ("tx", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("tx", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_init_producer_id_refuses_invalid_arguments(
    world: Simulated, version: int, name: str, timeout_ms: int, error: ErrorCode
) -> None:
    world.coordinator("tx", 1)
    world.wait(lambda: Producer(world, "other").init().epoch == 0)
    body = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    answer = world.ask(body, version)
    assert (answer.error_code, answer.producer_id) == (error, -1)


def test_a_transactional_batch_outside_a_transaction_is_refused(world: Simulated) -> None:
    """KIP-890: it would open a transaction that never ends."""
    classic = Producer(world, "tx").init()
    assert classic.try_write(TOPIC, b"not added") is ErrorCode.INVALID_TXN_STATE
    classic.write(TOPIC, b"added")
    assert classic.try_write(TOPIC, b"not added", number=1) is ErrorCode.INVALID_TXN_STATE
    stranger = Producer(world, "tx")
    stranger.producer_id, stranger.epoch = classic.producer_id + 1, 0
    assert stranger.try_write(TOPIC, b"wrong id") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.end_offset(TOPIC) == 1


def slow(world: Simulated, kind: str, spread_ms: int) -> None:
    """Delay the requests or responses of this kind between all brokers by up to so much."""
    world.world.network.separate_connections()
    for source, target in permutations(map(broker_peer, world.broker_ids), 2):
        world.world.network.add_faults(source, target, kind, spread_ms=spread_ms)


def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    """The marker arrives while the first batch of the next transaction is verified; EndTxn returns before it.

    The batch was refused with TRANSACTION_ABORTABLE, and those behind it with OUT_OF_ORDER_SEQUENCE_NUMBER.
    """
    world = Simulated(3)
    world.create(TOPIC, 3)
    slow(world, "AddPartitionsToTxnRequest", 600)
    slow(world, "WriteTxnMarkersRequest", 60)
    producer = Producer(world, "tx", newest=True).init()
    for _ in range(10):
        assert {producer.try_write(TOPIC, b"v", number=number) for number in range(3)} == {ErrorCode.NONE}
        assert producer.try_commit_offset("g", TOPIC, 1) is ErrorCode.NONE
        producer.commit()
    settled(world)
    assert [len(world.read_committed(TOPIC, number)) for number in range(3)] == [10, 10, 10]


@BOTH
def test_a_transaction_that_ends_during_the_verification_gets_no_more_records(newest: bool) -> None:
    """KIP-890: the record would be the first of a transaction that never ends."""
    world = Simulated(3)
    world.create(TOPIC, 3)
    producer = Producer(world, "tx", newest=newest).init()
    coordinator = world.coordinator("tx", 1)
    number = next(number for number in range(3) if world.leader(TOPIC, number) != coordinator)
    if not newest:
        assert producer.try_add(TOPIC, number) is ErrorCode.NONE
    world.world.network.separate_connections()
    peers = broker_peer(coordinator), broker_peer(world.leader(TOPIC, number))
    world.world.network.add_faults(*peers, "AddPartitionsToTxnResponse", delay_ms=500)
    request = producer.produce_request(TOPIC, b"late", number=number)
    late = world.send(*request, world.leader(TOPIC, number))
    world.run(100)
    producer.abort()
    error = ErrorCode(world.answer(late).responses[0].partition_responses[0].error_code)
    assert error is (ErrorCode.INVALID_PRODUCER_EPOCH if newest else ErrorCode.INVALID_TXN_STATE)
    producer.write(TOPIC, b"next", number=number)
    producer.commit()
    settled(world, number=number)
    assert world.read_committed(TOPIC, number) == [b"next"]


def test_a_transactional_batch_needs_a_transactional_id(world: Simulated) -> None:
    answer = world.produce(TOPIC, [b"v"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_plain_batch_in_the_middle_of_a_transaction_is_refused(world: Simulated) -> None:
    producer = Producer(world, "tx").init()
    producer.write(TOPIC, b"in it")
    plain = world.produce(
        TOPIC, [b"not"], producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=1
    )
    assert plain.error_code == ErrorCode.INVALID_TXN_STATE


@BOTH
def test_end_txn_without_an_open_transaction(world: Simulated, newest: bool) -> None:
    """Only an abort is accepted, and only under version 2, where a producer does not know the added partitions."""
    producer = Producer(world, "tx", newest=newest).init()
    assert producer.try_end(commit=True) is ErrorCode.INVALID_TXN_STATE
    assert producer.try_end(commit=False) is (ErrorCode.NONE if newest else ErrorCode.INVALID_TXN_STATE)


@BOTH
def test_a_repeated_end_txn_gets_the_same_reply(world: Simulated, newest: bool) -> None:
    producer = Producer(world, "tx", newest=newest).init()
    producer.write(TOPIC, b"v")
    request = producer.end_request(commit=True)
    other = producer.end_request(commit=False)
    producer.commit()
    world.run(500)
    again = world.ask(*request)
    assert again.error_code == ErrorCode.NONE
    if newest:
        assert (again.producer_id, again.producer_epoch) == (producer.producer_id, producer.epoch)
    assert world.ask(*other).error_code == ErrorCode.INVALID_TXN_STATE


# -- a delayed EndTxn (KAFKA-17754) ----------------------------------------------------------------


def delayed_end(world: Simulated, *, newest: bool) -> tuple[ErrorCode, list[bytes], list[bytes]]:
    """Send a commit twice; one copy arrives during the next transaction, which then aborts."""
    producer = Producer(world, "tx", newest=newest).init()
    producer.write(TOPIC, b"first")
    delayed = producer.end_request(commit=True)
    producer.commit()
    settled(world)
    producer.write(TOPIC, b"torn?")
    error = ErrorCode(world.ask(*delayed).error_code)
    world.run(500)
    producer.write(TOPIC, b"aborted", number=1)
    producer.abort()
    settled(world, number=1)
    return error, world.read_committed(TOPIC), world.read_committed(TOPIC, 1)


def test_a_delayed_end_txn_is_refused_under_transaction_version_2(world: Simulated) -> None:
    assert delayed_end(world, newest=True) == (ErrorCode.PRODUCER_FENCED, [b"first"], [])


def test_a_delayed_end_txn_splits_the_next_transaction_of_a_classic_client(world: Simulated) -> None:
    """Expected: the requests of both transactions are identical, so part of the aborted records becomes visible."""
    assert delayed_end(world, newest=False) == (ErrorCode.NONE, [b"first", b"torn?"], [])


def test_without_the_guard_transaction_version_2_is_not_offered() -> None:
    world = Simulated(guards_off=("EndTxnBumpsEpoch",))
    world.create(TOPIC, 2)
    offered = offered_versions(world)
    assert offered == {TRANSACTION_VERSION: 1, 0: 11, 26: 4, 28: 4}
    assert delayed_end(world, newest=offered[26] >= 5) == (ErrorCode.NONE, [b"first", b"torn?"], [])


def test_with_the_guard_transaction_version_2_is_offered(world: Simulated) -> None:
    assert offered_versions(world) == {TRANSACTION_VERSION: 2, 0: 12, 26: 5, 28: 5}


def offered_versions(world: Simulated) -> dict[object, int]:
    requested = ApiVersionsRequest(client_software_name="hand", client_software_version="1")
    answer = world.ask(requested, 4)
    level = {each.name: each.max_version_level for each in answer.finalized_features}[TRANSACTION_VERSION]
    return {
        TRANSACTION_VERSION: level,
        **{api.api_key: api.max_version for api in answer.api_keys if api.api_key in {0, 26, 28}},
    }


# -- offsets ---------------------------------------------------------------------------------------


def committed(world: Simulated, group: str, *, stable: bool = False) -> tuple[int, int]:
    """Return the committed offset and the error code."""
    requested = OffsetFetchRequest(
        group_id=group, topics=(OffsetFetchRequestTopic(name=TOPIC, partition_indexes=(0,)),), require_stable=stable
    )
    found = world.ask(requested, 7, world.coordinator(group, 0)).topics[0].partitions[0]
    return found.committed_offset, found.error_code


@BOTH
def test_transactional_offsets_are_visible_after_the_commit(world: Simulated, newest: bool) -> None:
    producer = Producer(world, "tx", newest=newest).init()
    for offset, commit in ((5, False), (7, True)):
        assert producer.try_commit_offset("g", TOPIC, offset) is ErrorCode.NONE
        assert committed(world, "g") == (-1, ErrorCode.NONE)
        assert committed(world, "g", stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        producer.end(commit=commit)
        world.wait(lambda: committed(world, "g", stable=True)[1] == ErrorCode.NONE)
    assert committed(world, "g") == (7, ErrorCode.NONE)


def joined(world: Simulated, group: str) -> tuple[str, int]:
    """Return the one member of a group and its generation."""
    coordinator = world.coordinator(group, 0)
    protocols = (JoinGroupRequestProtocol(name="range", metadata=b""),)
    body = JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
        protocols=protocols,
    )  # fmt: skip
    answer = world.ask(body, 3, coordinator)
    assert answer.error_code == ErrorCode.NONE
    synced = SyncGroupRequest(group_id=group, member_id=answer.member_id, generation_id=answer.generation_id)
    assert world.ask(synced, 2, coordinator).error_code == ErrorCode.NONE
    return answer.member_id, answer.generation_id


def test_only_a_member_of_the_current_generation_commits(world: Simulated) -> None:
    """KIP-447."""
    world.wait(lambda: committed(world, "g")[1] == ErrorCode.NONE)
    member, generation = joined(world, "g")
    producer = Producer(world, "tx").init()
    for who, when, error in (
        (member, generation - 1, ErrorCode.ILLEGAL_GENERATION),
        ("gone", generation, ErrorCode.UNKNOWN_MEMBER_ID),
        (member, generation, ErrorCode.NONE),
    ):
        assert producer.try_commit_offset("g", TOPIC, 5, generation=when, member=who) is error
    producer.commit()
    world.wait(lambda: committed(world, "g", stable=True) == (5, ErrorCode.NONE))


@BOTH
def test_a_commit_of_a_generation_to_an_unknown_group_is_refused(world: Simulated, newest: bool) -> None:
    producer = Producer(world, "tx", newest=newest).init()
    found = [producer.try_commit_offset("unknown", TOPIC, 5, generation=number, member="m") for number in (0, 3)]
    assert found == [ErrorCode.ILLEGAL_GENERATION] * 2
    assert producer.try_commit_offset("unknown", TOPIC, 5) is ErrorCode.NONE
    assert producer.try_commit_offset("unknown", TOPIC, 5, generation=3, member="m") is ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_offsets_survive_a_group_coordinator_restart(world: Simulated) -> None:
    producer = Producer(world, "tx").init()
    assert producer.try_commit_offset("g", TOPIC, 5) is ErrorCode.NONE
    restart(world)
    assert committed(world, "g", stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    producer.commit()
    world.wait(lambda: committed(world, "g", stable=True) == (5, ErrorCode.NONE))
    restart(world)
    assert committed(world, "g") == (5, ErrorCode.NONE)


# -- restarts of the coordinator -------------------------------------------------------------------


def restart(world: Simulated) -> None:
    world.world.crash(broker_peer(1), lose_unflushed=False)
    world.world.start(broker_peer(1))
    world.wait(lambda: world.leader(TOPIC) == 1 and world.coordinator("tx", 1) == 1 and world.coordinator("g", 0) == 1)


@BOTH
def test_an_open_transaction_survives_a_coordinator_restart(world: Simulated, newest: bool) -> None:
    producer = Producer(world, "tx", newest=newest).init()
    producer.write(TOPIC, b"before")
    restart(world)
    producer.write(TOPIC, b"after")
    producer.commit()
    settled(world)
    assert world.read_committed(TOPIC) == [b"before", b"after"]


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_writes_the_markers_of_a_prepared_transaction(commit: bool) -> None:
    world = Simulated(3)
    world.create(TOPIC)
    producer = Producer(world, "tx").init()
    producer.write(TOPIC, b"v")
    decided = world.coordinator("tx", 1)
    leader = world.leader(TOPIC)
    world.world.hold(broker_peer(decided), broker_peer(leader))  # markers do not reach the partition leaders
    blocked = decided != leader
    producer.end(commit=commit)
    if blocked:
        assert world.end_offset(TOPIC, isolation_level=1) == 0
    world.world.crash(broker_peer(decided), lose_unflushed=False)
    world.wait(lambda: world.leader(TOPIC) > 0 and world.leader(TOPIC) != decided)
    settled(world)
    assert world.read_committed(TOPIC) == ([b"v"] if commit else [])


# -- tables and formats ----------------------------------------------------------------------------


def test_every_state_is_reached_and_only_dead_is_final() -> None:
    assert {after for _, after in STEPS} == set(TransactionState)
    final = set(TransactionState) - {before for before, _ in STEPS}
    assert final == {TransactionState.DEAD}
    assert TABLE.initial is TransactionState.EMPTY


def test_transaction_log_records_round_trip() -> None:
    transaction = Transaction(
        "tx", 7, 3, previous_producer_id=6, next_producer_id=8, timeout_ms=9, state=TransactionState.PREPARE_ABORT,
        partitions=frozenset({("a", 1), ("a", 0), ("b", 2)}), started_ms=10, updated_ms=11, client_version=2,
    )  # fmt: skip
    assert unpack_key(pack_key("tx")) == "tx"
    assert unpack_value("tx", pack_value(transaction)) == transaction
    # TransactionLogValue version 0, as Apache Kafka 2.8 writes it: no tagged fields.
    old = bytes.fromhex("0000000000000000000700030000000901000000010001610000000100000002")
    found = unpack_value("tx", old + bytes(16))
    assert (found.producer_id, found.state, found.partitions) == (7, TransactionState.ONGOING, frozenset({("a", 2)}))


def test_an_unused_transactional_id_expires() -> None:
    world = Simulated(
        transactional_id_expiration_ms=1_000, transaction_remove_expired_transaction_cleanup_interval_ms=500
    )
    producer = Producer(world, "tx").init()
    store = world.broker().transactions.store
    assert "tx" in store.entries
    world.wait(lambda: "tx" not in store.entries)
    assert Producer(world, "tx").init().producer_id != producer.producer_id


# -- requests of tools -----------------------------------------------------------------------------


def test_describe_and_list_requests_return_transactions_and_producers(world: Simulated) -> None:
    producer = Producer(world, "tx").init()
    producer.write(TOPIC, b"v", number=1)
    found, unknown = world.ask(DescribeTransactionsRequest(transactional_ids=("tx", "other")), 0).transaction_states
    assert (found.transaction_state, found.producer_id, found.topics[0].partitions) == (
        "Ongoing",
        producer.producer_id,
        (1,),
    )
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    listed = world.ask(ListTransactionsRequest(state_filters=("Ongoing", "Sleeping")), 2)
    assert [each.transactional_id for each in listed.transaction_states] == ["tx"]
    assert listed.unknown_state_filters == ("Sleeping",)
    requested = DescribeProducersRequest(topics=(TopicRequest(name=TOPIC, partition_indexes=(1, 9)),))
    one, missing = world.ask(requested, 0).topics[0].partitions
    assert [(each.producer_id, each.current_txn_start_offset) for each in one.active_producers] == [
        (producer.producer_id, 0)
    ]
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_follower_describes_producers() -> None:
    world = Simulated(brokers=2)
    world.create(TOPIC)
    world.wait(lambda: world.produce(TOPIC, [b"v"], producer_id=7, producer_epoch=0, base_sequence=0).error_code == 0)
    follower = next(broker_id for broker_id in world.broker_ids if broker_id != world.leader(TOPIC))

    def described() -> list[int]:
        requested = DescribeProducersRequest(topics=(TopicRequest(name=TOPIC, partition_indexes=(0,)),))
        (found,) = world.ask(requested, 0, follower).topics[0].partitions
        assert found.error_code == ErrorCode.NONE
        return [producer.producer_id for producer in found.active_producers]

    world.wait(lambda: described() == [7])

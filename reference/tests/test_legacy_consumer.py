"""Consumers of 0.7 over the embedded metadata store (kafka-0.7-design, "Distribution"; spec/zk_rebalance)."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from highwater.errors import UsageError
from highwater.reference.configuration.broker import BrokerConfig, StoreConfig
from highwater.reference.context import Context, from_json
from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.drivers.simulation.world import World
from highwater.reference.effects import STORE, Effect, Instant, Outbox
from highwater.reference.legacy.consumer import GroupConsumer
from highwater.reference.legacy.registry import BrokerPartition, range_of, register_broker
from highwater.reference.procedures import spawn
from highwater.reference.store.metadata_store import MetadataStore

SESSION_MS = 900
SETTLE_MS = 4_000


class Registrar(GroupConsumer):
    """A broker reduced to its session and its registrations in the store."""

    def __init__(self, context: Context, broker_id: int, topics: dict[str, int]) -> None:
        super().__init__(context, "none", "none", {})
        self.broker_id, self.topics = broker_id, topics
        self.refused: UsageError | None = None

    async def _register(self) -> None:
        try:
            await register_broker(self.store, self.broker_id, f"host{self.broker_id}:9092", self.topics)
        except UsageError as refused:
            self.refused = refused


class Group:
    """A store, brokers and consumers in the simulator."""

    def __init__(self, brokers: dict[int, dict[str, int]], *guards_off: str, seed: int = 0, spread_ms: int = 4) -> None:
        self.world = World(seed, spread_ms=spread_ms)
        self.guards_off = guards_off
        self.store = MetadataStore(StoreConfig(tick_ms=100), SimulatedDisk())
        self.world.add(STORE, lambda disk: self.store)
        self.world.start(STORE)
        self.consumers: dict[str, GroupConsumer] = {}
        for broker_id, topics in brokers.items():
            self.add_broker(broker_id, topics)
        self.settle()

    def add_broker(self, broker_id: int, topics: dict[str, int]) -> None:
        self.start(f"broker{broker_id}", lambda context: Registrar(context, broker_id, topics))

    def start(self, name: str, make: Callable[[Context], GroupConsumer]) -> GroupConsumer:
        config = BrokerConfig(broker_id=0, metadata_store_session_timeout_ms=SESSION_MS, guards_off=self.guards_off)
        node = make(Context(config, SimulatedDisk(), Outbox()))
        self.world.add(name, lambda disk: node)
        self.world.start(name)
        return node

    def join(self, name: str, max_retries: int | None = None, **topics: int) -> GroupConsumer:
        wanted = topics or {"t": 1}
        made = self.start(name, lambda context: GroupConsumer(context, "g", name, wanted, max_retries))
        self.consumers[name] = made
        return made

    def crash(self, name: str) -> None:
        self.world.crash(name, lose_unflushed=False)
        self.consumers.pop(name, None)

    def settle(self, time_ms: int = SETTLE_MS) -> None:
        self.world.run_until(self.world.now_ms + time_ms)

    def owners(self, topic: str = "t") -> dict[str, str]:
        folder = f"/consumers/g/owners/{topic}"
        found = {
            path.removeprefix(folder + "/"): self.store.peek(path, lambda data, _: data.decode())
            for path in [f"{folder}/{b}-{p}" for b in range(5) for p in range(8)]
        }
        return {name: owner for name, owner in found.items() if owner is not None}

    def fetched(self) -> Counter[tuple[str, BrokerPartition]]:
        return Counter(each for consumer in self.consumers.values() for each in consumer.fetching)

    def assert_shared(self, partitions: int) -> None:
        """Assert that each partition is fetched by exactly one consumer, its owner."""
        assert set(self.fetched().values()) <= {1}
        assert sum(self.fetched().values()) == partitions
        for name, consumer in self.consumers.items():
            mine = {f"{broker}-{number}" for topic, (broker, number) in consumer.fetching if topic == "t"}
            assert mine == {partition for partition, owner in self.owners().items() if owner == name}


# -- registries ------------------------------------------------------------------------------------


def test_registry_paths_match_the_source_document() -> None:
    group = Group({0: {"t": 2}, 1: {"t": 1}})
    consumer = group.join("c1")
    group.settle()
    peek: Callable[[str], Any] = lambda path: group.store.peek(path, lambda data, _: data)  # noqa: E731
    assert peek("/brokers/ids/0") == b"host0:9092"
    assert from_json(peek("/brokers/topics/t/0")) == 2
    assert from_json(peek("/consumers/g/ids/c1")) == {"t": 1}
    assert group.owners() == {"0-0": "c1", "0-1": "c1", "1-0": "c1"}
    consumer.fetching["t", (0, 1)] = 17

    def commit(now: Instant) -> list[Effect]:
        spawn(consumer.commit())
        return consumer._context.out.drain()

    group.world.enter("c1", commit)
    group.settle()
    assert from_json(peek("/consumers/g/offsets/t/0-1")) == 17
    group.crash("c1")
    group.crash("broker1")
    group.settle()
    assert (peek("/consumers/g/ids/c1"), peek("/brokers/ids/1"), group.owners()) == (None, None, {})
    assert peek("/consumers/g/offsets/t/0-1") is not None, "committed offsets are not deleted"


def test_a_broker_id_that_is_in_use_is_an_error() -> None:
    group = Group({0: {"t": 1}})
    second = group.start("other", lambda context: Registrar(context, 0, {}))
    group.settle()
    assert isinstance(second, Registrar)
    assert str(second.refused) == "/brokers/ids/0: this broker id is in use; give each broker a unique id"


# -- the rebalance ---------------------------------------------------------------------------------


@given(st.integers(1, 9), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), unique=True, max_size=12))
def test_ranges_are_balanced_and_disjoint_and_cover_all_partitions(
    members: int, partitions: list[BrokerPartition]
) -> None:
    parts = [range_of(place, members, sorted(partitions)) for place in range(members)]
    assert [each for part in parts for each in part] == sorted(partitions)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_partitions_of_one_broker_stay_together() -> None:
    group = Group({0: {"t": 2}, 1: {"t": 2}})
    group.join("c1")
    group.join("c2")
    group.settle()
    assert group.owners() == {"0-0": "c1", "0-1": "c1", "1-0": "c2", "1-1": "c2"}


def test_one_to_four_consumers_on_three_partitions_and_back() -> None:
    group = Group({0: {"t": 3}})
    for number in range(1, 5):
        group.join(f"c{number}")
        group.settle()
        group.assert_shared(3)
    assert not group.consumers["c4"].fetching, "more consumers than partitions: some get nothing"
    for number in range(1, 4):
        group.crash(f"c{number}")
        group.settle()
        group.assert_shared(3)


def test_a_broker_that_joins_or_crashes_rebalances_all_consumers() -> None:
    group = Group({0: {"t": 2}})
    group.join("c1")
    group.join("c2")
    group.settle()
    before = [consumer.rebalances for consumer in group.consumers.values()]
    group.start("broker1", lambda context: Registrar(context, 1, {"t": 2}))
    group.settle()
    group.assert_shared(4)
    assert all(now > then for now, then in zip([c.rebalances for c in group.consumers.values()], before, strict=True))
    group.crash("broker1")
    group.settle()
    assert sum(group.fetched().values()) == 2


def test_only_subscribers_own_partitions_of_a_topic() -> None:
    group = Group({0: {"t": 2, "u": 2}})
    group.join("c1", t=1)
    group.join("c2", t=1, u=1)
    group.settle()
    assert set(group.consumers["c1"].fetching) == {("t", (0, 0))}
    assert set(group.consumers["c2"].fetching) == {("t", (0, 1)), ("u", (0, 0)), ("u", (0, 1))}


def test_the_next_owner_continues_at_the_committed_offset() -> None:
    group = Group({0: {"t": 1}})
    first = group.join("c2")
    group.settle()
    first.fetching["t", (0, 0)] = 42
    second = group.join("c1")
    group.settle()
    assert second.fetching == {("t", (0, 0)): 42}
    assert first.fetching == {}


@given(st.integers(0, 1 << 20), st.lists(st.sampled_from(["join", "crash", "pause", "resume", "break"]), max_size=12))
@example(52, ["crash", "break"])  # the connection breaks during registration
@settings(deadline=None, max_examples=40)
def test_after_any_faults_each_partition_has_one_consumer(seed: int, faults: list[str]) -> None:
    group = Group({0: {"t": 2}, 1: {"t": 1}}, seed=seed, spread_ms=40)
    group.join("c0")
    for number, fault in enumerate(faults, 1):
        name = sorted(group.consumers)[seed % len(group.consumers)]
        if fault == "join":
            group.join(f"c{number}")
        elif fault == "crash" and len(group.consumers) > 1:
            group.crash(name)
        elif fault == "break":
            group.world._break(name, STORE)
        elif fault == "pause":
            group.world.pause(name)
        else:
            group.world.resume(name)
        group.settle(seed % 1_500)
        live = [c for n, c in group.consumers.items() if c.store.session_id in group.store._sessions]
        held = Counter(each for consumer in live for each in consumer.fetching)
        assert set(held.values()) <= {1}, "OneFetcher: of consumers with a session no two fetch one partition"
    for name in group.consumers:
        group.world.resume(name)
    group.settle(8_000)
    group.assert_shared(3)


# -- guards --------------------------------------------------------------------------------------------


def held_by_former_owner(*guards_off: str, max_retries: int | None = None) -> Group:
    """Return a group whose partition owner is paused but not expired when another consumer must claim it."""
    group = Group({0: {"t": 1}}, *guards_off)
    group.join("c2", max_retries=max_retries)
    group.settle()
    group.world.pause("c2")
    group.join("c1", max_retries=max_retries)
    group.settle(300)
    return group


def test_a_claim_waits_until_the_former_owner_has_released() -> None:
    group = held_by_former_owner()
    assert not group.consumers["c1"].fetching
    group.world.resume("c2")
    group.settle()
    group.assert_shared(1)
    assert group.owners() == {"0-0": "c1"}


def test_without_claim_if_free_two_fetch_one_partition() -> None:
    group = held_by_former_owner("ClaimIfFree")
    assert max(group.fetched().values()) == 2


def test_without_retry_a_partition_released_late_stays_unclaimed() -> None:
    group = held_by_former_owner("RetryRebalance")
    assert group.consumers["c1"].gave_up
    assert not group.consumers["c1"].fetching


def test_a_consumer_gives_up_after_max_retries() -> None:
    group = held_by_former_owner(max_retries=0)
    assert group.consumers["c1"].gave_up


def test_without_release_before_claim_partitions_keep_their_former_owner() -> None:
    for guards_off, expected in (((), {"0-0": "c1"}), (("ReleaseBeforeClaim",), {"0-0": "c2"})):
        group = Group({0: {"t": 1}}, *guards_off)
        group.join("c2")
        group.settle()
        group.join("c1")
        group.settle()
        assert group.owners() == expected


def test_without_stop_before_release_two_fetch_one_partition() -> None:
    """The former owner has released its partition and is paused before its own rebalance ends."""
    for guards_off, most in (((), 1), (("StopBeforeRelease",), 2)):
        group = Group({0: {"t": 2}}, *guards_off)
        group.join("c2")
        group.settle()
        group.join("c1")
        while "c2" in group.owners().values():
            group.settle(1)
        group.world.pause("c2")
        group.settle(SESSION_MS // 2)
        assert group.owners() == {"0-0": "c1"}
        assert max(group.fetched().values()) == most


def test_without_stop_fetching_on_expiry_two_fetch_one_partition() -> None:
    for guards_off, most in (((), 1), (("StopFetchingOnExpiry", "StopBeforeRelease"), 2)):
        group = Group({0: {"t": 1}}, *guards_off)
        group.join("c2")
        group.settle()
        group.world.pause("c2")
        group.join("c1")
        group.settle()  # the session of c2 has expired and c1 has claimed the partition
        assert group.owners() == {"0-0": "c1"}
        group.world.resume("c2")
        most_fetched = 0
        for _ in range(200):
            group.settle(5)
            live = [c for c in group.consumers.values() if c.store.session_id in group.store._sessions]
            most_fetched = max(
                [most_fetched, *Counter(each for consumer in live for each in consumer.fetching).values()]
            )
        assert most_fetched == most


def test_without_ephemeral_owners_partitions_of_a_crashed_consumer_stay_owned() -> None:
    for guards_off, fetched in (((), 1), (("EphemeralOwners",), 0)):
        group = Group({0: {"t": 1}}, *guards_off)
        group.join("c1")
        group.settle()
        group.crash("c1")
        group.join("c2")
        group.settle()
        assert sum(group.fetched().values()) == fetched


def test_without_same_view_order_ranges_overlap() -> None:
    for guards_off, fetched in (((), 3), (("SameViewOrder",), 2)):
        group = Group({0: {"t": 3}}, *guards_off)
        group.join("c1")
        group.join("c2")
        group.settle()
        assert (sum(group.fetched().values()) == 3) == (fetched == 3), group.owners()


def test_without_rewatch_on_read_the_second_change_is_missed() -> None:
    for guards_off, shares in (((), [1, 1, 1]), (("RewatchOnRead",), [2, 0, 1])):
        group = Group({0: {"t": 3}}, *guards_off)
        for name in ("c1", "c2", "c3"):
            group.join(name)
            group.settle()
        # Off: c1 is notified of c2 but not of c3, so c2 waits for a partition that c1 does not release.
        assert [len(consumer.fetching) for consumer in group.consumers.values()] == shares

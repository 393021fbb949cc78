"""The four leader selectors (kafka-0.9-controller) and the placement of new replicas (KIP-36)."""

from hypothesis import given
from hypothesis import strategies as st

from highwater.reference.controller.election import (
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
    shrink,
)
from highwater.reference.controller.topic_changes import assign_replicas
from highwater.reference.replication.states import NO_LEADER, PartitionState

STATE = PartitionState(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=1, partition_epoch=7)


def leader_isr_epoch(state: PartitionState | None) -> tuple[int, tuple[int, ...], int] | None:
    return (state.leader, state.isr, state.leader_epoch) if state else None


def test_the_first_live_member_of_the_isr_leads() -> None:
    assert leader_isr_epoch(elect_offline(STATE, (1, 3, 2), {2, 3}, unclean=False)) == (2, (2,), 5)


def test_without_a_live_isr_member_the_partition_has_no_leader_and_keeps_its_isr() -> None:
    offline = elect_offline(STATE, (1, 2, 3), {3}, unclean=False)
    assert leader_isr_epoch(offline) == (NO_LEADER, (1, 2), 5)
    assert offline is not None
    assert elect_offline(offline, (1, 2, 3), {3}, unclean=False) is None, "still offline: the state is unchanged"


def test_an_unclean_election_makes_a_live_replica_leader_and_sole_isr_member() -> None:
    assert leader_isr_epoch(elect_offline(STATE, (1, 2, 3), {3}, unclean=True)) == (3, (3,), 5)


def test_a_reassigned_leader_is_a_live_in_sync_new_replica() -> None:
    joined = PartitionState(1, 4, (1, 2, 5), 1, 7)
    assert leader_isr_epoch(elect_reassigned(joined, (4, 5), {1, 4, 5})) == (5, (1, 2, 5), 5)
    assert elect_reassigned(joined, (4, 5), {1, 4}) is None
    assert leader_isr_epoch(elect_reassigned(joined, (1, 5), {1, 5})) == (1, (1, 2, 5), 5), (
        "the epoch is bumped although the leader is the same"
    )


def test_the_preferred_replica_leads_only_if_it_is_live_and_in_sync() -> None:
    assert leader_isr_epoch(elect_preferred(STATE, (2, 1, 3), {1, 2, 3})) == (2, (1, 2), 5)
    assert elect_preferred(STATE, (3, 1, 2), {1, 2, 3}) is None
    assert elect_preferred(STATE, (2, 1, 3), {1, 3}) is None
    assert elect_preferred(STATE, (1, 2, 3), {1, 2, 3}) is None, "it is already the leader"


def test_a_broker_that_shuts_down_loses_leadership_and_leaves_the_isr() -> None:
    assert leader_isr_epoch(elect_for_shutdown(STATE, (1, 2, 3), {1, 2, 3}, {1})) == (2, (2,), 5)
    assert leader_isr_epoch(elect_for_shutdown(STATE, (1, 2, 3), {1, 2, 3}, {2})) == (1, (1,), 5)
    assert elect_for_shutdown(STATE, (1, 2, 3), {1, 2, 3}, {1, 2}) is None, "no other replica may become leader"


def test_the_last_isr_member_is_never_removed() -> None:
    assert shrink(STATE, {1, 2}) is None
    assert shrink(STATE, {3}) is None
    assert leader_isr_epoch(shrink(STATE, {2})) == (1, (1,), 5)


@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 9), st.data())
def test_replicas_are_different_brokers_and_leaders_are_spread(
    count: int, partitions: int, start: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, count))
    brokers = [10 + number for number in range(count)]
    assignment = assign_replicas(dict.fromkeys(brokers), partitions, factor, start)
    assert all(len(set(replicas)) == factor for replicas in assignment.values())
    leaders = [replicas[0] for replicas in assignment.values()]
    assert max(map(leaders.count, brokers)) - min(map(leaders.count, brokers)) <= 1


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=7), st.integers(1, 20), st.integers(0, 9), st.data())
def test_replicas_are_spread_over_all_racks_first(
    racks: list[str], partitions: int, start: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    rack_of: dict[int, str | None] = dict(enumerate(racks))
    for replicas in assign_replicas(rack_of, partitions, factor, start).values():
        assert len(set(replicas)) == factor
        assert len({rack_of[replica] for replica in replicas}) == min(factor, len(set(racks)))

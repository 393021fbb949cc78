from hypothesis import given
from hypothesis import strategies as st

from reference.controller.election import assign_replicas, elect, shrink
from reference.replication.states import NO_LEADER, PartitionState

STATE = PartitionState(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=1, partition_epoch=7)


def test_the_first_live_member_of_the_isr_leads() -> None:
    elected = elect(STATE, (1, 3, 2), {2, 3}, controller_epoch=2, unclean=False)
    assert (elected.leader, elected.isr, elected.leader_epoch) == (2, (2,), 5)


def test_nobody_leads_when_the_isr_is_gone_and_the_isr_stays_for_them_alone() -> None:
    elected = elect(STATE, (1, 2, 3), {3}, controller_epoch=2, unclean=False)
    assert (elected.leader, elected.isr) == (NO_LEADER, (1, 2))


def test_an_unclean_election_takes_any_live_replica_alone() -> None:
    elected = elect(STATE, (1, 2, 3), {3}, controller_epoch=2, unclean=True)
    assert (elected.leader, elected.isr) == (3, (3,))


def test_the_last_member_of_an_isr_is_never_taken_out() -> None:
    assert shrink(STATE, {1, 2}, controller_epoch=2) is None
    assert shrink(STATE, {3}, controller_epoch=2) is None
    shrunk = shrink(STATE, {2}, controller_epoch=2)
    assert shrunk is not None
    assert (shrunk.isr, shrunk.leader_epoch) == ((1,), 5)


@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 9), st.data())
def test_replicas_are_different_brokers_and_leaders_are_spread(
    count: int, partitions: int, start: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, count))
    brokers = [10 + number for number in range(count)]
    assignment = assign_replicas(brokers, partitions, factor, start)
    assert all(len(set(replicas)) == factor for replicas in assignment.values())
    leaders = [replicas[0] for replicas in assignment.values()]
    assert max(map(leaders.count, brokers)) - min(map(leaders.count, brokers)) <= 1

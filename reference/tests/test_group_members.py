"""Members and coordinator in the simulator: all partitions are assigned, and none has two owners."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from highwater.reference.effects import broker_peer
from highwater.reference.tests.grouped import TOPIC, Grouped
from highwater.reference.wire.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic

EAGER, COOPERATIVE = ("range",), ("cooperative-sticky",)


@pytest.mark.parametrize("assignors", [EAGER, ("roundrobin",), ("sticky",), COOPERATIVE], ids=lambda names: names[0])
def test_one_to_four_consumers_on_three_partitions_and_back(assignors: tuple[str, ...]) -> None:
    """The example of kafka-0.8-principles: shares 3; 2 1; 1 1 1; 1 1 1 0; then back as the oldest members leave."""
    world = Grouped()
    sizes = []
    for name in ("consumer1", "consumer2", "consumer3", "consumer4"):
        world.join(name, *assignors)
        sizes.append(sorted((len(share) for share in world.settle().values()), reverse=True))
    for name in ("consumer1", "consumer2", "consumer3"):
        world.leave(name)
        sizes.append(sorted((len(share) for share in world.settle().values()), reverse=True))
    assert sizes == [[3], [2, 1], [1, 1, 1], [1, 1, 1, 0], [1, 1, 1], [2, 1], [3]]
    assert not world.ownership_conflicts


def test_a_cooperative_member_without_moved_partitions_revokes_nothing() -> None:
    """kafka-2.4-rebalance, third figure: A owns two partitions and B one; C joins, and only A revokes one."""
    world = Grouped()
    first, second = world.join("A", *COOPERATIVE), world.join("B", *COOPERATIVE)
    before = world.settle()
    two, one = sorted((first, second), key=lambda each: -len(before[each.name]))
    given_up = {each.name: set(each.revoked_ever) for each in (first, second)}
    world.join("C", *COOPERATIVE)
    world.settle()
    assert len(two.revoked_ever - given_up[two.name]) == 1
    assert one.revoked_ever == given_up[one.name]
    assert not world.ownership_conflicts


@pytest.mark.parametrize("assignors", [EAGER, COOPERATIVE], ids=lambda names: names[0])
def test_the_leader_notices_new_partitions(assignors: tuple[str, ...]) -> None:
    world = Grouped()
    world.join("A", *assignors)
    world.join("B", *assignors)
    world.settle()
    topic = CreatePartitionsTopic(name=TOPIC, count=6, assignments=None)
    world.ask(CreatePartitionsRequest(topics=(topic,), timeout_ms=2_000), 2, world.up[0])
    world.partitions = 6
    assert sorted(map(len, world.settle().values())) == [3, 3]
    assert not world.ownership_conflicts


def test_the_session_of_a_dead_member_expires() -> None:
    world = Grouped()
    world.join("A")
    world.join("B")
    world.settle()
    world.kill("A")
    assert world.settle() == {"B": [0, 1, 2]}


def test_an_application_that_hangs_loses_its_partitions_and_gets_them_back() -> None:
    world = Grouped()
    hanging = world.join("A")
    world.join("B")
    world.settle()
    hanging.polling = False
    world.run(6_000)
    assert world.shares() == {"A": [], "B": [0, 1, 2]}
    hanging.polling = True
    assert sorted(map(len, world.settle().values())) == [1, 2]
    assert not world.ownership_conflicts


def test_a_static_member_gets_its_partitions_back_without_a_rebalance() -> None:
    world = Grouped()
    world.join("A", *COOPERATIVE, group_instance_id="a")
    world.join("B", *COOPERATIVE, group_instance_id="b")
    before = world.settle()
    group = world.group
    assert group is not None
    generation = group.generation_id
    world.kill("A")
    world.join("A", *COOPERATIVE, group_instance_id="a")
    assert world.settle() == before
    assert world.group is not None
    assert world.group.generation_id == generation


def test_the_second_process_under_one_instance_id_closes_the_first() -> None:
    world = Grouped()
    first = world.join("A", group_instance_id="a")
    world.settle()
    world.join("twin", group_instance_id="a")
    world.run(2_000)
    assert first.member.state == "Closed"
    del world.members["A"]
    assert world.settle() == {"twin": [0, 1, 2]}


# -- random schedules ---------------------------------------------------------------------------------

STEPS = ("join", "leave", "kill", "hang", "wake", "break", "coordinator", "wait")


@pytest.mark.parametrize("assignors", [EAGER, COOPERATIVE], ids=lambda names: names[0])
@given(seed=st.integers(0, 10_000), steps=st.lists(st.sampled_from(STEPS), min_size=4, max_size=14))
@example(seed=1, steps=["join", "join", "wait", "coordinator", "join", "wait"])
@settings(max_examples=12, deadline=None)
def test_partitions_have_one_owner_at_a_time_and_all_are_owned_in_the_end(
    assignors: tuple[str, ...], seed: int, steps: list[str]
) -> None:
    world = Grouped(brokers=2, partitions=4, seed=seed, min_insync_replicas=1)
    world.world.loss_per_mille = 10
    for number, step in enumerate(steps):
        live(world, step, f"member{number}", assignors)
        world.run(150 + 97 * (seed + number) % 700)
    world.world.loss_per_mille = 0
    for name in ("last", *world.members):
        if name == "last":
            world.join(name, *assignors)
        else:
            world.members[name].polling = True
    world.settle()
    assert not world.ownership_conflicts


def live(world: Grouped, step: str, name: str, assignors: tuple[str, ...]) -> None:
    """Run one step of a random schedule."""
    if step == "join":
        world.join(name, *assignors)
    elif step == "coordinator":
        broker_id = world.coordinating
        if broker_id > 0 and len(world.up) == len(world.broker_ids):
            world.world.crash(broker_peer(broker_id), lose_unflushed=False)
            world.run(2_000)
            world.world.start(broker_peer(broker_id))
    elif world.members and step != "wait":
        oldest = next(iter(world.members))
        if step in {"leave", "kill"}:
            getattr(world, step)(oldest)
        elif step == "break":
            world.world._break(oldest, broker_peer(world.up[0]))
        else:
            world.members[oldest].polling = step == "wake"

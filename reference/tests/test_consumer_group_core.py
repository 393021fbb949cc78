"""Consumer groups without a broker: assignors, reconciliation, and records, on drawn groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.reference.groups.consumer.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform
from highwater.reference.groups.consumer.changes import (
    apply,
    current_change,
    group_change,
    group_tombstones,
    member_change,
    pattern_change,
    target_change,
    target_epoch_change,
)
from highwater.reference.groups.consumer.group import (
    ClassicMember,
    ConsumerGroup,
    ConsumerGroupState,
    ConsumerMember,
    MemberState,
    Part,
    ResolvedPattern,
)
from highwater.reference.groups.consumer.reconciliation import Goal, reconcile
from highwater.reference.groups.consumer.records import pack_change, unpack_change

A, B = b"a" * 16, b"b" * 16
BOTH = frozenset({A, B})
M = MemberState


def parts(topic: bytes, *numbers: int) -> frozenset[Part]:
    return frozenset((topic, number) for number in numbers)


# -- assignors -----------------------------------------------------------------------------------------


@st.composite
def drawn_groups(draw: st.DrawFn) -> tuple[list[Subscriber], dict[bytes, int]]:
    """Draw subscribers with a previous target, of which each partition belongs to one of them."""
    topics = {topic: draw(st.integers(0, 5)) for topic in (A, B)}
    names = [f"m{number}" for number in range(draw(st.integers(1, 5)))]
    owners = {
        (topic, number): draw(st.sampled_from([*names, None]))
        for topic, count in topics.items()
        for number in range(count)
    }
    subscriptions = st.sampled_from([frozenset({A}), frozenset({B}), BOTH])
    subscribers = [
        Subscriber(name, draw(subscriptions), target=frozenset(part for part, owner in owners.items() if owner == name))
        for name in names
    ]
    return subscribers, topics


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=drawn_groups())
def test_each_partition_with_a_subscriber_gets_one_owner(
    name: str, group: tuple[list[Subscriber], dict[bytes, int]]
) -> None:
    subscribers, topics = group
    target = ASSIGNORS[name](subscribers, topics)
    by_id = {each.member_id: each for each in subscribers}
    assigned = [(part, member_id) for member_id, owned in target.items() for part in owned]
    assert all(part[0] in by_id[member_id].topics for part, member_id in assigned)
    wanted = {topic for each in subscribers for topic in each.topics}
    expected = [(topic, number) for topic, count in topics.items() if topic in wanted for number in range(count)]
    assert sorted(part for part, _ in assigned) == sorted(expected)
    assert target == ASSIGNORS[name](list(reversed(subscribers)), topics)


@given(st.integers(1, 5), st.integers(0, 12))
def test_uniform_shares_differ_by_one_and_are_kept(members: int, partitions: int) -> None:
    subscribers = [Subscriber(f"m{number}", {A}) for number in range(members)]
    target = assign_uniform(subscribers, {A: partitions})
    sizes = {len(owned) for owned in target.values()}
    assert max(sizes) - min(sizes) <= 1
    again = [Subscriber(each.member_id, {A}, target=target[each.member_id]) for each in subscribers]
    assert assign_uniform(again, {A: partitions}) == target
    newcomer = assign_uniform([*again, Subscriber("new", {A})], {A: partitions})
    moved = sum(len(target[each.member_id] - newcomer[each.member_id]) for each in subscribers)
    assert moved == len(newcomer["new"]), "only what the new member gets has moved"


def test_ranges_are_contiguous_and_alike_for_topics_of_the_same_size() -> None:
    target = assign_range([Subscriber("m1", BOTH), Subscriber("m0", BOTH, "static")], {A: 3, B: 3})
    assert target == {"m0": parts(A, 0, 1) | parts(B, 0, 1), "m1": parts(A, 2) | parts(B, 2)}


# -- reconciliation ------------------------------------------------------------------------------------


def test_a_member_revokes_before_its_epoch_follows() -> None:
    member = ConsumerMember("m", epoch=3, assigned={(A, 0): 2, (A, 1): 3})
    goal = Goal(4, parts(A, 0) | parts(B, 0), BOTH)
    revoking = reconcile(member, goal, (), None)
    assert (revoking.state, revoking.epoch, revoking.previous_epoch) == (M.UNREVOKED_PARTITIONS, 3, 3)
    assert (revoking.assigned, revoking.pending_revocation) == ({(A, 0): 2}, {(A, 1): 3})
    assert reconcile(revoking, goal, (), None) is revoking, "nothing is reported"
    assert reconcile(revoking, goal, (), parts(A, 0, 1)) is revoking, "it still owns the partition"
    done = reconcile(revoking, goal, (), parts(A, 0))
    assert (done.state, done.epoch, done.previous_epoch) == (M.STABLE, 4, 3)
    assert (done.assigned, done.pending_revocation) == ({(A, 0): 2, (B, 0): 4}, {})


def test_a_member_waits_for_partitions_of_others_in_the_epoch_of_the_target() -> None:
    goal = Goal(2, parts(A, 0, 1), BOTH)
    waiting = reconcile(ConsumerMember("m"), goal, parts(A, 1), ())
    assert (waiting.state, waiting.epoch, waiting.assigned) == (M.UNRELEASED_PARTITIONS, 2, {(A, 0): 2})
    done = reconcile(waiting, goal, (), None)
    assert (done.state, done.epoch, done.assigned) == (M.STABLE, 2, {(A, 0): 2, (A, 1): 2})
    assert reconcile(done, goal, (), None) is done


def test_a_topic_that_is_no_longer_subscribed_to_is_not_assigned() -> None:
    """KAFKA-19431: the target may be older than the subscription."""
    found = reconcile(ConsumerMember("m", epoch=1, assigned={(A, 0): 1}), Goal(2, parts(A, 0), {B}), (), None)
    assert (found.state, found.assigned, found.pending_revocation) == (M.UNREVOKED_PARTITIONS, {}, {(A, 0): 1})


# -- records -------------------------------------------------------------------------------------------


def test_a_group_is_what_its_records_say() -> None:
    member = ConsumerMember(
        "m", "i", "rack", "client", "/host", 5_000, ("t",), "p.*", "range", ClassicMember(9_000, (("range", b"x"),)),
        M.UNREVOKED_PARTITIONS, 4, 3, {(A, 0): 2, (B, 7): 4}, {(A, 1): 3},
    )  # fmt: skip
    changes = [
        current_change("g", member), member_change("g", member), target_change("g", "m", parts(A, 0)),
        target_epoch_change("g", 5, 77), group_change("g", 6, -9),
        pattern_change("g", "p.*", ResolvedPattern(frozenset({"pt"}), 3, 78)),
    ]  # fmt: skip
    group = ConsumerGroup("g")
    for change in changes:
        read = unpack_change(*pack_change(change))
        assert read == change
        apply(group, change)
    assert group.members == {"m": member}
    assert (group.epoch, group.metadata_hash, group.assignment_epoch, group.assignment_ms) == (6, -9, 5, 77)
    assert group.target == {"m": parts(A, 0)}
    assert group.subscribed_topics(member) == {"t", "pt"}
    assert group.state is ConsumerGroupState.ASSIGNING
    group.check_invariants()
    for change in group_tombstones(group):
        apply(group, change)
    assert group == ConsumerGroup("g")


def test_an_assignment_that_was_written_before_4_3_has_the_epoch_of_its_member() -> None:
    change = current_change("g", ConsumerMember("m", epoch=4, previous_epoch=3, assigned={(A, 0): 2}))
    key, value = pack_change(change)
    assert value is not None
    tag = bytes([1, 0, 5, 2, 0, 0, 0, 2])  # one tag, number 0, of 5 bytes: an array with one epoch
    assert value.count(tag) == 1
    read = unpack_change(key, value.replace(tag, b"\x00"))
    assert read is not None
    group = ConsumerGroup("g")
    apply(group, read)
    assert group.members["m"].assigned == {(A, 0): 4}


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("OneOwner", [current_change("g", ConsumerMember(name, epoch=1, assigned={(A, 0): 1})) for name in "mn"]),
        ("OneTarget", [target_change("g", name, parts(A, 0)) for name in "mn"]),
        ("EpochsOrdered", [current_change("g", ConsumerMember("m", epoch=2))]),
        ("EpochsOrdered", [target_epoch_change("g", 9, 0)]),
        ("TargetOfMembers", [target_change("g", "stranger", parts(A, 0))]),
        ("RevokesWhatMoves", [current_change("g", ConsumerMember("m", epoch=1, state=M.UNREVOKED_PARTITIONS))]),
        ("AssignedByEpoch", [current_change("g", ConsumerMember("m", epoch=1, assigned={(A, 0): 2}))]),
        ("OneInstance", [member_change("g", ConsumerMember(name, "i")) for name in "mn"]),
    ],
)
def test_a_state_that_breaks_a_rule_is_noticed(rule: str, changes: list[object]) -> None:
    group = ConsumerGroup("g", epoch=3, assignment_epoch=1)
    group.members = {name: ConsumerMember(name, epoch=1) for name in "mn"}
    group.check_invariants()
    for change in changes:
        apply(group, change)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=rule):
        group.check_invariants()


@pytest.mark.parametrize(
    ("rule", "owner", "epoch"), [("ReleasedByOwner", "n", 3), ("EpochsNeverFall", "m", 2), ("EpochsNeverFall", "m", 3)]
)
def test_a_change_that_breaks_a_rule_is_noticed(rule: str, owner: str, epoch: int) -> None:
    before = ConsumerGroup("g", epoch=3, assignment_epoch=3)
    before.members = {name: ConsumerMember(name, epoch=3) for name in "mn"}
    before.members["m"] = ConsumerMember("m", epoch=3, assigned={(A, 0): 1})
    after = before.snapshot()
    after.check_follows(before)
    after.epoch = epoch
    after.members = {name: ConsumerMember(name, epoch=2 if name == "m" and owner == "m" else 3) for name in "mn"}
    after.members[owner] = ConsumerMember(owner, epoch=after.members[owner].epoch, assigned={(A, 0): 1})
    with pytest.raises(AssertionError, match=rule):
        after.check_follows(before)

"""Properties of each assignor for arbitrary members, subscriptions, claims and topics."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from highwater.reference.clients.assignors import (
    ASSIGNORS,
    Assignor,
    Claims,
    Counts,
    in_assignment_order,
    subscribed_partitions,
)
from highwater.reference.clients.subscriptions import Assignment, Subscription, pack_assignment, unpack_assignment
from highwater.reference.guards import Guards

ON = Guards()
TOPICS = ("a", "b", "c")
each_assignor = pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
EAGER = [assignor for assignor in ASSIGNORS.values() if not assignor.is_cooperative]
STICKY = [ASSIGNORS["sticky"], ASSIGNORS["cooperative-sticky"]]

counts = st.fixed_dictionaries({}, optional={topic: st.integers(0, 6) for topic in TOPICS})


@st.composite
def subscriptions(draw: st.DrawFn, *, alike: bool = False, truthful: bool = False) -> dict[str, Subscription]:
    """`alike`: all subscribe to the same topics; `truthful`: no two claim a partition in the same generation."""
    ids = draw(st.lists(st.sampled_from("uvwxyz"), unique=True, min_size=1, max_size=5))
    partitions = [(topic, number) for topic in TOPICS for number in range(6)]
    common = draw(st.frozensets(st.sampled_from(TOPICS), min_size=1))
    owners = {each: draw(st.sampled_from([None, *ids])) for each in partitions} if truthful else {}
    members = {}
    for member_id in ids:
        mine = frozenset(each for each, owner in owners.items() if owner == member_id)
        members[member_id] = Subscription(
            common if alike else draw(st.frozensets(st.sampled_from(TOPICS))),
            mine if truthful else draw(st.frozensets(st.sampled_from(partitions), max_size=6)),
            7 if truthful else draw(st.sampled_from([-1, 3, 4])),
            draw(st.sampled_from([None, f"static-{member_id}"])),
        )
    return members


def two_have_three_each() -> dict[str, Subscription]:
    """Of four members, two own three partitions each; each of the two must give up exactly one."""
    owned = {"u": {0, 1, 2}, "v": {3, 4, 5}, "w": set[int](), "x": set[int]()}
    return {each: Subscription(frozenset("a"), frozenset(("a", n) for n in has), 7) for each, has in owned.items()}


def rebalance_until_stable(assignor: Assignor, members: dict[str, Subscription], partitions: Counts) -> Assignment:
    """Rebalance as members do: a member that has revoked partitions claims the rest and joins again."""
    for generation in range(10, 13):
        shares = assignor.assign(members, partitions, ON)
        claims = {
            member_id: Subscription(each.topics, shares[member_id], generation, each.instance_id)
            for member_id, each in members.items()
        }
        if claims == members:
            break
        members = claims
    return shares


@each_assignor
@given(members=subscriptions(), partitions=counts)
@settings(max_examples=100, deadline=None)
def test_every_partition_has_one_member_that_wants_it(
    assignor: Assignor, members: dict[str, Subscription], partitions: Counts
) -> None:
    shares = assignor.assign(members, partitions, ON)
    assigned = [each for share in shares.values() for each in share]
    assert shares.keys() == members.keys()
    assert len(assigned) == len(set(assigned))
    assert all(topic in members[member_id].topics for member_id, share in shares.items() for topic, _ in share)
    withheld = set(subscribed_partitions(members, partitions)) - set(assigned)
    assert set(assigned) <= set(subscribed_partitions(members, partitions))
    assert assignor.is_cooperative or not withheld
    assert all(any(each in claim.owned for claim in members.values()) for each in withheld)


@each_assignor
@given(members=subscriptions(), partitions=counts, seed=st.integers())
@settings(max_examples=50, deadline=None)
def test_the_order_of_members_and_topics_does_not_matter(
    assignor: Assignor, members: dict[str, Subscription], partitions: Counts, seed: int
) -> None:
    shuffled = list(members.items())
    random.Random(seed).shuffle(shuffled)
    backwards = dict(reversed(list(partitions.items())))
    assert assignor.assign(members, partitions, ON) == assignor.assign(dict(shuffled), backwards, ON)


@given(members=subscriptions(alike=True), partitions=counts)
@settings(max_examples=100, deadline=None)
def test_range_assigns_contiguous_partitions_and_is_balanced_per_topic(
    members: dict[str, Subscription], partitions: Counts
) -> None:
    shares = ASSIGNORS["range"].assign(members, partitions, ON)
    for topic in partitions:
        runs = [
            sorted(number for name, number in shares[each] if name == topic) for each in in_assignment_order(members)
        ]
        assert [number for run in runs for number in run] == (
            list(range(partitions[topic])) if any(topic in each.topics for each in members.values()) else []
        )
        sizes = [len(run) for run in runs]
        assert sizes == sorted(sizes, reverse=True)
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("assignor", [ASSIGNORS["roundrobin"], *STICKY], ids=lambda each: each.name)
@given(members=subscriptions(alike=True, truthful=True), partitions=counts)
@settings(max_examples=100, deadline=None)
def test_members_with_equal_subscriptions_differ_by_at_most_one(
    assignor: Assignor, members: dict[str, Subscription], partitions: Counts
) -> None:
    sizes = [len(share) for share in rebalance_until_stable(assignor, members, partitions).values()]
    assert max(sizes) - min(sizes) <= 1


@given(members=subscriptions(), partitions=counts)
@settings(max_examples=100, deadline=None)
def test_sticky_balances_members_that_subscribe_to_the_same_topic(
    members: dict[str, Subscription], partitions: Counts
) -> None:
    shares = ASSIGNORS["sticky"].assign(members, partitions, ON)
    for share in shares.values():
        for topic, _ in share:
            for taker, claim in members.items():
                assert topic not in claim.topics or len(share) - len(shares[taker]) <= 1


@given(members=subscriptions(alike=True, truthful=True), partitions=counts)
@example(members=two_have_three_each(), partitions={"a": 6})
@settings(max_examples=200, deadline=None)
def test_sticky_moves_as_little_as_balance_allows(members: dict[str, Subscription], partitions: Counts) -> None:
    shares = ASSIGNORS["sticky"].assign(members, partitions, ON)
    everything = set(subscribed_partitions(members, partitions))
    owned = sorted((len(each.owned & everything) for each in members.values()), reverse=True)
    least, extra = divmod(len(everything), len(members))
    best = sum(min(count, least + (place < extra)) for place, count in enumerate(owned))
    assert sum(len(shares[member_id] & claim.owned) for member_id, claim in members.items()) == best


@given(members=subscriptions(), partitions=counts)
@settings(max_examples=100, deadline=None)
def test_cooperative_withholds_partitions_that_another_member_owns(
    members: dict[str, Subscription], partitions: Counts
) -> None:
    shares = ASSIGNORS["cooperative-sticky"].assign(members, partitions, ON)
    claims = Claims(members, ON)
    for member_id, share in shares.items():
        assert all(claims.owner(each) in {member_id, None} for each in share)
        others = {each for other, claim in members.items() if other != member_id for each in claim.owned}
        assert all(each not in others or claims.owner(each) == member_id for each in share)


@given(members=subscriptions(), partitions=counts)
@settings(max_examples=50, deadline=None)
def test_cooperative_assigns_every_partition_after_revocation(
    members: dict[str, Subscription], partitions: Counts
) -> None:
    shares = rebalance_until_stable(ASSIGNORS["cooperative-sticky"], members, partitions)
    assert sorted(each for share in shares.values() for each in share) == subscribed_partitions(members, partitions)


@given(owned=st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 9))), generation=st.integers(-1, 99))
def test_subscriptions_and_assignments_round_trip(owned: frozenset[tuple[str, int]], generation: int) -> None:
    subscription = Subscription(frozenset(TOPICS), owned, generation)
    assert Subscription.decode(subscription.encode()) == subscription
    assert Subscription.decode(subscription.encode_revoked()) == subscription
    assert unpack_assignment(pack_assignment(owned)) == owned


# -- guards of the group leader --------------------------------------------------------------------

P = ("a", 0)
SUBSCRIBED = frozenset({"a"})


def shares_without(guard: str, **claims: tuple[set[int], int]) -> dict[str, set[int]]:
    """Return the assignment with the guard off ("" for none); `claims` has owned partitions and generation."""
    members = {
        each: Subscription(SUBSCRIBED, frozenset(("a", n) for n in owned), generation)
        for each, (owned, generation) in claims.items()
    }
    found = ASSIGNORS["cooperative-sticky"].assign(members, {"a": 2}, ON.without(guard) if guard else ON)
    return {member_id: {number for _, number in share} for member_id, share in found.items()}


def test_withhold_claimed() -> None:
    claims = {"u": ({0, 1}, 5), "v": (set[int](), -1)}
    assert shares_without("", **claims) == {"u": {0}, "v": set()}
    assert shares_without("WithholdClaimed", **claims) == {"u": {0}, "v": {1}}


def test_highest_claim_wins() -> None:
    """KAFKA-14639: u missed a generation and still claims 0, which v got in the later generation."""
    claims = {"u": ({0, 1}, 4), "v": (set[int](), 5)}
    assert shares_without("", **claims) == {"u": {0}, "v": set()}
    assert shares_without("HighestClaimWins", **claims) == {"u": {0}, "v": {1}}


def test_no_member_keeps_a_partition_on_conflict() -> None:
    """KAFKA-12984: two members claim partition 0 in the same generation."""
    claims = {"u": ({0}, 5), "v": ({0}, 5)}
    assert 0 not in set().union(*shares_without("", **claims).values())
    assert 0 in shares_without("NobodyKeepsOnConflict", **claims)["u"]

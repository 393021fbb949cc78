"""A classic group whose members join, return, change, sync and leave in any order, compared with the model."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from highwater.conformance.cases.support.group_walks.members import (
    INSTANCES_SINCE,
    ClassicWalk,
    Offers,
    WalkMember,
    assign,
    joined,
    rebalance,
    restart,
)
from highwater.conformance.cases.support.group_walks.refusals import FIRST, FOURTH, SECOND, THIRD, check_refusals
from highwater.conformance.models.comparison import compare
from highwater.conformance.models.groups import COMPLETING, STABLE, GroupClient
from highwater.reference.wire.messages.groups import JoinGroupRequest

MOST: Final = 3
"""Some targets allow four members in a group."""
OFFERS: Final = (FIRST, SECOND, THIRD, FOURTH)
"""All of them have the protocol `sticky`."""


class DrawnGroup:
    """The members of a group; each step leaves it empty, waiting for joins, waiting for an assignment, or stable."""

    def __init__(self, walk: ClassicWalk, stranger: GroupClient, seed: int) -> None:
        self.walk, self.stranger, self.chance = walk, stranger, walk.cluster.draws.generator(seed)
        self.members: list[WalkMember] = []

    def step(self) -> None:
        """Do one of the things that are possible now."""
        members, state = self.members, self.walk.model.state
        static = [each for each in members if each.instance is not None]
        possible: dict[Callable[[], None], bool] = {
            self.join: len(members) < MOST, self.rejoin: bool(members), self.assign: state == COMPLETING,
            self.leave: bool(members), self.return_static: bool(static) and state == STABLE, self.refuse: True,
        }  # fmt: skip
        self.chance.choice([do for do, can in possible.items() if can])()

    # -- joins ---------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Let a new member join, dynamic or static; all others follow."""
        names = {None, "static", "other"} - {each.instance for each in self.members if each.instance}
        if self.walk.version(JoinGroupRequest) < INSTANCES_SINCE:
            names = {None}
        name = self.chance.choice(sorted(names, key=str))
        self.members.append(WalkMember(self.walk, self.chance.choice(OFFERS), name))
        self._rebalance(self.members[-1])

    def rejoin(self) -> None:
        """Let a member join again, with what it offered before or with something else.

        A leader of a stable group starts a rebalance in any case; others get the current generation if nothing changed.
        """
        member, model = self.chance.choice(self.members), self.walk.model
        before, member.offers = member.offers, tuple(self.chance.choice((member.offers, *OFFERS)))
        is_answered = member.offers == before and (
            model.state == COMPLETING or (model.state == STABLE and model.leader != member.member_id)
        )
        if not is_answered:
            self._rebalance(member)
            return
        member.send_join()
        what = f"JoinGroup {member.version} of a member that has not changed, in {model.state}"
        compare(what, joined(model, member), member.receive_join(), member.version)
        self.walk.check()

    def _rebalance(self, starter: WalkMember) -> None:
        rebalance(self.walk, self.members, self._protocols(), new=[starter])

    def _protocols(self) -> frozenset[str]:
        """Return the protocols with the most votes: each member votes for the first of its own that all have."""
        shared = frozenset.intersection(*(frozenset(_names(each.offers)) for each in self.members))
        votes = Counter(next(name for name in _names(each.offers) if name in shared) for each in self.members)
        return frozenset(name for name, count in votes.items() if count == max(votes.values()))

    def return_static(self) -> None:
        """Let a static member come back without its member id: no other member notices if the protocol stays."""
        before = self.chance.choice([each for each in self.members if each.instance is not None])
        place, offers = self.members.index(before), before.offers
        before.offers = tuple(self.chance.choice((offers, *OFFERS)))
        if self._protocols() == {self.walk.model.protocol}:
            self.members[place] = restart(self.walk, before)
            return
        before.offers = offers  # which of two equal protocols the coordinator chooses is not known

    # -- other requests ------------------------------------------------------------------------------------

    def assign(self) -> None:
        """Let all members sync; the leader assigns something to each but the last."""
        leader = next(each for each in self.members if each.member_id == self.walk.model.leader)
        others = [each for each in self.members if each is not leader]
        self.chance.shuffle(others)
        assign(self.walk, [leader, *others])

    def leave(self) -> None:
        """Let one or several members leave, dynamic ones by id, static ones by either."""
        leaving = self.chance.sample(self.members, self.chance.randint(1, len(self.members)))
        named = [self.chance.choice(_ways_to_leave(each)) for each in leaving]
        self.walk.leave(*named)
        self.members = [each for each in self.members if each.member_id in self.walk.model.members]
        self.walk.check()

    def refuse(self) -> None:
        """Send requests that are refused, or that change nothing."""
        check_refusals(self.walk, *self.members, stranger=self.stranger)

    def end(self) -> None:
        """Let all members leave that are left."""
        if self.members:
            self.walk.leave(*((each.member_id, None) for each in self.members))


def _ways_to_leave(member: WalkMember) -> list[tuple[str, str | None]]:
    """Return member id and instance id of the requests that remove a member (KIP-345)."""
    by_instance = [("", member.instance), (member.member_id, member.instance)] if member.instance else []
    return [(member.member_id, None), *by_instance]


def _names(offers: Offers) -> list[str]:
    return [name for name, _ in offers]

"""A walk through the behaviours of a spec: the broker must do at each step what the model does.

Where the model leaves a choice to the broker (who leads), the walk goes where the broker went.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.fuzz.wire.oracles import code_name
from highwater.fuzz.wire.sequences import groups
from highwater.fuzz.wire.sequences.behaviours import COOPERATIVE, EAGER, Behaviours, Bounds, Moment, behaviours
from highwater.fuzz.wire.sequences.context import TOPICS, Abandoned, Stage
from highwater.fuzz.wire.sequences.groups import MEMBER_ID_SINCE, Group, Member
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerProtocolSubscription,
    TopicPartition,
    encode_subscription,
)
from highwater.reference.wire.messages.groups import DescribeGroupsRequest, JoinGroupRequest

LOOKS_MAX: Final = 2_000
DEAD_SINCE: Final = 6  # version of DescribeGroups: what is not there is an error
SAYS_NOTHING: Final = "NONE"
NOT_THERE: Final = "Dead"
EMPTY: Final = "Empty"
ENDS_A_WAIT: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION,
)  # fmt: skip


@dataclass
class Walk:
    """From the model's clients, member ids and generations to the broker's. `apart` is never kept waiting.

    `claims` are by member id what the last JoinGroup bore.
    """

    stage: Stage
    group: Group
    apart: Connection
    clients: dict[str, Member] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    generations: dict[int, int] = field(default_factory=dict)
    parked: dict[str, tuple[type[Any], int]] = field(default_factory=dict)
    joined: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, bytes] = field(default_factory=dict)

    # -- what members do -------------------------------------------------------------------------

    def take_member_id(self, moment: Moment) -> None:
        member = self.clients[moment.client] = self.clients.get(moment.client) or Member(self.stage.line())
        member.id = ""
        version = self.stage.version(JoinGroupRequest, at_least=MEMBER_ID_SINCE)
        answer = self.stage.call(member.line, groups.join_request(self.group, member), version)
        if self.stage.accepted(answer.error_code, ErrorCode.MEMBER_ID_REQUIRED):
            raise Abandoned("strangers may join at once")
        self.ids[moment.member] = answer.member_id

    def handle_join(self, moment: Moment) -> None:
        member = self._as(moment)
        member.metadata = self.claims[member.id] = self._claim(moment)
        self._send(moment, groups.join_request(self.group, member))

    def _claim(self, moment: Moment) -> bytes:
        """A subscription with the partitions owned, and since when (KIP-429, KIP-792)."""
        owned = TopicPartition(
            topic=TOPICS[0], partitions=tuple(int(name.removeprefix("p")) for name in moment.claimed)
        )
        return encode_subscription(
            ConsumerProtocolSubscription(
                topics=(TOPICS[0],), owned_partitions=(owned,) if moment.claimed else (),
                generation_id=self.generations.get(moment.since, -1),
            )
        )  # fmt: skip

    def complete_join(self, moments: Sequence[Moment]) -> Moment:
        """All who wait are answered at once; the moment of the leader whom the broker chose."""
        for client in sorted(self.parked):
            self.joined[client] = self._heard(client)
        answers = list(self.joined.values())
        for answer in answers:
            self.stage.accepted(answer.error_code)
        told = {(answer.generation_id, answer.leader) for answer in answers}
        self.stage.require(len(told) == 1, f"one rebalance ends in generations and leaders {sorted(told)}")
        ((generation, leader),) = told
        newest = max(self.generations.values(), default=-1)
        self.stage.require(generation > newest, f"generation {generation} after {newest}")
        found = next((each for each in moments if self.ids[each.member] == leader), None)
        if found is None:
            self.stage.violates(f"{leader} leads, and is none of those who joined")
        self.generations[found.generation] = generation
        for answer in answers:
            expected = found.members if answer.member_id == leader else 0
            self.stage.require(
                len(answer.members) == expected, f"{len(answer.members)} members are told, not {expected}"
            )
            for each in answer.members:
                told_rightly = each.metadata == self.claims[each.member_id]
                self.stage.require(
                    told_rightly, "the leader is told other metadata than the member's last JoinGroup bore"
                )
        return found

    def take_join_reply(self, moment: Moment) -> None:
        answer = self.joined.pop(moment.client, None) or self._heard(moment.client)
        self.stage.accepted(answer.error_code)
        self.stage.require(answer.member_id == self.ids[moment.member], f"{answer.member_id} is not who asked")
        expected = self.generations[moment.generation]
        self.stage.require(answer.generation_id == expected, f"generation {answer.generation_id}, not {expected}")

    def handle_sync(self, moment: Moment) -> None:
        shares = {self.ids[name]: _share(partitions) for name, partitions in moment.assigned.items()}
        self._send(moment, groups.sync_request(self.group, self._as(moment), shares))

    def take_sync_reply(self, moment: Moment) -> None:
        answer, expected = self._heard(moment.client), _share(moment.assigned[moment.member])
        self.stage.accepted(answer.error_code)
        self.stage.require(answer.assignment == expected, f"is given {answer.assignment!r}, not {expected!r}")

    def give_up(self, moment: Moment) -> None:
        """It waits for what the rebalance has ended."""
        code = self._heard(moment.client).error_code
        self.stage.require(not self.stage.accepted(code, *ENDS_A_WAIT), "answered, though the round is over")

    def heartbeat(self, moment: Moment) -> None:
        member = self._as(moment)
        self._expect(groups.beat(self.stage, self.group, member, member.generation), moment.says)

    def handle_commit(self, moment: Moment) -> None:
        member, offset = self._as(moment), self.stage.chance.randrange(1 << 40)
        member = Member(self.apart, member.id, member.generation)
        done = groups.commit_of(self.stage, self.group, member, member.generation, offset)
        self.stage.require(done == (moment.says == SAYS_NOTHING), f"commit taken: {done}; the model: {moment.says}")
        self.group.committed = offset if done else self.group.committed
        groups.check_committed(self.stage, self.group, self.apart)

    def leave(self, moment: Moment) -> None:
        for code in groups.leave_of(self.stage, self.group, Member(self.apart, self.ids[moment.member])):
            self.stage.accepted(code)

    # -- what they share -------------------------------------------------------------------------

    def _as(self, moment: Moment) -> Member:
        """The client's member, with the id and generation that it has in the model."""
        member = self.clients[moment.client]
        member.id = self.ids[moment.member]
        member.generation = self.generations.get(moment.generation, -1)
        return member

    def _send(self, moment: Moment, request: Any) -> None:
        """Its answer is due at once if it is a refusal."""
        member = self.clients[moment.client]
        self.parked[moment.client] = type(request), self.stage.ask(member.line, request)
        if moment.says != SAYS_NOTHING:
            self._expect(self._heard(moment.client).error_code, moment.says)

    def _heard(self, client: str) -> Any:
        request, version = self.parked.pop(client)
        return self.stage.answer(self.clients[client].line, request, version)

    def _expect(self, code: int, says: str) -> None:
        if not self.stage.accepted(code, ErrorCode[says]):
            return
        self.stage.violates(f"{code_name(code)}, the model says {says}")

    def agree(self, moment: Moment) -> None:
        """The coordinator comes to describe the group as the model has it."""
        expected = moment.state, moment.members
        version = self.stage.version(DescribeGroupsRequest, at_most=DEAD_SINCE - 1)
        for _ in range(LOOKS_MAX):
            (told,) = self.stage.call(self.apart, DescribeGroupsRequest(groups=(self.group.name,)), version).groups
            self.stage.accepted(told.error_code)
            state = EMPTY if told.group_state == NOT_THERE else told.group_state
            if (state, len(told.members)) == expected:
                return
        self.stage.violates(
            f"stays {state} with {len(told.members)} members, {expected[0]} with {expected[1]} expected"
        )


def play_eager(stage: Stage) -> None:
    """All give up everything, and join anew."""
    play(stage, EAGER)


def play_cooperative(stage: Stage) -> None:
    """What is to move is given up first, and moves in a second rebalance."""
    play(stage, COOPERATIVE)


def play(stage: Stage, several: Sequence[Bounds]) -> None:
    """From the beginning to where the model's bounds are."""
    moments = behaviours(stage.chance.choice(several))
    walk = Walk(stage, groups.begin(stage), stage.line())
    here = moments[0]
    while here.next:
        here = _step(walk, moments, [moments[place] for place in here.next])
        if here.next and moments[here.next[0]].action != COMPLETE and here.action in SEEN:
            walk.agree(here)
    for each in walk.ids.values():
        groups.leave_of(stage, walk.group, Member(walk.apart, each))


def _step(walk: Walk, moments: Behaviours, following: list[Moment]) -> Moment:
    if following[0].action == COMPLETE:
        return walk.complete_join(following)
    moment = walk.stage.chance.choice(following)
    if moment.action in STEPS:
        STEPS[moment.action](walk, moment)
    return moment


def _share(partitions: list[str]) -> bytes:
    return ",".join(partitions).encode()


COMPLETE: Final = "CompleteJoin"
STEPS: Final[dict[str, Callable[[Walk, Moment], None]]] = {
    "TakeMemberId": Walk.take_member_id, "HandleJoin": Walk.handle_join, "TakeJoinReply": Walk.take_join_reply,
    "HandleSync": Walk.handle_sync, "TakeSyncReply": Walk.take_sync_reply, "GiveUp": Walk.give_up,
    "Heartbeat": Walk.heartbeat, "HandleCommit": Walk.handle_commit, "Leave": Walk.leave,
}  # fmt: skip
"""What else a member does, it does before a request is under way."""
SEEN: Final = frozenset({"HandleJoin", "HandleSync", "Leave"})
"""Change the coordinator's mind."""

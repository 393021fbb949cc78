"""Walk through the behaviours of a spec: at each step the broker must respond as the model does.

Where the model leaves a choice to the broker (which member leads), the walk follows the broker.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.fuzz.wire.oracles.responses import code_name
from highwater.fuzz.wire.sequences import groups
from highwater.fuzz.wire.sequences.behaviours import COOPERATIVE, EAGER, Behaviours, Bounds, ModelStep, behaviours
from highwater.fuzz.wire.sequences.context import TOPICS, SequenceAbandoned, SequenceContext
from highwater.fuzz.wire.sequences.groups import MEMBER_ID_SINCE, Group, Member
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerProtocolSubscription,
    TopicPartition,
    encode_subscription,
)
from highwater.reference.wire.messages.groups import DescribeGroupsRequest, JoinGroupRequest

POLLS_MAX: Final = 2_000
DEAD_SINCE: Final = 6  # version of DescribeGroups: what is not there is an error
NO_ERROR: Final = "NONE"
DEAD: Final = "Dead"
EMPTY: Final = "Empty"
ENDS_A_WAIT: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION,
)  # fmt: skip


@dataclass
class Walk:
    """Maps the model's clients, member ids and generations to the broker's. `control` is a connection that never waits.

    `claims` are the metadata of the last JoinGroup by member id.
    """

    context: SequenceContext
    group: Group
    control: Connection
    clients: dict[str, Member] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    generations: dict[int, int] = field(default_factory=dict)
    parked: dict[str, tuple[type[Any], int]] = field(default_factory=dict)
    joined: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, bytes] = field(default_factory=dict)

    # -- what members do -------------------------------------------------------------------------

    def take_member_id(self, step: ModelStep) -> None:
        member = self.clients[step.client] = self.clients.get(step.client) or Member(self.context.connect())
        member.id = ""
        version = self.context.version(JoinGroupRequest, at_least=MEMBER_ID_SINCE)
        answer = self.context.call(member.connection, groups.join_request(self.group, member), version)
        if self.context.accepted(answer.error_code, ErrorCode.MEMBER_ID_REQUIRED):
            raise SequenceAbandoned("the broker does not require member ids")
        self.ids[step.member] = answer.member_id

    def handle_join(self, step: ModelStep) -> None:
        member = self._member_of(step)
        member.metadata = self.claims[member.id] = self._claim(step)
        self._send(step, groups.join_request(self.group, member))

    def _claim(self, step: ModelStep) -> bytes:
        """Return a subscription with the owned partitions and their generation (KIP-429, KIP-792)."""
        owned = TopicPartition(topic=TOPICS[0], partitions=tuple(int(name.removeprefix("p")) for name in step.claimed))
        return encode_subscription(
            ConsumerProtocolSubscription(
                topics=(TOPICS[0],), owned_partitions=(owned,) if step.claimed else (),
                generation_id=self.generations.get(step.since, -1),
            )
        )  # fmt: skip

    def complete_join(self, steps: Sequence[ModelStep]) -> ModelStep:
        """Receive all pending JoinGroup responses; return the step whose leader the broker chose."""
        for client in sorted(self.parked):
            self.joined[client] = self._receive(client)
        answers = list(self.joined.values())
        for answer in answers:
            self.context.accepted(answer.error_code)
        reported = {(answer.generation_id, answer.leader) for answer in answers}
        self.context.require(len(reported) == 1, f"one rebalance ends in generations and leaders {sorted(reported)}")
        ((generation, leader),) = reported
        newest = max(self.generations.values(), default=-1)
        self.context.require(generation > newest, f"generation {generation} after {newest}")
        found = next((candidate for candidate in steps if self.ids[candidate.member] == leader), None)
        if found is None:
            self.context.violates(f"{leader} leads, but is not one of the members that joined")
        self.generations[found.generation] = generation
        for answer in answers:
            expected = found.members if answer.member_id == leader else 0
            self.context.require(
                len(answer.members) == expected, f"{len(answer.members)} members are returned, not {expected}"
            )
            for candidate in answer.members:
                is_reported = candidate.metadata == self.claims[candidate.member_id]
                self.context.require(
                    is_reported, "the leader receives other metadata than the member's last JoinGroup contained"
                )
        return found

    def take_join_reply(self, step: ModelStep) -> None:
        answer = self.joined.pop(step.client, None) or self._receive(step.client)
        self.context.accepted(answer.error_code)
        self.context.require(
            answer.member_id == self.ids[step.member], f"{answer.member_id} is not the member that joined"
        )
        expected = self.generations[step.generation]
        self.context.require(answer.generation_id == expected, f"generation {answer.generation_id}, not {expected}")

    def handle_sync(self, step: ModelStep) -> None:
        shares = {self.ids[name]: _share(partitions) for name, partitions in step.assigned.items()}
        self._send(step, groups.sync_request(self.group, self._member_of(step), shares))

    def take_sync_reply(self, step: ModelStep) -> None:
        answer, expected = self._receive(step.client), _share(step.assigned[step.member])
        self.context.accepted(answer.error_code)
        self.context.require(answer.assignment == expected, f"is given {answer.assignment!r}, not {expected!r}")

    def give_up(self, step: ModelStep) -> None:
        """Receive the error that ends a wait when the rebalance is over."""
        code = self._receive(step.client).error_code
        self.context.require(not self.context.accepted(code, *ENDS_A_WAIT), "a request of an ended rebalance succeeds")

    def heartbeat(self, step: ModelStep) -> None:
        member = self._member_of(step)
        self._expect(groups.send_heartbeat(self.context, self.group, member, member.generation), step.expected_error)

    def handle_commit(self, step: ModelStep) -> None:
        member, offset = self._member_of(step), self.context.rng.randrange(1 << 40)
        member = Member(self.control, member.id, member.generation)
        done = groups.send_commit(self.context, self.group, member, member.generation, offset)
        self.context.require(
            done == (step.expected_error == NO_ERROR), f"commit taken: {done}; the model: {step.expected_error}"
        )
        self.group.committed = offset if done else self.group.committed
        groups.check_committed(self.context, self.group, self.control)

    def leave(self, step: ModelStep) -> None:
        for code in groups.send_leave(self.context, self.group, Member(self.control, self.ids[step.member])):
            self.context.accepted(code)

    # -- what they share -------------------------------------------------------------------------

    def _member_of(self, step: ModelStep) -> Member:
        """Return the client's member, with its id and generation in the model."""
        member = self.clients[step.client]
        member.id = self.ids[step.member]
        member.generation = self.generations.get(step.generation, -1)
        return member

    def _send(self, step: ModelStep, request: Any) -> None:
        """Send a request; receive its response at once if the model predicts an error."""
        member = self.clients[step.client]
        self.parked[step.client] = type(request), self.context.send(member.connection, request)
        if step.expected_error != NO_ERROR:
            self._expect(self._receive(step.client).error_code, step.expected_error)

    def _receive(self, client: str) -> Any:
        request, version = self.parked.pop(client)
        return self.context.receive(self.clients[client].connection, request, version)

    def _expect(self, code: int, expected_error: str) -> None:
        if not self.context.accepted(code, ErrorCode[expected_error]):
            return
        self.context.violates(f"{code_name(code)}, the model says {expected_error}")

    def await_description(self, step: ModelStep) -> None:
        """Poll DescribeGroups until the group has the state and member count of the model."""
        expected = step.state, step.members
        version = self.context.version(DescribeGroupsRequest, at_most=DEAD_SINCE - 1)
        for _ in range(POLLS_MAX):
            (reported,) = self.context.call(
                self.control, DescribeGroupsRequest(groups=(self.group.name,)), version
            ).groups
            self.context.accepted(reported.error_code)
            state = EMPTY if reported.group_state == DEAD else reported.group_state
            if (state, len(reported.members)) == expected:
                return
        self.context.violates(
            f"stays {state} with {len(reported.members)} members, {expected[0]} with {expected[1]} expected"
        )


def run_eager(context: SequenceContext) -> None:
    """Walk an eager rebalance: members revoke all partitions and join again."""
    run(context, EAGER)


def run_cooperative(context: SequenceContext) -> None:
    """Walk a cooperative rebalance: partitions to move are revoked first and move in a second rebalance (KIP-429)."""
    run(context, COOPERATIVE)


def run(context: SequenceContext, alternatives: Sequence[Bounds]) -> None:
    """Walk from the initial state to the bounds of the model."""
    steps = behaviours(context.rng.choice(alternatives))
    walk = Walk(context, groups.begin(context), context.connect())
    current = steps[0]
    while current.next:
        current = _step(walk, steps, [steps[place] for place in current.next])
        if current.next and steps[current.next[0]].action != COMPLETE and current.action in OBSERVABLE:
            walk.await_description(current)
    for member_id in walk.ids.values():
        groups.send_leave(context, walk.group, Member(walk.control, member_id))


def _step(walk: Walk, steps: Behaviours, next_steps: list[ModelStep]) -> ModelStep:
    if next_steps[0].action == COMPLETE:
        return walk.complete_join(next_steps)
    step = walk.context.rng.choice(next_steps)
    if step.action in STEPS:
        STEPS[step.action](walk, step)
    return step


def _share(partitions: list[str]) -> bytes:
    return ",".join(partitions).encode()


COMPLETE: Final = "CompleteJoin"
STEPS: Final[dict[str, Callable[[Walk, ModelStep], None]]] = {
    "TakeMemberId": Walk.take_member_id, "HandleJoin": Walk.handle_join, "TakeJoinReply": Walk.take_join_reply,
    "HandleSync": Walk.handle_sync, "TakeSyncReply": Walk.take_sync_reply, "GiveUp": Walk.give_up,
    "Heartbeat": Walk.heartbeat, "HandleCommit": Walk.handle_commit, "Leave": Walk.leave,
}  # fmt: skip
"""Other actions of a member happen inside the client, before it sends a request."""
OBSERVABLE: Final = frozenset({"HandleJoin", "HandleSync", "Leave"})
"""Actions that change what DescribeGroups returns."""

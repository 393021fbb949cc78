"""A path through the behaviours of a specified group: at each step the broker must respond as the model does.

Where the model leaves a choice to the broker (which member leads), the walk follows the broker.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from highwater.conformance.cases.support.committed_offsets import commit, committed_offset
from highwater.conformance.cases.support.members import GroupDriver, Member
from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.expectations import expect
from highwater.conformance.failures import TargetFailure
from highwater.conformance.specified.behaviours import Behaviours, ModelStep
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerProtocolSubscription,
    TopicPartition,
    encode_subscription,
)

NO_ERROR: Final = "NONE"
DEAD, EMPTY = "Dead", "Empty"
ENDS_A_WAIT: Final = frozenset({
    ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION,
})  # fmt: skip
REFUSED: Final = ENDS_A_WAIT | {ErrorCode.FENCED_INSTANCE_ID}
"""With which of these a late commit is refused is not part of the model."""
Receive = Callable[[], Any]


class SpecifiedGroup:
    """Maps the model's clients, member ids and generations to the broker's. `control` is a connection that never waits.

    `parked` receives the reply that a client waits for; `claims` are the metadata of the last JoinGroup by member id.
    """

    def __init__(self, cluster: Cluster, topic: Topic, chance: random.Random) -> None:
        self._topic, self._chance = topic, chance
        self._driver = GroupDriver(cluster, cluster.group())
        self._control: Broker = self._driver.connect()
        self._committed = 0  # Apache Kafka deletes an empty group without offsets at its next check
        expect("error code of OffsetCommit", 0, commit(self._control, self._driver.group, topic, self._committed))
        self.clients: dict[str, Member] = {}
        self.ids: dict[str, str] = {}
        self.generations: dict[int, int] = {}
        self.parked: dict[str, Receive] = {}
        self.joined: dict[str, Any] = {}
        self.claims: dict[str, bytes] = {}

    def walk(self, steps: Behaviours) -> None:
        """Walk from the initial state to the bounds of the model, then let all members leave."""
        current = steps[0]
        while current.next:
            current = self._step([steps[place] for place in current.next])
            if current.next and steps[current.next[0]].action != COMPLETE and current.action in OBSERVABLE:
                self._await_description(current)
        for member_id in self.ids.values():
            Member(self._driver, self._control, member_id).leave_error()

    def _step(self, next_steps: Sequence[ModelStep]) -> ModelStep:
        if next_steps[0].action == COMPLETE:
            return self._complete_join(next_steps)
        step = self._chance.choice(next_steps)
        if step.action in ACTIONS:
            ACTIONS[step.action](self, step)
        return step

    # -- what members do -----------------------------------------------------------------------------

    def take_member_id(self, step: ModelStep) -> None:
        member = self.clients.setdefault(step.client, Member(self._driver, self._driver.connect(), ""))
        self.ids[step.member] = self._driver.new_id(member.broker)

    def handle_join(self, step: ModelStep) -> None:
        member = self._member_of(step)
        self.claims[member.member_id] = self._claim(step)
        member.send_rejoin(metadata=self.claims[member.member_id])
        self._park(step, member.receive_join)

    def _claim(self, step: ModelStep) -> bytes:
        """Return a subscription with the owned partitions and their generation (KIP-429, KIP-792)."""
        name = self._topic.name
        owned = TopicPartition(topic=name, partitions=tuple(int(each.removeprefix("p")) for each in step.claimed))
        return encode_subscription(
            ConsumerProtocolSubscription(
                topics=(name,), owned_partitions=(owned,) if step.claimed else (),
                generation_id=self.generations.get(step.since, -1),
            )
        )  # fmt: skip

    def _complete_join(self, steps: Sequence[ModelStep]) -> ModelStep:
        """Receive all pending JoinGroup replies; return the step whose leader the broker chose."""
        for client in sorted(self.parked):
            self.joined[client] = self._receive(client)
        replies = list(self.joined.values())
        for reply in replies:
            expect("error code of the join", 0, reply.error_code)
        generation, leader = replies[0].generation_id, replies[0].leader
        for reply in replies:
            expect("generation and leader of each member", (generation, leader), (reply.generation_id, reply.leader))
        newest = max(self.generations.values(), default=-1)
        expect(f"generation {generation} is after {newest}", True, generation > newest)
        found = next((each for each in steps if self.ids[each.member] == leader), None)
        if found is None:
            raise TargetFailure(
                "leader of the group", expected="one of the members that have joined", actual=str(leader)
            )
        self.generations[found.generation] = generation
        for reply in replies:
            members = {member.member_id: member.metadata for member in reply.members}
            expect("number of members in the reply", found.members if reply.member_id == leader else 0, len(members))
            for member_id, metadata in members.items():
                expect("metadata of a member for the leader", self.claims[member_id], metadata)
        return found

    def take_join_reply(self, step: ModelStep) -> None:
        reply = self.joined.pop(step.client, None) or self._receive(step.client)
        expected = (0, self.ids[step.member], self.generations[step.generation])
        found = (reply.error_code, reply.member_id, reply.generation_id)
        expect("error code, member id and generation of the join", expected, found)

    def handle_sync(self, step: ModelStep) -> None:
        member = self._member_of(step)
        shares = {self.ids[name]: _share(partitions) for name, partitions in step.assigned.items()}
        member.send_sync(shares)
        self._park(step, member.receive)

    def take_sync_reply(self, step: ModelStep) -> None:
        reply = self._receive(step.client)
        expected = (0, _share(step.assigned[step.member]))
        expect("error code and assignment of the sync", expected, (reply.error_code, reply.assignment))

    def give_up(self, step: ModelStep) -> None:
        """Receive the error that ends a wait when the rebalance is over."""
        expect("error code of a request of an ended rebalance", ENDS_A_WAIT, self._receive(step.client).error_code)

    def heartbeat(self, step: ModelStep) -> None:
        _expect("heartbeat", step, self._member_of(step).heartbeat_error())

    def handle_commit(self, step: ModelStep) -> None:
        member, offset = self._member_of(step), self._chance.randrange(1 << 40)
        error = commit(
            self._control, self._driver.group, self._topic, offset, generation=member.generation,
            member_id=member.member_id,
        )  # fmt: skip
        expect("error code of the commit", {0} if step.expected_error == NO_ERROR else REFUSED, error)
        self._committed = self._committed if error else offset
        found = committed_offset(self._control, self._driver.group, self._topic)
        expect("committed offset", self._committed, found)

    def leave(self, step: ModelStep) -> None:
        left = Member(self._driver, self._control, self.ids[step.member])
        expect("error code of the departure", 0, left.leave_error())

    # -- what they share -----------------------------------------------------------------------------

    def _member_of(self, step: ModelStep) -> Member:
        """Return the client's member, with its id and generation in the model."""
        member = self.clients[step.client]
        member.member_id = self.ids[step.member]
        member.generation = self.generations.get(step.generation, -1)
        return member

    def _park(self, step: ModelStep, receive: Receive) -> None:
        """Keep a request that waits; receive its reply at once if the model predicts an error."""
        self.parked[step.client] = receive
        if step.expected_error != NO_ERROR:
            _expect(step.action, step, self._receive(step.client).error_code)

    def _receive(self, client: str) -> Any:
        return self.parked.pop(client)()

    def _await_description(self, step: ModelStep) -> None:
        """Wait until the group is described with the state and the number of members of the model."""
        expected = step.state, step.members

        def is_described() -> bool:
            found = self._driver.describe()
            return (EMPTY if found.group_state == DEAD else found.group_state, len(found.members)) == expected

        self._driver.cluster.eventually(f"state and number of members {expected}", is_described)


def _expect(what: str, step: ModelStep, error: int) -> None:
    expect(f"error code of the {what}", ErrorCode[step.expected_error], error)


def _share(partitions: Sequence[str]) -> bytes:
    return ",".join(partitions).encode()


COMPLETE: Final = "CompleteJoin"
ACTIONS: Final[dict[str, Callable[[SpecifiedGroup, ModelStep], None]]] = {
    "TakeMemberId": SpecifiedGroup.take_member_id, "HandleJoin": SpecifiedGroup.handle_join,
    "TakeJoinReply": SpecifiedGroup.take_join_reply, "HandleSync": SpecifiedGroup.handle_sync,
    "TakeSyncReply": SpecifiedGroup.take_sync_reply, "GiveUp": SpecifiedGroup.give_up,
    "Heartbeat": SpecifiedGroup.heartbeat, "HandleCommit": SpecifiedGroup.handle_commit, "Leave": SpecifiedGroup.leave,
}  # fmt: skip
"""Other actions of a member happen inside the client, before it sends a request."""
OBSERVABLE: Final = frozenset({"HandleJoin", "HandleSync", "Leave"})
"""Actions that change what DescribeGroups returns."""

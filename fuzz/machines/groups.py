"""A group coordinator asked by members that do anything at any time, against what each of them was told.

Two dynamic members and two processes under one instance id join, sync, beat, commit, leave and fall silent; time
passes, and the coordinator restarts and reads its log. Requests may bear the generation before the present one.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from highwater.reference.groups.group import Group, GroupState
from highwater.reference.tests.test_group_coordinator import GROUP, TOPIC, Coordinator
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.groups import MemberIdentity

SESSION_MS, REBALANCE_MS, SOON_MS = 3_000, 1_000, 30
STATIC: Final = "i"
LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


@dataclass(eq=False)
class Seat:
    """A process: what it was told, and the requests of it that have no answer yet (0: none)."""

    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    joined: Any = None
    joining: int = 0
    syncing: int = 0

    def forget(self) -> None:
        self.member_id, self.generation, self.joined = "", -1, None

    def share(self) -> bytes:
        """What the leader of its generation assigns to it."""
        return b"%d %s" % (self.generation, (self.instance or self.member_id).encode())


seats = st.integers(0, 3)
stale = st.sampled_from([0, 1])


class GroupMachine(RuleBasedStateMachine):
    """`newest` is the latest generation that anybody was told, `synced` the latest that is in force."""

    guard_off: ClassVar = ""

    @initialize()
    def begin(self) -> None:
        self.world = Coordinator(off=bool(self.guard_off), guard=self.guard_off)
        self.seats = [Seat(), Seat(), Seat(STATIC), Seat(STATIC)]
        self.holder: Seat | None = None  # of the instance id
        self.newest = self.synced = self.generation = -1
        self.leaders: dict[int, str] = {}
        self.ids: set[str] = set()
        self.offset = 0
        self.committed: int | None = None

    def _collect(self) -> None:
        """Let answers arrive, and look at them."""
        self.world.run(SOON_MS)
        answers = self.world.hand.answers
        for seat in self.seats:
            if seat.joining in answers:
                answer, seat.joining = answers.pop(seat.joining), 0
                self._joined(seat, answer)
            if seat.syncing in answers:
                self._synced(seat, answers.pop(seat.syncing))
                seat.syncing = 0

    # -- joins and syncs ---------------------------------------------------------------------------

    @rule(number=seats)
    def join(self, number: int) -> None:
        seat = self.seats[number]
        if not seat.joining:
            self._send_join(seat)
            seat.syncing = 0
        self._collect()

    def _send_join(self, seat: Seat) -> None:
        seat.joining = self.world.begin_join(
            seat.member_id, instance=seat.instance, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS
        )

    @rule(numbers=st.sets(seats, min_size=1))
    def a_round(self, numbers: set[int]) -> None:
        """Some join together, and those that are told a generation fetch their shares."""
        for number in sorted(numbers):
            self.join(number)
        self.time_passes(REBALANCE_MS + 100)
        for number in sorted(numbers):
            self.sync(number)

    def _joined(self, seat: Seat, answer: Any) -> None:
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            seat.member_id = answer.member_id
            self.ids.add(answer.member_id)
            self._send_join(seat)
        elif error in LOST:
            self._lost(seat, error)
        elif error is ErrorCode.NONE:
            assert answer.generation_id >= max(self.newest, seat.generation), "OwnershipKept"
            assert self.leaders.setdefault(answer.generation_id, answer.leader) == answer.leader or seat.instance
            if answer.generation_id > self.newest >= 0:
                event("rebalance")
            seat.joined, seat.member_id, seat.generation = answer, answer.member_id, answer.generation_id
            self.newest = answer.generation_id
            self.ids.add(answer.member_id)
            if seat.instance:
                self.holder = seat

    @rule(number=seats)
    def sync(self, number: int) -> None:
        """The leader of a generation gives everybody a share that bears generation and name."""
        seat = self.seats[number]
        joined = seat.joined
        if joined is not None and not (seat.joining or seat.syncing):
            shares = {
                each.member_id: Seat(each.group_instance_id, each.member_id, seat.generation).share()
                for each in joined.members
            }
            seat.syncing = self.world.begin_sync(joined, shares)
        self._collect()

    def _synced(self, seat: Seat, answer: Any) -> None:
        error = ErrorCode(answer.error_code)
        if error in LOST:
            self._lost(seat, error)
        elif error is ErrorCode.NONE:
            assert answer.assignment == seat.share(), "a share that the leader of this generation did not give it"
            self.synced = max(self.synced, seat.generation)

    def _lost(self, seat: Seat, error: ErrorCode) -> None:
        event("fenced instance" if error is ErrorCode.FENCED_INSTANCE_ID else "forgotten member")
        seat.forget()

    # -- what members do ---------------------------------------------------------------------------

    def _accepted(self, seat: Seat, generation: int, error: ErrorCode) -> bool:
        """Whoever is heard is of the newest generation, and holds its instance id."""
        if error in LOST:
            self._lost(seat, error)
        if error is ErrorCode.ILLEGAL_GENERATION:
            event("fenced generation")
        if error is not ErrorCode.NONE:
            return False
        assert generation >= self.newest, f"OwnershipKept: {generation} is heard after {self.newest}"
        return True

    @rule(number=seats, stale=stale)
    def heartbeat(self, number: int, stale: int) -> None:
        seat = self.seats[number]
        generation = seat.generation - stale
        if seat.member_id and generation >= 0:
            error = self.world.heartbeat(seat.member_id, generation, seat.instance)
            if self._accepted(seat, generation, error) and seat.instance:
                assert self.holder is seat, "a process that another one replaced is heard"
        self._collect()

    @rule(number=seats, stale=stale)
    def commit(self, number: int, stale: int) -> None:
        seat = self.seats[number]
        generation = seat.generation - stale
        if seat.member_id and generation >= 0:
            self.offset += 1
            error = self.world.commit(seat.member_id, generation, self.offset)
            if self._accepted(seat, generation, error):
                self.committed = self.offset
        self._collect()

    @rule(number=seats)
    def leave(self, number: int) -> None:
        seat = self.seats[number]
        if seat.member_id and not seat.joining:
            self.world.leave_group(MemberIdentity(member_id=seat.member_id, group_instance_id=seat.instance))
            seat.forget()
        self._collect()

    @rule(wait_ms=st.sampled_from([100, REBALANCE_MS + 100, SESSION_MS + 100]))
    def time_passes(self, wait_ms: int) -> None:
        self.world.run(wait_ms)
        self._collect()

    @rule()
    def the_coordinator_restarts(self) -> None:
        """What is in force it reads from its log; a generation whose shares nobody got may come again."""
        self._collect()
        self.world.restart()
        event("coordinator restart")
        self.newest = self.generation = self.synced
        self.leaders = {number: leader for number, leader in self.leaders.items() if number <= self.synced}
        for seat in self.seats:
            seat.joining = seat.syncing = 0
            if seat.generation > self.synced:
                seat.forget()

    # -- what must hold ----------------------------------------------------------------------------

    @property
    def group(self) -> Group | None:
        return self.world.broker().groups.groups.get(GROUP)

    @invariant()
    def OwnershipKept(self) -> None:
        """Generations and committed offsets never go back, restarts or not."""
        if self.group is None:
            assert self.synced < 0, "a group whose members have their shares is gone"
            return
        assert self.group.generation_id >= max(self.generation, self.synced)
        self.generation = self.group.generation_id
        if self.committed is not None:
            assert self.world.committed() == {TOPIC: [self.committed]}

    @invariant()
    def AllAssigned(self) -> None:
        """In a stable group everybody has a share of this generation."""
        if self.group is not None and self.group.state is GroupState.STABLE:
            for member in self.group.members.values():
                seat = Seat(member.instance_id, member.member_id, self.group.generation_id)
                assert member.assignment == seat.share()

    @invariant()
    def NoGhosts(self) -> None:
        """No dynamic member of whose id its process never heard."""
        members = self.group.members.values() if self.group is not None else ()
        assert {member.member_id for member in members if member.instance_id is None} <= self.ids

"""Check a group coordinator against the responses that members received from it.

Two dynamic members and two processes with one group.instance.id join, sync, send heartbeats, commit, leave and stop
sending, in any order; time passes, and the coordinator restarts and reads its log. Requests may have the previous
generation.
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

SESSION_MS, REBALANCE_MS, RESPONSE_MS = 3_000, 1_000, 30
STATIC: Final = "i"
MEMBERSHIP_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


@dataclass(eq=False)
class MemberProcess:
    """A member: the content of its last responses, and its open JoinGroup and SyncGroup requests (0: none)."""

    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    joined: Any = None
    joining: int = 0
    syncing: int = 0

    def forget(self) -> None:
        """Drop member id and generation, as after an expired session."""
        self.member_id, self.generation, self.joined = "", -1, None

    def expected_assignment(self) -> bytes:
        """Return the assignment that the leader of its generation gives it."""
        return b"%d %s" % (self.generation, (self.instance or self.member_id).encode())


process_numbers = st.integers(0, 3)
stale = st.sampled_from([0, 1])


class GroupMachine(RuleBasedStateMachine):
    """`newest` is the highest generation in a JoinGroup response, `synced` the highest in a SyncGroup response."""

    guard_off: ClassVar = ""

    @initialize()
    def begin(self) -> None:
        self.world = Coordinator(off=bool(self.guard_off), guard=self.guard_off)
        self.processes = [MemberProcess(), MemberProcess(), MemberProcess(STATIC), MemberProcess(STATIC)]
        self.instance_owner: MemberProcess | None = None  # the newest process with the instance id
        self.newest = self.synced = self.generation = -1
        self.leaders: dict[int, str] = {}
        self.ids: set[str] = set()
        self.offset = 0
        self.committed: int | None = None

    def _collect(self) -> None:
        """Let responses arrive and check them."""
        self.world.run(RESPONSE_MS)
        answers = self.world.hand.answers
        for process in self.processes:
            if process.joining in answers:
                answer, process.joining = answers.pop(process.joining), 0
                self._handle_join_response(process, answer)
            if process.syncing in answers:
                self._handle_sync_response(process, answers.pop(process.syncing))
                process.syncing = 0

    # -- joins and syncs ---------------------------------------------------------------------------

    @rule(number=process_numbers)
    def join(self, number: int) -> None:
        process = self.processes[number]
        if not process.joining:
            self._send_join(process)
            process.syncing = 0
        self._collect()

    def _send_join(self, process: MemberProcess) -> None:
        process.joining = self.world.begin_join(
            process.member_id, instance=process.instance, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS
        )

    @rule(numbers=st.sets(process_numbers, min_size=1))
    def a_round(self, numbers: set[int]) -> None:
        """Let some members join at the same time; those with a generation then send SyncGroup."""
        for number in sorted(numbers):
            self.join(number)
        self.time_passes(REBALANCE_MS + 100)
        for number in sorted(numbers):
            self.sync(number)

    def _handle_join_response(self, process: MemberProcess, answer: Any) -> None:
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            process.member_id = answer.member_id
            self.ids.add(answer.member_id)
            self._send_join(process)
        elif error in MEMBERSHIP_LOST:
            self._handle_lost_membership(process, error)
        elif error is ErrorCode.NONE:
            assert answer.generation_id >= max(self.newest, process.generation), "OwnershipKept"
            assert self.leaders.setdefault(answer.generation_id, answer.leader) == answer.leader or process.instance
            if answer.generation_id > self.newest >= 0:
                event("rebalance")
            process.joined, process.member_id, process.generation = answer, answer.member_id, answer.generation_id
            self.newest = answer.generation_id
            self.ids.add(answer.member_id)
            if process.instance:
                self.instance_owner = process

    @rule(number=process_numbers)
    def sync(self, number: int) -> None:
        """Send SyncGroup; the leader assigns each member its generation and name."""
        process = self.processes[number]
        joined = process.joined
        if joined is not None and not (process.joining or process.syncing):
            assignments = {
                member.member_id: MemberProcess(
                    member.group_instance_id, member.member_id, process.generation
                ).expected_assignment()
                for member in joined.members
            }
            process.syncing = self.world.begin_sync(joined, assignments)
        self._collect()

    def _handle_sync_response(self, process: MemberProcess, answer: Any) -> None:
        error = ErrorCode(answer.error_code)
        if error in MEMBERSHIP_LOST:
            self._handle_lost_membership(process, error)
        elif error is ErrorCode.NONE:
            assert answer.assignment == process.expected_assignment(), (
                "the assignment is not the one of the leader of this generation"
            )
            self.synced = max(self.synced, process.generation)

    def _handle_lost_membership(self, process: MemberProcess, error: ErrorCode) -> None:
        event("fenced instance" if error is ErrorCode.FENCED_INSTANCE_ID else "forgotten member")
        process.forget()

    # -- requests of members -----------------------------------------------------------------------

    def _check_accepted(self, process: MemberProcess, generation: int, error: ErrorCode) -> bool:
        """Return whether the request succeeded; only a member of the newest generation may succeed."""
        if error in MEMBERSHIP_LOST:
            self._handle_lost_membership(process, error)
        if error is ErrorCode.ILLEGAL_GENERATION:
            event("fenced generation")
        if error is not ErrorCode.NONE:
            return False
        assert generation >= self.newest, f"OwnershipKept: generation {generation} is accepted after {self.newest}"
        return True

    @rule(number=process_numbers, stale=stale)
    def heartbeat(self, number: int, stale: int) -> None:
        process = self.processes[number]
        generation = process.generation - stale
        if process.member_id and generation >= 0:
            error = self.world.heartbeat(process.member_id, generation, process.instance)
            if self._check_accepted(process, generation, error) and process.instance:
                assert self.instance_owner is process, "a replaced static member is accepted"
        self._collect()

    @rule(number=process_numbers, stale=stale)
    def commit(self, number: int, stale: int) -> None:
        process = self.processes[number]
        generation = process.generation - stale
        if process.member_id and generation >= 0:
            self.offset += 1
            error = self.world.commit(process.member_id, generation, self.offset)
            if self._check_accepted(process, generation, error):
                self.committed = self.offset
        self._collect()

    @rule(number=process_numbers)
    def leave(self, number: int) -> None:
        process = self.processes[number]
        if process.member_id and not process.joining:
            self.world.leave_group(MemberIdentity(member_id=process.member_id, group_instance_id=process.instance))
            process.forget()
        self._collect()

    @rule(wait_ms=st.sampled_from([100, REBALANCE_MS + 100, SESSION_MS + 100]))
    def time_passes(self, wait_ms: int) -> None:
        self.world.run(wait_ms)
        self._collect()

    @rule()
    def the_coordinator_restarts(self) -> None:
        """Restart the coordinator, which reads its log.

        A generation without a successful SyncGroup is not in the log, so its number may be used again.
        """
        self._collect()
        self.world.restart()
        event("coordinator restart")
        self.newest = self.generation = self.synced
        self.leaders = {number: leader for number, leader in self.leaders.items() if number <= self.synced}
        for process in self.processes:
            process.joining = process.syncing = 0
            if process.generation > self.synced:
                process.forget()

    # -- invariants --------------------------------------------------------------------------------

    @property
    def group(self) -> Group | None:
        """Return the group in the memory of the coordinator."""
        return self.world.broker().groups.groups.get(GROUP)

    @invariant()
    def OwnershipKept(self) -> None:
        """Generation and committed offset never decrease, with restarts of the coordinator too."""
        if self.group is None:
            assert self.synced < 0, "the group is lost although members have received assignments"
            return
        assert self.group.generation_id >= max(self.generation, self.synced)
        self.generation = self.group.generation_id
        if self.committed is not None:
            assert self.world.committed() == {TOPIC: [self.committed]}

    @invariant()
    def AllAssigned(self) -> None:
        """In a stable group every member has an assignment of this generation."""
        if self.group is not None and self.group.state is GroupState.STABLE:
            for member in self.group.members.values():
                process = MemberProcess(member.instance_id, member.member_id, self.group.generation_id)
                assert member.assignment == process.expected_assignment()

    @invariant()
    def NoGhosts(self) -> None:
        """Every dynamic member id was in a response to a process."""
        members = self.group.members.values() if self.group is not None else ()
        assert {member.member_id for member in members if member.instance_id is None} <= self.ids

"""A consumer group as its coordinator has it, and what its members have."""

from collections.abc import Mapping

from highwater.fuzz.simulator.clients.load import GENERATION, GROUP, WHO, Consumer
from highwater.fuzz.simulator.cluster import OFFSETS_TOPIC, TOPIC, SimulatedCluster
from highwater.fuzz.simulator.invariants.replication import Violated
from highwater.fuzz.simulator.invariants.violations import Seen
from highwater.reference.broker import Broker
from highwater.reference.clients.assignors import ASSIGNORS
from highwater.reference.clients.judge import ownership_conflicts
from highwater.reference.clients.member import MemberState
from highwater.reference.clients.subscriptions import Partition, Subscription, unpack_assignment
from highwater.reference.groups.group import Group, GroupState
from highwater.reference.replication.states import PartitionState, state_path
from highwater.reference.wire.errors import DecodeError

OFFSETS_STATE = state_path(OFFSETS_TOPIC, 0)


class ObservedGroup:
    """The coordinator is whom the store says; what a former one still believes commits nobody to anything."""

    def __init__(
        self, cluster: SimulatedCluster, members: Mapping[str, Consumer], seen: Seen, violated: Violated
    ) -> None:
        self._cluster, self._members, self._seen, self._violated = cluster, members, seen, violated
        self._raw: object = None
        self._coordinator = -1
        self._last: Group | None = None
        self._state = GroupState.EMPTY
        self._generation = 0
        self._stable_generation = 0
        self._known: set[str] = set()  # the ids that processes ever had
        self._acknowledged: dict[Partition, int] = {}
        self._recorded: dict[Partition, int] = {}  # what the coordinator had last
        self._out_since: dict[str, int] = {}  # processes of no member of the group, since so many milliseconds
        self._ids: frozenset[str] = frozenset()
        self._topic = {(TOPIC, number) for number in range(cluster.settings.partitions)}

    def _coordinates(self, broker: Broker) -> bool:
        store = self._cluster.store_if_up()
        if store is not None:
            raw = store.peek(OFFSETS_STATE, lambda data, version: (data, version))
            if raw != self._raw:
                self._raw = raw
                self._coordinator = PartitionState.from_bytes(*raw).leader if raw else -1
        return broker.config.broker_id == self._coordinator

    def broker_moved(self, broker: Broker) -> None:
        group = broker.groups.groups.get(GROUP)
        if group is None or not self._coordinates(broker):
            return
        if group is not self._last:
            if self._last is not None:
                self._seen.add("coordinator change")
                self._look_for_forgotten(group)
            self._last, self._state, self._generation = group, GroupState.EMPTY, -1
        if group.members.keys() != self._ids:
            self._members_changed(group)
        self._look_at_offsets(group)
        if group.generation_id < self._generation:
            self._violated("OwnershipKept", f"generation {self._generation} to {group.generation_id}")
        self._generation = group.generation_id
        if group.state is not self._state:
            self._state = group.state
            self._moved(group)
        self._look_for_ghosts(group)

    def committed(self, partitions: frozenset[Partition], offset: int) -> None:
        """A member was told that its commit counts."""
        for key in partitions:
            self._acknowledged[key] = max(offset, self._acknowledged.get(key, -1))

    def member_moved(self) -> None:
        """Undisturbed: who keeps a partition keeps it. OneOwner: no two of one generation have the same partition."""
        for name, application in self._members.items():
            if application.member.member_id in self._ids:
                self._out_since.pop(name, None)
            if application.disturbed:
                self._violated("Undisturbed", f"{name} gives up {sorted(application.disturbed)}, which nobody took")
        self._known.update(application.member.member_id for application in self._members.values())
        if self._last is not None:
            for each in ownership_conflicts(self._members, self._last):
                self._violated("OneOwner", each)

    def _moved(self, group: Group) -> None:
        self._seen.add(f"group {group.state}")
        if group.state is GroupState.PREPARING_REBALANCE and self._is_failing_over():
            self._seen.add("rebalance during failover")
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._check_barrier(group)
            self._check_claims(group)
        elif group.state is GroupState.STABLE:
            if group.generation_id < self._stable_generation:
                self._violated(
                    "OwnershipKept", f"generation {group.generation_id} is stable after {self._stable_generation} was"
                )
            self._stable_generation = group.generation_id
            self._check_assignment(group)

    def _is_failing_over(self) -> bool:
        """Some partition has nobody yet who acts as its leader."""
        partitions = range(self._cluster.settings.partitions)
        return self._cluster.store_if_up() is not None and any(self._cluster.leader(each) < 0 for each in partitions)

    def _look_at_offsets(self, group: Group) -> None:
        """A commit that was acknowledged counts until a later one does: nobody but the holder may undo it.

        The holder itself may, by a copy of an older commit that comes late: commits have no sequence.
        """
        unit = GENERATION if self._seen["duplicate"] else 1
        for key, recorded in group.offsets.items():
            if self._recorded.get(key) != recorded.offset:
                self._look_at_commit(key, recorded.offset)
        for key, acknowledged in self._acknowledged.items():
            committed = group.offsets.get(key)
            if committed is None or committed.offset // unit < acknowledged // unit:
                told = committed.offset if committed else "none"
                self._violated("OwnershipKept", f"{key[0]}-{key[1]} is committed at {told}, after {acknowledged}")

    def _members_changed(self, group: Group) -> None:
        self._ids = frozenset(group.members)
        for name, application in self._members.items():
            if application.member.member_id in self._ids:
                self._out_since.pop(name, None)
            else:
                self._out_since.setdefault(name, self._cluster.world.now_ms)

    def _look_for_forgotten(self, group: Group) -> None:
        """A fail-over loses no member who was told its place in the generation that is stored."""
        for name, application in self._members.items():
            member = application.member
            told = member.state is MemberState.STABLE and member.generation_id == group.generation_id
            if told and group.members and name not in self._out_since and member.member_id not in group.members:
                self._violated("OwnershipKept", f"{member.member_id} of {name} is a stranger after a fail-over")

    def _look_at_commit(self, key: Partition, offset: int) -> None:
        """What counts was sent by a member: who was thrown out commits nothing."""
        self._recorded[key] = offset
        name, sent_ms = f"member:{offset % WHO}", offset % GENERATION // WHO
        if sent_ms > self._out_since.get(name, sent_ms):
            self._violated(
                "OwnershipKept", f"{name} commits {key[0]}-{key[1]}, and is no member since {self._out_since[name]} ms"
            )

    def _check_claims(self, group: Group) -> None:
        """ClaimsAgree: no two members claim one partition, unless it is to be seen what becomes of such claims."""
        guards_off = self._cluster.settings.guards_off
        if len(guards_off) > 1 and "ResetClaimOnLost" in guards_off:
            return
        claimed: dict[Partition, str] = {}
        for member in group.members.values():
            try:
                claim = Subscription.decode(member.metadata(group.protocol or ""))
            except DecodeError:
                continue
            for each in claim.owned:
                other = claimed.setdefault(each, member.member_id)
                if other != member.member_id:
                    self._violated("ClaimsAgree", f"{other} and {member.member_id} claim {each[0]}-{each[1]}")

    def _check_barrier(self, group: Group) -> None:
        """When a generation is complete, none of its dynamic members owns anything (eager)."""
        if ASSIGNORS[group.protocol or "range"].is_cooperative:
            return
        for name, application in self._members.items():
            member = group.members.get(application.member.member_id)
            if member is not None and member.instance_id is None and application.member.owned:
                self._violated("Barrier", f"generation {group.generation_id} begins while {name} owns partitions")

    def _check_assignment(self, group: Group) -> None:
        """AllAssigned: every partition is given to a member."""
        given: set[tuple[str, int]] = set()
        for member in group.members.values():
            try:
                given |= unpack_assignment(member.assignment)
            except DecodeError:
                continue
        cooperative = ASSIGNORS[group.protocol or "range"].is_cooperative
        if self._topic - given and not cooperative:  # a cooperative one withholds what is still to be revoked
            self._violated("AllAssigned", f"generation {group.generation_id} leaves {sorted(self._topic - given)} out")

    def _look_for_ghosts(self, group: Group) -> None:
        """No member of which its process never heard."""
        for member in group.members.values():
            if member.instance_id is None and member.member_id not in self._known:
                self._violated("NoGhosts", f"{member.member_id} is a member, and nobody knows it")

    def settled(self) -> str:
        """What is missing before the group is Stable and each partition owned by one; empty when nothing is."""
        group = self._last
        applications = [
            each
            for each in self._members.values()
            if each.member.state is not MemberState.CLOSED
            and (group is None or group.protocol in {None, *each.assignors})  # others are refused, and ask again
        ]
        owned = sorted(each for application in applications for each in application.member.owned)
        if group is None or group.state is not GroupState.STABLE:
            return f"the group is {group.state if group else 'unknown'}"
        if owned != sorted(self._topic):
            return f"owned are {owned}"
        if set(group.members) != {application.member.member_id for application in applications}:
            return f"the coordinator's members are {sorted(group.members)}"
        return ""

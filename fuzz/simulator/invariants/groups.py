"""Invariants of a consumer group: the state of its coordinator against the state of its members."""

from collections.abc import Mapping
from typing import Final

from highwater.fuzz.simulator.clients.load import GENERATION_STEP, GROUP, MEMBER_NUMBERS, Consumer
from highwater.fuzz.simulator.cluster import OFFSETS_TOPIC, TOPIC, SimulatedCluster
from highwater.fuzz.simulator.invariants.violations import About, SituationCounts, Violated
from highwater.reference.broker import Broker
from highwater.reference.clients.assignors import ASSIGNORS
from highwater.reference.clients.judge import ownership_conflicts
from highwater.reference.clients.member import MemberState
from highwater.reference.clients.subscriptions import Partition, Subscription, unpack_assignment
from highwater.reference.groups.group import Group, GroupState
from highwater.reference.replication.states import PartitionState, state_path
from highwater.reference.wire.errors import DecodeError

OFFSETS_STATE = state_path(OFFSETS_TOPIC, 0)

OF_THE_GROUP: Final = About(group=GROUP)


class ObservedGroup:
    """A group and its members. Only the coordinator that the metadata store names counts; former ones are ignored."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        members: Mapping[str, Consumer],
        situations: SituationCounts,
        violated: Violated,
    ) -> None:
        self._cluster, self._members, self._situations = cluster, members, situations
        self._violated = violated
        self._raw: object = None
        self._coordinator = -1
        self._last: Group | None = None
        self._state = GroupState.EMPTY
        self._generation = 0
        self._stable_generation = 0
        self._known: set[str] = set()  # all member ids that members ever had
        self._acknowledged: dict[Partition, int] = {}
        self._recorded: dict[Partition, int] = {}  # committed offsets at the last check
        self._removed_at_ms: dict[str, int] = {}  # member process -> time in ms at which the group removed it
        self._ids: frozenset[str] = frozenset()
        self._topic = {(TOPIC, number) for number in range(cluster.settings.partitions)}

    def _broken(self, invariant: str, message: str, about: About = OF_THE_GROUP) -> None:
        self._violated(invariant, message, about)

    def _coordinates(self, broker: Broker) -> bool:
        store = self._cluster.store_if_up()
        if store is not None:
            raw = store.peek(OFFSETS_STATE, lambda data, version: (data, version))
            if raw != self._raw:
                self._raw = raw
                self._coordinator = PartitionState.from_bytes(*raw).leader if raw else -1
        return broker.config.broker_id == self._coordinator

    def broker_changed(self, broker: Broker) -> None:
        """Check the group on the broker, if this is the coordinator."""
        group = broker.groups.groups.get(GROUP)
        if group is None or not self._coordinates(broker):
            return
        if group is not self._last:
            if self._last is not None:
                self._situations.add("coordinator change")
                self._check_forgotten(group)
            self._last, self._state, self._generation = group, GroupState.EMPTY, -1
        if group.members.keys() != self._ids:
            self._update_members(group)
        self._check_offsets(group)
        if group.generation_id < self._generation:
            self._broken("OwnershipKept", f"the generation falls from {self._generation} to {group.generation_id}")
        self._generation = group.generation_id
        if group.state is not self._state:
            self._state = group.state
            self._state_changed(group)
        self._check_ghosts(group)

    def committed(self, partitions: frozenset[Partition], offset: int) -> None:
        """Record a commit that the coordinator acknowledged."""
        for key in partitions:
            self._acknowledged[key] = max(offset, self._acknowledged.get(key, -1))

    def member_changed(self) -> None:
        """Check Undisturbed (a member revokes only what was reassigned) and OneOwner (one owner in each generation)."""
        for name, application in self._members.items():
            if application.member.member_id in self._ids:
                self._removed_at_ms.pop(name, None)
            if application.disturbed:
                self._broken(
                    "Undisturbed", f"{name} revokes {sorted(application.disturbed)}, which no assignment took away"
                )
        self._known.update(application.member.member_id for application in self._members.values())
        if self._last is not None:
            for conflict in ownership_conflicts(self._members, self._last):
                self._broken("OneOwner", conflict)

    def _state_changed(self, group: Group) -> None:
        self._situations.add(f"group {group.state}")
        if group.state is GroupState.PREPARING_REBALANCE and self._is_failing_over():
            self._situations.add("rebalance during failover")
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._check_barrier(group)
            self._check_claims(group)
        elif group.state is GroupState.STABLE:
            if group.generation_id < self._stable_generation:
                self._broken(
                    "OwnershipKept", f"generation {group.generation_id} is stable after {self._stable_generation} was"
                )
            self._stable_generation = group.generation_id
            self._check_assignment(group)

    def _is_failing_over(self) -> bool:
        """Return whether some partition has no acting leader."""
        partitions = range(self._cluster.settings.partitions)
        return self._cluster.store_if_up() is not None and any(
            self._cluster.leader(number) < 0 for number in partitions
        )

    def _check_offsets(self, group: Group) -> None:
        """Check that the committed offset of a partition is not below the highest acknowledged commit.

        If messages are duplicated, a late copy of an older commit may lower it within a generation: an OffsetCommit has
        no sequence number.
        """
        unit = GENERATION_STEP if self._situations["duplicate"] else 1
        for key, recorded in group.offsets.items():
            if self._recorded.get(key) != recorded.offset:
                self._check_commit(key, recorded.offset)
        for key, acknowledged in self._acknowledged.items():
            committed = group.offsets.get(key)
            if committed is None or committed.offset // unit < acknowledged // unit:
                found = committed.offset if committed else "none"
                about = About(f"{key[0]}-{key[1]}", group=GROUP)
                self._broken("OwnershipKept", f"{key[0]}-{key[1]} is committed at {found}, after {acknowledged}", about)

    def _update_members(self, group: Group) -> None:
        self._ids = frozenset(group.members)
        for name, application in self._members.items():
            if application.member.member_id in self._ids:
                self._removed_at_ms.pop(name, None)
            else:
                self._removed_at_ms.setdefault(name, self._cluster.world.now_ms)

    def _check_forgotten(self, group: Group) -> None:
        """Check that a failover of the coordinator loses no member that is stable in the stored generation."""
        for name, application in self._members.items():
            member = application.member
            is_stable = member.state is MemberState.STABLE and member.generation_id == group.generation_id
            if (
                is_stable
                and group.members
                and name not in self._removed_at_ms
                and member.member_id not in group.members
            ):
                self._broken(
                    "OwnershipKept", f"{member.member_id} of {name} is unknown after a failover of the coordinator"
                )

    def _check_commit(self, key: Partition, offset: int) -> None:
        """Check that a new commit was sent while its sender was a member: a removed member commits nothing."""
        self._recorded[key] = offset
        name, sent_ms = f"member:{offset % MEMBER_NUMBERS}", offset % GENERATION_STEP // MEMBER_NUMBERS
        if sent_ms > self._removed_at_ms.get(name, sent_ms):
            self._broken(
                "OwnershipKept",
                f"{name} commits {key[0]}-{key[1]}, and has not been a member since {self._removed_at_ms[name]} ms",
            )

    def _check_claims(self, group: Group) -> None:
        """ClaimsAgree: no two members claim one partition.

        Not checked when `ResetClaimOnLost` is off together with another guard: that run needs conflicting claims.
        """
        guards_off = self._cluster.settings.guards_off
        if len(guards_off) > 1 and "ResetClaimOnLost" in guards_off:
            return
        claimed: dict[Partition, str] = {}
        for member in group.members.values():
            try:
                claim = Subscription.decode(member.metadata(group.protocol or ""))
            except DecodeError:
                continue
            for topic, number in claim.owned:
                other = claimed.setdefault((topic, number), member.member_id)
                if other != member.member_id:
                    self._broken("ClaimsAgree", f"{other} and {member.member_id} claim {topic}-{number}")

    def _check_barrier(self, group: Group) -> None:
        """Barrier: with an eager assignor no dynamic member owns a partition when a generation begins."""
        if ASSIGNORS[group.protocol or "range"].is_cooperative:
            return
        for name, application in self._members.items():
            member = group.members.get(application.member.member_id)
            if member is not None and member.instance_id is None and application.member.owned:
                self._broken("Barrier", f"generation {group.generation_id} begins while {name} owns partitions")

    def _check_assignment(self, group: Group) -> None:
        """AllAssigned: every partition is assigned to a member."""
        assigned: set[tuple[str, int]] = set()
        for member in group.members.values():
            try:
                assigned |= unpack_assignment(member.assignment)
            except DecodeError:
                continue
        cooperative = ASSIGNORS[group.protocol or "range"].is_cooperative
        if (
            self._topic - assigned and not cooperative
        ):  # a cooperative assignor withholds partitions until they are revoked
            self._broken(
                "AllAssigned", f"generation {group.generation_id} leaves {sorted(self._topic - assigned)} unassigned"
            )

    def _check_ghosts(self, group: Group) -> None:
        """NoGhosts: every dynamic member id was received by a member process."""
        for member in group.members.values():
            if member.instance_id is None and member.member_id not in self._known:
                self._broken("NoGhosts", f"{member.member_id} is in the group, and no process received this id")

    def unsettled_reason(self) -> str:
        """Return why the group is not Stable with one owner for each partition; empty if it is."""
        group = self._last
        applications = [
            application
            for application in self._members.values()
            if application.member.state is not MemberState.CLOSED
            and (group is None or group.protocol in {None, *application.assignors})  # the others cannot join
        ]
        owned = sorted(partition for application in applications for partition in application.member.owned)
        if group is None or group.state is not GroupState.STABLE:
            return f"the group is {group.state if group else 'unknown'}"
        if owned != sorted(self._topic):
            return f"the members own {owned}"
        if set(group.members) != {application.member.member_id for application in applications}:
            return f"the coordinator has the members {sorted(group.members)}"
        return ""

"""Compute the next current assignment of a member from its target, without I/O (CurrentAssignmentBuilder).

What a member has and its target lacks it revokes first: the coordinator sends the smaller assignment, and the member
stays in its epoch until a heartbeat no longer reports those partitions. Then it gets the epoch of the target, and all
of the target that no other member owns; it waits for the rest.
"""

from collections.abc import Collection, Set
from dataclasses import dataclass, replace

from highwater.reference.groups.consumer.group import Assigned, ConsumerMember, MemberState, Part


@dataclass(frozen=True, slots=True)
class Goal:
    """The target of a member, and the epoch for which it was computed."""

    epoch: int
    target: Set[Part]
    subscribed: Collection[bytes]
    """Ids of the topics that the member subscribes to now: nothing of another topic is assigned (KAFKA-19431)."""


def reconcile(
    member: ConsumerMember, goal: Goal, taken: Collection[Part], reported: Collection[Part] | None
) -> ConsumerMember:
    """Return the member one step nearer to its goal, or the same member if it can make none.

    `taken` are the partitions that other members own. `reported` is what the member says that it owns; None says
    nothing, so that no revocation is complete.
    """
    if member.is_reconciled_to(goal.epoch):
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(member.pending_revocation, reported):
        return member
    target = {part for part in goal.target if part[0] in goal.subscribed}
    kept = {part: epoch for part, epoch in member.assigned.items() if part in target}
    revoked = {part: epoch for part, epoch in member.assigned.items() if part not in target}
    if revoked and _still_owns(revoked, reported):
        state = MemberState.UNREVOKED_PARTITIONS
        return member.with_epoch(member.epoch, state=state, assigned=kept, pending_revocation=revoked)
    missing = target - kept.keys()
    unreleased = {part for part in missing if part in taken}
    return member.with_epoch(
        goal.epoch,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        assigned={**kept, **dict.fromkeys(sorted(missing - unreleased), goal.epoch)},
        pending_revocation={},
    )


def leave_for_a_while(member: ConsumerMember, epoch: int) -> ConsumerMember:
    """Return the static member that keeps its assignment for its next life, and has revoked what it had to."""
    revoked = member.state is MemberState.UNREVOKED_PARTITIONS
    state = MemberState.STABLE if revoked else member.state
    return replace(member, epoch=epoch, state=state, pending_revocation={})


def _still_owns(parts: Assigned, reported: Collection[Part] | None) -> bool:
    return reported is None or any(part in parts for part in reported)

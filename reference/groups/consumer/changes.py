"""Translate between the state of a consumer group and its records (GroupCoordinatorRecordHelpers, replay).

`apply` changes the state as a record says. It is the only way: a coordinator applies what it writes, and the next one
applies what it reads.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from highwater.reference.groups.consumer import records
from highwater.reference.groups.consumer.group import (
    Assigned,
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Part,
    ResolvedPattern,
)
from highwater.reference.groups.consumer.records import Change, CurrentTopicPartitions, TargetTopicPartitions

CODES: Final = {
    MemberState.STABLE: 0,
    MemberState.UNREVOKED_PARTITIONS: 1,
    MemberState.UNRELEASED_PARTITIONS: 2,
}
STATES: Final = {code: state for state, code in CODES.items()}


# --------------------------------------------------------------------------------------------------
# One function for each type of record. A record of an assignment may come before that of its member: compaction keeps
# the newest record of a key, which a member that changed its subscription later has behind its assignment.


def _set_epoch(group: ConsumerGroup, _: Any, value: records.ConsumerGroupMetadataValue | None) -> None:
    found = value or records.ConsumerGroupMetadataValue()
    group.epoch, group.metadata_hash = found.epoch, found.metadata_hash


def _set_member(
    group: ConsumerGroup,
    key: records.ConsumerGroupMemberMetadataKey,
    value: records.ConsumerGroupMemberMetadataValue | None,
) -> None:
    if value is None:
        group.members.pop(key.member_id, None)
        return
    classic = value.classic_member_metadata
    group.members[key.member_id] = replace(
        group.members.get(key.member_id) or ConsumerMember(key.member_id),
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topics=value.subscribed_topic_names,
        pattern=value.subscribed_topic_regex or "",
        assignor=value.server_assignor,
        classic=None if classic is None else ClassicMember(
            classic.session_timeout_ms, tuple((each.name, each.metadata) for each in classic.supported_protocols)
        ),
    )  # fmt: skip


def _set_target_epoch(
    group: ConsumerGroup, _: Any, value: records.ConsumerGroupTargetAssignmentMetadataValue | None
) -> None:
    found = value or records.ConsumerGroupTargetAssignmentMetadataValue()
    group.assignment_epoch, group.assignment_ms = found.assignment_epoch, found.assignment_timestamp


def _set_target(
    group: ConsumerGroup,
    key: records.ConsumerGroupTargetAssignmentMemberKey,
    value: records.ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        parts = ((topic.topic_id, number) for topic in value.topic_partitions for number in topic.partitions)
        group.target[key.member_id] = frozenset(parts)


def _set_current(
    group: ConsumerGroup,
    key: records.ConsumerGroupCurrentMemberAssignmentKey,
    value: records.ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    """Without a value the member has nothing, and may join again (consumer group replay of a tombstone)."""
    if value is None and key.member_id not in group.members:
        return
    found = value or records.ConsumerGroupCurrentMemberAssignmentValue()
    epoch = found.member_epoch
    group.members[key.member_id] = replace(
        group.members.get(key.member_id) or ConsumerMember(key.member_id),
        state=STATES[found.state],
        epoch=epoch,
        previous_epoch=found.previous_member_epoch,
        assigned=_assigned(found.assigned_partitions, epoch),
        pending_revocation=_assigned(found.partitions_pending_revocation, epoch),
    )


def _set_pattern(
    group: ConsumerGroup,
    key: records.ConsumerGroupRegularExpressionKey,
    value: records.ConsumerGroupRegularExpressionValue | None,
) -> None:
    if value is None:
        group.patterns.pop(key.regular_expression, None)
    else:
        found = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
        group.patterns[key.regular_expression] = found


APPLY: Final[dict[type[Any], Any]] = {
    records.ConsumerGroupMetadataKey: _set_epoch,
    records.ConsumerGroupPartitionMetadataKey: lambda group, key, value: None,
    records.ConsumerGroupMemberMetadataKey: _set_member,
    records.ConsumerGroupTargetAssignmentMetadataKey: _set_target_epoch,
    records.ConsumerGroupTargetAssignmentMemberKey: _set_target,
    records.ConsumerGroupCurrentMemberAssignmentKey: _set_current,
    records.ConsumerGroupRegularExpressionKey: _set_pattern,
}


def apply(group: ConsumerGroup, change: Change) -> None:
    """Change the state as a record says (GroupMetadataManager.replay)."""
    APPLY[type(change.key)](group, change.key, change.value)


# --------------------------------------------------------------------------------------------------
# From state to records.


def group_change(group_id: str, epoch: int, metadata_hash: int) -> Change:
    value = records.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Change(records.ConsumerGroupMetadataKey(group_id=group_id), value)


def target_epoch_change(group_id: str, epoch: int, timestamp_ms: int) -> Change:
    value = records.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return Change(records.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_change(group_id: str, member_id: str, target: Iterable[Part]) -> Change:
    topics = tuple(
        TargetTopicPartitions(topic_id=topic, partitions=tuple(numbers)) for topic, numbers in by_topic(target).items()
    )
    key = records.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return Change(key, records.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics))


def member_change(group_id: str, member: ConsumerMember) -> Change:
    value = records.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None if member.classic is None else _stored_classic(member.classic),
    )
    return Change(records.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def _stored_classic(member: ClassicMember) -> records.ClassicMemberMetadata:
    protocols = (records.ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols)
    return records.ClassicMemberMetadata(
        session_timeout_ms=member.session_timeout_ms, supported_protocols=tuple(protocols)
    )


def current_change(group_id: str, member: ConsumerMember) -> Change:
    value = records.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=CODES[member.state],
        assigned_partitions=_stored(member.assigned),
        partitions_pending_revocation=_stored(member.pending_revocation),
    )
    return Change(records.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def pattern_change(group_id: str, pattern: str, resolved: ResolvedPattern | None) -> Change:
    key = records.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    value = resolved and records.ConsumerGroupRegularExpressionValue(
        topics=tuple(sorted(resolved.topics)), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return Change(key, value)


def by_topic(parts: Iterable[Part]) -> dict[bytes, list[int]]:
    """Return topic id -> partitions, both sorted."""
    found: dict[bytes, list[int]] = {}
    for topic, number in sorted(parts):
        found.setdefault(topic, []).append(number)
    return found


def _stored(parts: Assigned) -> tuple[CurrentTopicPartitions, ...]:
    return tuple(
        CurrentTopicPartitions(
            topic_id=topic,
            partitions=tuple(numbers),
            assignment_epochs=tuple(parts[topic, number] for number in numbers),
        )
        for topic, numbers in by_topic(parts).items()
    )


def _assigned(topics: Iterable[CurrentTopicPartitions], member_epoch: int) -> Assigned:
    """Return the partitions of a record; those that were written before 4.3 get the member's epoch."""
    return {
        (topic.topic_id, number): epoch
        for topic in topics
        for number, epoch in zip(
            topic.partitions, topic.assignment_epochs or (member_epoch,) * len(topic.partitions), strict=True
        )
    }


# --------------------------------------------------------------------------------------------------
# Records that delete.


def group_tombstones(group: ConsumerGroup) -> list[Change]:
    """Return the records that delete the group, those of the members first (createGroupTombstoneRecords)."""
    members = [change for member_id in group.members for change in member_tombstones(group.group_id, member_id)]
    patterns = [pattern_change(group.group_id, pattern, None) for pattern in group.patterns]
    kinds = (records.ConsumerGroupTargetAssignmentMetadataKey, records.ConsumerGroupMetadataKey)
    return members + patterns + [Change(kind(group_id=group.group_id), None) for kind in kinds]


def member_tombstones(group_id: str, member_id: str) -> list[Change]:
    """Return the records that remove a member (GroupMetadataManager.removeMember)."""
    kinds = (
        records.ConsumerGroupCurrentMemberAssignmentKey,
        records.ConsumerGroupTargetAssignmentMemberKey,
        records.ConsumerGroupMemberMetadataKey,
    )
    return [Change(kind(group_id=group_id, member_id=member_id), None) for kind in kinds]

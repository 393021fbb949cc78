"""Convert a classic group of consumers with members to a consumer group, and back (ConsumerGroup.fromClassicGroup).

The assignment of the last generation is kept both ways: it is the target and the current assignment of each member.
"""

from collections.abc import Iterable
from typing import Final

from highwater.reference.groups.consumer.changes import (
    by_topic,
    current_change,
    group_change,
    member_change,
    target_change,
    target_epoch_change,
)
from highwater.reference.groups.consumer.group import ClassicMember, ConsumerMember, Part
from highwater.reference.groups.consumer.records import Change
from highwater.reference.groups.group import Group, GroupState, Member
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.refusals import RefusedRequestError
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerProtocolAssignment,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)

NEWEST_ASSIGNMENT: Final = 3


def changes_of_classic(group: Group, cache: MetadataCache) -> list[Change]:
    """Return the records of a consumer group with the members of a classic one; raises GROUP_ID_NOT_FOUND.

    That is the error for members whose metadata is no subscription, and for assignments with data of a client's
    assignor, which would be lost.
    """
    try:
        members = [_from_classic(group, member, cache) for member in group.members.values()]
    except DecodeError as error:
        raise _inconvertible(group, str(error)) from error
    parts = [part for member in members for part in member.assigned]
    if len(parts) != len(set(parts)):
        raise _inconvertible(group, "its leader has assigned a partition twice")
    changes = [member_change(group.group_id, member) for member in members]
    if members:
        changes.append(group_change(group.group_id, group.generation_id, 0))
    changes += [target_change(group.group_id, member.member_id, member.assigned) for member in members]
    if members:
        changes.append(target_epoch_change(group.group_id, group.generation_id, 0))
    return changes + [current_change(group.group_id, member) for member in members]


def _inconvertible(group: Group, why: str) -> RefusedRequestError:
    message = f"The classic group {group.group_id} cannot become a consumer group: {why}."
    return RefusedRequestError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _from_classic(group: Group, member: Member, cache: MetadataCache) -> ConsumerMember:
    subscription = decode_subscription(member.metadata(group.protocol or "") or member.protocols[0][1])
    assignment = decode_assignment(member.assignment)
    if assignment.user_data:
        raise _inconvertible(group, "an assignment has data of a client's assignor")
    generation = group.generation_id
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        tuple(sorted(set(subscription.topics))),
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
        epoch=generation,
        previous_epoch=generation,
        assigned=dict.fromkeys(sorted(known_parts(assignment.assigned_partitions, cache)), generation),
    )


def become_classic(group: Group, cache: MetadataCache) -> None:
    """Give the members of a consumer group to the classic part of the group (ClassicGroup.fromConsumerGroup)."""
    former = group.consumer
    assert former is not None, "only a consumer group becomes a classic one"
    assert all(member.classic for member in former.members.values()), "all its members use the classic protocol"
    group.generation_id, group.protocol_type = former.epoch, "consumer"
    for member in former.members.values():
        classic = member.classic or ClassicMember(0, ())
        group.add(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                classic.protocols,
                encoded_assignment(member, cache),
            )
        )
    group.protocol, group.state, group.consumer = group.choose_protocol(), GroupState.STABLE, None


def known_parts(topics: Iterable[TopicPartition], cache: MetadataCache) -> frozenset[Part]:
    """Return the partitions of topics that this broker knows, with topic ids."""
    known = ((each, cache.topics[each.topic]) for each in topics if each.topic in cache.topics)
    return frozenset((topic.topic_id, number) for each, topic in known for number in each.partitions)


def encoded_assignment(member: ConsumerMember, cache: MetadataCache) -> bytes:
    """Return the assignment as SyncGroup has it, in the version of the member's subscription."""
    classic = member.classic
    version = int.from_bytes(classic.protocols[0][1][:2], "big") if classic is not None else NEWEST_ASSIGNMENT
    named = ((cache.name_of(topic), numbers) for topic, numbers in by_topic(member.assigned).items())
    topics = (TopicPartition(topic=name, partitions=tuple(numbers)) for name, numbers in named if name is not None)
    assignment = ConsumerProtocolAssignment(assigned_partitions=tuple(topics))
    return encode_assignment(assignment, min(version, NEWEST_ASSIGNMENT))

"""Serve ConsumerGroupDescribe (key 69), and describe a consumer group for it (ConsumerGroup.asDescribedGroup).

A group is described as its committed records leave it: a failover cannot undo what a response has shown.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.groups.consumer.changes import by_topic
from highwater.reference.groups.consumer.group import ConsumerGroup, ConsumerMember, Part
from highwater.reference.groups.offsets import GROUP_OPERATIONS
from highwater.reference.groups.store import GroupStore
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.consumer_groups import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

MEMBER_TYPE_SINCE: Final = 1
CLASSIC, CONSUMER, NO_TYPE = 0, 1, -1


class ConsumerGroupDescriber:
    """Handler of ConsumerGroupDescribe."""

    def __init__(self, context: Context, store: GroupStore, cache: MetadataCache) -> None:
        self._context, self._store, self._cache = context, store, cache

    async def describe(self, request: Request) -> ConsumerGroupDescribeResponse:
        """Return epochs, members and assignments of each group; a classic group is not found."""
        body: ConsumerGroupDescribeRequest = request.body
        groups = [self._describe(group_id) for group_id in body.group_ids]
        if body.include_authorized_operations:
            groups = [replace(group, authorized_operations=GROUP_OPERATIONS) for group in groups]
        if request.api_version < MEMBER_TYPE_SINCE:
            groups = [replace(each, members=tuple(_untyped(member) for member in each.members)) for each in groups]
        return ConsumerGroupDescribeResponse(groups=tuple(groups))

    def _describe(self, group_id: str) -> DescribedGroup:
        error = self._store.check(group_id)
        if error is not ErrorCode.NONE:
            return DescribedGroup(error_code=error, group_id=group_id)
        group = self._store.groups.get(group_id)
        if group is None or group.consumer is None or group.consumer.committed is None:
            return DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} is not a consumer group.",
                group_id=group_id,
            )
        return self._described(group.consumer.committed)

    def _described(self, group: ConsumerGroup) -> DescribedGroup:
        """Return the group with the topic names that this broker knows."""
        assignors = self._context.config.group_consumer_assignors
        return DescribedGroup(
            group_id=group.group_id,
            group_state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.preferred_assignor(assignors),
            members=tuple(_described_member(group, member, self._cache) for member in group.members.values()),
        )


def _described_member(group: ConsumerGroup, member: ConsumerMember, cache: MetadataCache) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.pattern or None,
        assignment=_assignment(member.assigned, cache),
        target_assignment=_assignment(group.target.get(member.member_id, ()), cache),
        member_type=CLASSIC if member.classic else CONSUMER,
    )


def _assignment(parts: Iterable[Part], cache: MetadataCache) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=tuple(numbers))
            for topic_id, numbers in by_topic(parts).items()
            if (name := cache.name_of(topic_id)) is not None
        )
    )


def _untyped(member: Member) -> Member:
    return replace(member, member_type=NO_TYPE)

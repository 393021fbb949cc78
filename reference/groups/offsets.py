"""Serve OffsetCommit, OffsetFetch, OffsetDelete, DescribeGroups, ListGroups and DeleteGroups."""

from collections.abc import Iterable
from dataclasses import replace

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.groups.consumer.checks import commit_error, fetch_error
from highwater.reference.groups.coordinator import GroupCoordinator
from highwater.reference.groups.group import CommittedOffset, Group, GroupState
from highwater.reference.groups.store import GroupStore
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from highwater.reference.wire.messages.consumer_groups import decode_subscription
from highwater.reference.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

GROUPS_SINCE = 8
ERROR_SINCE = 2
UNKNOWN_GROUP_ERROR_SINCE = 6
# Read, delete and describe: without an authorizer every operation is allowed (KIP-430).
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8))
RequestedTopics = list[tuple[str, tuple[int, ...]]]
NO_OFFSET = CommittedOffset(-1, -1, "")
CONSUMER_PROTOCOL = "consumer"
CLASSIC = "classic"


class OffsetsCoordinator:
    """Handlers for committed offsets and for the admin requests about groups."""

    def __init__(
        self, context: Context, store: GroupStore, coordinator: GroupCoordinator, cache: MetadataCache
    ) -> None:
        self._context, self._store, self._coordinator, self._cache = context, store, coordinator, cache

    # -- commit and fetch --------------------------------------------------------------------------

    async def commit(self, request: Request) -> OffsetCommitResponse:
        """Write the valid offsets in one batch; an invalid partition does not affect the others."""
        body: OffsetCommitRequest = request.body
        keys = [(topic.name, partition.partition_index) for topic in body.topics for partition in topic.partitions]
        error = self.check_member(
            body.group_id, body.member_id, body.group_instance_id, body.generation_id_or_member_epoch, keys,
            version=request.api_version,
        )  # fmt: skip
        group = self._store.groups.get(body.group_id)
        self._store.trace.commit(None if group is None or group.consumer is not None else group, body, error)
        valid: dict[tuple[str, int], CommittedOffset] = {}
        errors: dict[tuple[str, int], ErrorCode] = {}
        for topic in body.topics:
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                metadata = partition.committed_metadata or ""
                errors[key] = self.check_partition(key, metadata)
                if error is not ErrorCode.NONE and errors[key] is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    errors[key] = error
                if errors[key] is ErrorCode.NONE:
                    valid[key] = CommittedOffset(
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        metadata,
                        expire_timestamp=self._expire_timestamp(body.retention_time_ms),
                    )
        if valid:
            written = await self._store.save_offsets(body.group_id, valid)
            errors.update(dict.fromkeys(valid, written))
        return OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetCommitResponsePartition(
                            partition_index=partition.partition_index,
                            error_code=errors[topic.name, partition.partition_index],
                        )
                        for partition in topic.partitions
                    ),
                )
                for topic in body.topics
            )
        )

    def check_member(
        self, group_id: str, member_id: str, instance_id: str | None, epoch: int, keys: Iterable[tuple[str, int]], *,
        version: int | None,
    ) -> ErrorCode:  # fmt: skip
        """Return NONE if the client may commit offsets of these partitions; `version` None means in a transaction.

        `epoch` is the generation of a classic group.
        """
        error, group = self._store.check(group_id, may_be_empty=version is not None), self._store.groups.get(group_id)
        if error is ErrorCode.NONE and group is not None and group.consumer is not None:
            topics = self._cache.topics
            parts = [(topics[topic].topic_id, number) for topic, number in keys if topic in topics]
            return commit_error(group.consumer, member_id, instance_id, epoch, parts, version=version)
        if version is None:
            return self._coordinator.check_transactional_commit(group_id, member_id, instance_id, epoch)
        return self._coordinator.check_commit(group_id, member_id, instance_id, epoch, version)

    def _expire_timestamp(self, retention_ms: int) -> int:
        """Return the expiry time of an offset with a retention of its own (OffsetCommit 2 to 4), else -1."""
        return -1 if retention_ms < 0 else self._context.now.wall_ms + retention_ms

    def check_partition(self, key: tuple[str, int], metadata: str) -> ErrorCode:
        """Return NONE if the partition exists and the metadata is not too large."""
        error = self.check_known(key)
        return self.check_metadata(metadata) if error is ErrorCode.NONE else error

    def check_known(self, key: tuple[str, int]) -> ErrorCode:
        """Return NONE if the partition exists."""
        return ErrorCode.NONE if self._cache.knows(*key) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def check_metadata(self, metadata: str) -> ErrorCode:
        """Return NONE if the metadata of an offset is not too large, in UTF-16 units as Java counts."""
        is_large = len(metadata.encode("utf-16-le")) // 2 > self._context.config.offset_metadata_max_bytes
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_large else ErrorCode.NONE

    async def fetch(self, request: Request) -> OffsetFetchResponse:
        """Return committed offsets: of one group, or from version 8 on of several (KIP-709)."""
        body: OffsetFetchRequest = request.body
        if request.api_version >= GROUPS_SINCE:
            found_groups = [self._fetch_group_alone(group, require_stable=body.require_stable) for group in body.groups]
            return OffsetFetchResponse(groups=tuple(found_groups))
        requested = None if body.topics is None else [(t.name, t.partition_indexes) for t in body.topics]
        found = self._fetch_group(body.group_id, requested, require_stable=body.require_stable)
        error = ErrorCode(found.error_code)
        return OffsetFetchResponse(
            error_code=error,
            topics=tuple(
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetFetchResponsePartition(
                            partition_index=p.partition_index,
                            committed_offset=p.committed_offset,
                            committed_leader_epoch=p.committed_leader_epoch,
                            metadata=p.metadata,
                            error_code=p.error_code,
                        )
                        for p in topic.partitions
                    ),
                )
                for topic in found.topics
            ),
        )

    def _fetch_group_alone(self, group: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """Return the part of a response for one group of several; its error is not repeated for the partitions."""
        error = self._check_fetch(group)
        if error is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)
        requested = None if group.topics is None else [(topic.name, topic.partition_indexes) for topic in group.topics]
        found = self._fetch_group(group.group_id, requested, require_stable=require_stable)
        return found if found.error_code == ErrorCode.NONE else replace(found, topics=())

    def _check_fetch(self, asked: OffsetFetchRequestGroup) -> ErrorCode:
        """Return NONE if the client may fetch the offsets of the group; only consumer groups have member epochs."""
        error = self._store.check(asked.group_id, may_be_empty=True)
        group = self._store.groups.get(asked.group_id)
        if error is not ErrorCode.NONE or group is None or group.consumer is None or group.consumer.committed is None:
            return error
        return fetch_error(group.consumer.committed, asked.member_id, asked.member_epoch)

    def _fetch_group(
        self, group_id: str, requested: RequestedTopics | None, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """Return the committed offsets of one group; -1 without an error if none was committed.

        Without `requested`, all offsets of the group are returned. With `require_stable`, an offset that an open
        transaction may change is UNSTABLE_OFFSET_COMMIT (KIP-447).
        """
        error = self._store.check(group_id, may_be_empty=True)
        must_be_stable = require_stable and self._context.guards.await_stable_offsets
        group = self._store.groups.get(group_id) or Group(group_id)
        if requested is None:
            topics: dict[str, list[int]] = {}
            for topic, partition in group.offsets:
                topics.setdefault(topic, []).append(partition)
            requested = [(topic, tuple(partitions)) for topic, partitions in topics.items()]

        def committed_offset(topic: str, partition: int) -> OffsetFetchResponsePartitions:
            partition_error = error
            if error is ErrorCode.NONE and must_be_stable and group.is_unstable((topic, partition)):
                partition_error = ErrorCode.UNSTABLE_OFFSET_COMMIT
            known = group.offsets.get((topic, partition), NO_OFFSET) if partition_error is ErrorCode.NONE else NO_OFFSET
            return OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=known.offset,
                committed_leader_epoch=known.leader_epoch,
                metadata=known.metadata,
                error_code=partition_error,
            )

        return OffsetFetchResponseGroup(
            group_id=group_id,
            error_code=error,
            topics=tuple(
                OffsetFetchResponseTopics(
                    name=topic, partitions=tuple(committed_offset(topic, number) for number in partitions)
                )
                for topic, partitions in requested
            ),
        )

    # -- listings --------------------------------------------------------------------------------

    async def describe(self, request: Request) -> DescribeGroupsResponse:
        """Return state, protocol and members of each group."""
        body: DescribeGroupsRequest = request.body
        groups = [self._describe_one(group_id, request.api_version) for group_id in body.groups]
        if body.include_authorized_operations:
            groups = [replace(group, authorized_operations=GROUP_OPERATIONS) for group in groups]
        return DescribeGroupsResponse(groups=tuple(groups))

    def _describe_one(self, group_id: str, version: int) -> DescribedGroup:
        error = self._store.check(group_id, may_be_empty=True)
        group = self._store.groups.get(group_id)
        if error is not ErrorCode.NONE:
            return DescribedGroup(error_code=error, group_id=group_id)
        if group is None or group.consumer is not None:
            found = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD)
            if version < UNKNOWN_GROUP_ERROR_SINCE:
                return found
            message = f"Group {group_id} is not a classic group." if group else f"Group {group_id} not found."
            return replace(found, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
        protocol = group.protocol if group.state is GroupState.STABLE else ""
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state,
            protocol_type=group.protocol_type,
            protocol_data=protocol or "",
            members=tuple(
                DescribedGroupMember(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    member_metadata=m.metadata(protocol or ""),
                    member_assignment=m.assignment,
                )
                for m in group.members.values()
            ),
        )

    async def list(self, request: Request) -> ListGroupsResponse:
        """Return the groups of this coordinator that match the state and type filters (KIP-518, KIP-848)."""
        body: ListGroupsRequest = request.body
        error = self._store.coordinated.list_error()
        if error is not ErrorCode.NONE:
            return ListGroupsResponse(error_code=error)
        states = {state.lower() for state in body.states_filter}
        states = {state.strip() for state in states}  # as Apache Kafka does since 4.0
        types = {kind.lower() for kind in body.types_filter}
        return ListGroupsResponse(
            groups=tuple(
                listed
                for listed in map(_listed, self._store.groups.values())
                if listed is not None
                if (not states or listed.group_state.lower() in states) and (not types or listed.group_type in types)
            )
        )

    async def delete(self, request: Request) -> DeleteGroupsResponse:
        """Delete empty groups with their offsets."""
        body: DeleteGroupsRequest = request.body
        results = [
            DeletableGroupResult(group_id=group_id, error_code=await self._delete_one(group_id))
            for group_id in dict.fromkeys(body.groups_names)
        ]
        return DeleteGroupsResponse(results=tuple(results))

    async def delete_offsets(self, request: Request) -> OffsetDeleteResponse:
        """Delete offsets, except those of topics that a member of the group subscribes to (KIP-496)."""
        body: OffsetDeleteRequest = request.body
        error = self._store.check(body.group_id)
        group = self._store.groups.get(body.group_id)
        if error is ErrorCode.NONE and group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        if error is not ErrorCode.NONE or group is None:
            return OffsetDeleteResponse(error_code=error)
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL:
            return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
        requested = [(topic.name, p.partition_index) for topic in body.topics for p in topic.partitions]
        valid = [key for key in requested if not may_be_subscribed(group, key[0]) and self._cache.knows(*key)]
        errors = dict.fromkeys(requested, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        errors |= {key: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for key in requested if not self._cache.knows(*key)}
        committed = [key for key in valid if key in group.offsets or group.is_unstable(key)]
        written = await self._store.delete_offsets(group, committed) if committed else ErrorCode.NONE
        errors |= dict.fromkeys(valid, written)
        return OffsetDeleteResponse(
            topics=tuple(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetDeleteResponsePartition(
                            partition_index=p.partition_index, error_code=errors[topic.name, p.partition_index]
                        )
                        for p in topic.partitions
                    ),
                )
                for topic in body.topics
            )
        )

    async def _delete_one(self, group_id: str) -> ErrorCode:
        error = self._store.check(group_id, may_be_empty=True)
        group = self._store.groups.get(group_id)
        if error is not ErrorCode.NONE:
            return error
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        return await self._store.delete_group(group)


def _listed(group: Group) -> ListedGroup | None:
    """Return the group for ListGroups; None for a consumer group of which nothing is committed yet."""
    if group.consumer is None:
        return ListedGroup(
            group_id=group.group_id, protocol_type=group.protocol_type, group_state=group.state, group_type=CLASSIC
        )
    if group.consumer.committed is None:
        return None
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=CONSUMER_PROTOCOL,
        group_state=group.consumer.committed.state,
        group_type=CONSUMER_PROTOCOL,
    )


def may_be_subscribed(group: Group, topic: str) -> bool:
    """Return whether a member of a consumer group subscribes to a topic, or has a subscription that is not known.

    It is known once the group has a protocol, and if it can be decoded (ClassicGroup.isSubscribedToTopic).
    """
    if group.consumer is not None:
        return topic in group.consumer.all_subscribed_topics()
    if group.protocol_type != CONSUMER_PROTOCOL or not group.members:
        return False
    if not group.protocol:
        return True
    try:
        return any(
            topic in decode_subscription(each.metadata(group.protocol)).topics for each in group.members.values()
        )
    except DecodeError:
        return True

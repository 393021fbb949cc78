"""A model of the committed offsets of one group, and the replies of OffsetCommit, OffsetFetch and OffsetDelete."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from highwater.conformance.models.comparison import one_of
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

Key = tuple[str, int]
"""Topic and partition."""
EPOCHS_SINCE: Final = 6
"""First version of OffsetCommit with leader epochs (KIP-320)."""
MANY_GROUPS: Final = 8
IDS_SINCE: Final = 10
NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Commit:
    """One partition of an OffsetCommit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


@dataclass(frozen=True, slots=True)
class Existing:
    """The topics that exist, with their ids and numbers of partitions, and the limit of the metadata."""

    partitions: Mapping[str, int]
    ids: Mapping[str, bytes]
    metadata_limit: int

    def has(self, topic: str, partition: int) -> bool:
        return 0 <= partition < self.partitions.get(topic, 0)

    def unknown_error(self, topic: str, version: int) -> int:
        """Return the error for a partition that does not exist."""
        by_id = version >= IDS_SINCE and topic not in self.partitions
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def named(self, topic: str, version: int) -> dict[str, Any]:
        """Return the fields that name a topic in a version."""
        return {"topic_id": self.ids[topic]} if version >= IDS_SINCE else {"name": topic}


@dataclass(slots=True)
class Offsets:
    """What is stored: offset, leader epoch and metadata by topic and partition.

    `pending` are the commits of open transactions, by transactional id; their partitions are unstable (KIP-447). Each
    commit has a number: one that ends as pending does not replace a commit that was written after it.
    """

    stored: dict[Key, tuple[int, int, str]] = field(default_factory=dict)
    pending: dict[str, dict[Key, tuple[int, Commit]]] = field(default_factory=dict)
    _numbers: dict[Key, int] = field(default_factory=dict)
    _written: int = 0

    @property
    def unstable(self) -> set[Key]:
        """Return the partitions with a commit in an open transaction."""
        return {key for commits in self.pending.values() for key in commits}

    def store(self, commits: Iterable[Commit], existing: Existing, version: int) -> None:
        """Store the commits that are valid; of two for one partition the last one counts."""
        for each in commits:
            if not part_error(each, existing, version):
                epoch = each.leader_epoch if version >= EPOCHS_SINCE else NONE
                self._store(self._next(), replace(each, leader_epoch=epoch))

    def _store(self, number: int, commit: Commit) -> None:
        key = commit.topic, commit.partition
        if self._numbers.get(key, 0) < number:
            self.stored[key] = (commit.offset, commit.leader_epoch, commit.metadata or "")
            self._numbers[key] = number

    def _next(self) -> int:
        self._written += 1
        return self._written

    def store_pending(self, transactional_id: str, commits: Iterable[Commit]) -> None:
        """Keep commits of a transaction until it ends."""
        for each in commits:
            self.pending.setdefault(transactional_id, {})[each.topic, each.partition] = (self._next(), each)

    def end_transaction(self, transactional_id: str, *, committed: bool) -> None:
        """Store what is pending, unless a later commit is stored, or forget it."""
        for number, each in self.pending.pop(transactional_id, {}).values():
            if committed:
                self._store(number, each)

    def delete(self, keys: Iterable[Key]) -> None:
        for key in list(keys):
            self.stored.pop(key, None)
            self._numbers.pop(key, None)

    def fetched(self, key: Key) -> tuple[int, int, str]:
        return self.stored.get(key, (NONE, NONE, ""))


def part_error(commit: Commit, existing: Existing, version: int) -> int:
    if not existing.has(commit.topic, commit.partition):
        return existing.unknown_error(commit.topic, version)
    too_large = len(commit.metadata or "") > existing.metadata_limit  # in characters, as Java counts them
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else 0


# -- OffsetCommit ------------------------------------------------------------------------------------


def grouped(keys: Iterable[Key]) -> dict[str, list[int]]:
    """Return the partitions by topic, each once, in their order."""
    found: dict[str, list[int]] = {}
    for topic, partition in dict.fromkeys(keys):
        found.setdefault(topic, []).append(partition)
    return found


def commit_topics(commits: Sequence[Commit], existing: Existing, version: int) -> tuple[OffsetCommitRequestTopic, ...]:
    """Return the topics of the request, one for each run of commits of the same topic."""
    runs: list[list[Commit]] = []
    for each in commits:
        if not runs or runs[-1][0].topic != each.topic:
            runs.append([])
        runs[-1].append(each)
    return tuple(
        OffsetCommitRequestTopic(
            **existing.named(run[0].topic, version), partitions=tuple(_commit_part(each, version) for each in run)
        )
        for run in runs
    )


def _commit_part(commit: Commit, version: int) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=commit.partition, committed_offset=commit.offset,
        committed_leader_epoch=commit.leader_epoch if version >= EPOCHS_SINCE else NONE,
        committed_metadata=commit.metadata,
    )  # fmt: skip


def commit_reply(commits: Sequence[Commit], error: int, existing: Existing, version: int) -> OffsetCommitResponse:
    """Return the reply; `error` is that of the group, for the partitions that exist."""
    errors = {(each.topic, each.partition): _error(each, error, existing, version) for each in commits}
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                **existing.named(topic, version),
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=number, error_code=errors[topic, number])
                    for number in partitions
                ),
            )
            for topic, partitions in grouped(errors).items()
        )
    )


def _error(commit: Commit, error: int, existing: Existing, version: int) -> int:
    if not existing.has(commit.topic, commit.partition):
        return existing.unknown_error(commit.topic, version)
    return error or part_error(commit, existing, version)


# -- OffsetFetch -------------------------------------------------------------------------------------


def fetch_request(
    groups: Mapping[str, Sequence[Key] | None], existing: Existing, version: int, **fields: Any
) -> OffsetFetchRequest:
    """Request partitions of groups, or all of them if they are None; below version 8 of a single group."""
    if version >= MANY_GROUPS:
        return OffsetFetchRequest(
            groups=tuple(
                OffsetFetchRequestGroup(group_id=group, topics=_fetch_topics(keys, existing, version))
                for group, keys in groups.items()
            ),
            **fields,
        )
    ((group, keys),) = groups.items()
    topics = (
        None
        if keys is None
        else tuple(
            OffsetFetchRequestTopic(name=topic, partition_indexes=tuple(numbers))
            for topic, numbers in grouped(keys).items()
        )
    )
    return OffsetFetchRequest(group_id=group, topics=topics, **fields)


def _fetch_topics(
    keys: Sequence[Key] | None, existing: Existing, version: int
) -> tuple[OffsetFetchRequestTopics, ...] | None:
    if keys is None:
        return None
    return tuple(
        OffsetFetchRequestTopics(**existing.named(topic, version), partition_indexes=tuple(numbers))
        for topic, numbers in grouped(keys).items()
    )


def fetch_reply(
    groups: Mapping[str, tuple[Offsets, Sequence[Key] | None]], existing: Existing, version: int, *,
    stable: bool = False,
) -> OffsetFetchResponse:  # fmt: skip
    """Return the reply for partitions of groups, or for all stored ones if they are None.

    `stable`: a partition with a pending commit has UNSTABLE_OFFSET_COMMIT instead of its offset.
    """
    wanted = {group: (offsets, offsets.stored if keys is None else keys) for group, (offsets, keys) in groups.items()}
    if version >= MANY_GROUPS:
        return OffsetFetchResponse(
            groups=tuple(
                OffsetFetchResponseGroup(
                    group_id=group, topics=_fetched_topics(offsets, keys, existing, version, stable=stable)
                )
                for group, (offsets, keys) in wanted.items()
            )
        )
    ((offsets, keys),) = wanted.values()
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic,
                partitions=tuple(
                    OffsetFetchResponsePartition(**_fetched(offsets, (topic, number), 0, stable=stable))
                    for number in numbers
                ),
            )
            for topic, numbers in grouped(keys).items()
        )
    )


def _fetched_topics(
    offsets: Offsets, keys: Iterable[Key], existing: Existing, version: int, *, stable: bool
) -> tuple[OffsetFetchResponseTopics, ...]:
    return tuple(
        OffsetFetchResponseTopics(
            **existing.named(topic, version),
            partitions=tuple(
                OffsetFetchResponsePartitions(
                    **_fetched(
                        offsets, (topic, number),
                        ErrorCode.UNKNOWN_TOPIC_ID if version >= IDS_SINCE and topic not in existing.partitions else 0,
                        stable=stable,
                    )
                )
                for number in numbers
            ),
        )
        for topic, numbers in grouped(keys).items()
    )  # fmt: skip


def _fetched(offsets: Offsets, key: Key, error: int, *, stable: bool) -> dict[str, Any]:
    offset, epoch, metadata = offsets.fetched(key)
    if stable and not error and key in offsets.unstable:
        error, offset, epoch = ErrorCode.UNSTABLE_OFFSET_COMMIT, NONE, NONE
    text: Any = one_of("", None) if error else metadata
    return {
        "partition_index": key[1], "committed_offset": offset, "committed_leader_epoch": epoch, "metadata": text,
        "error_code": error,
    }  # fmt: skip


# -- OffsetDelete ------------------------------------------------------------------------------------


def delete_topics(keys: Sequence[Key]) -> tuple[OffsetDeleteRequestTopic, ...]:
    return tuple(
        OffsetDeleteRequestTopic(
            name=topic, partitions=tuple(OffsetDeleteRequestPartition(partition_index=number) for number in numbers)
        )
        for topic, numbers in grouped(keys).items()
    )


def delete_reply(errors: Mapping[Key, int]) -> OffsetDeleteResponse:
    """Return the reply of a group that exists."""
    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic,
                partitions=tuple(
                    OffsetDeleteResponsePartition(partition_index=number, error_code=errors[topic, number])
                    for number in numbers
                ),
            )
            for topic, numbers in grouped(errors).items()
        )
    )

"""Have the broker use the memory that it has freed, so that what a request keeps shows in the resident memory.

A process that was just started has freed some megabytes that it does not return to the system (4.5 MB in the
reference), and what thousands of requests keep fits into them. Committed offsets are kept legally: groups of their own
commit offsets with metadata until the memory grows with each commit.
"""

import time
from collections.abc import Callable
from itertools import count, cycle
from typing import Final

from highwater.fuzz.wire.generate.requests import TOPICS
from highwater.fuzz.wire.oracles.states import COMMIT_VERSION, REPLY_S
from highwater.reference.client.connection import Connection
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest

SIZES: Final = (4_000, 1_000, 2_000, 600)
"""Characters of metadata, at most 4,096 (`offset.metadata.max.bytes`): freed blocks have any size."""
COMMITS_AT_ONCE, COMMITS_MAX = 40, 2_000
GROWS_IN_TURN: Final = 3
GROUP: Final = "freed-memory"
COORDINATOR_VERSION: Final = 0
READY_S, POLL_S = 3.0, 0.05
_numbers = count(1)


def use_freed_memory(connection: Connection, memory: Callable[[], int]) -> bool:
    """Commit offsets until the memory grows with them, at most COMMITS_MAX times; return True if it does."""
    grown = 0
    if not _is_coordinator(connection):
        return False
    for _ in range(0, COMMITS_MAX, COMMITS_AT_ONCE):
        before = memory()
        kept = sum(_commit(connection, size) for _, size in zip(range(COMMITS_AT_ONCE), cycle(SIZES), strict=False))
        grown = grown + 1 if memory() - before > kept / 2 else 0
        if grown == GROWS_IN_TURN:
            return True
    return False


def _is_coordinator(connection: Connection) -> bool:
    """Return True once the broker accepts commits; the first FindCoordinator creates the topic for them."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        connection.exchange(FindCoordinatorRequest(key=GROUP), COORDINATOR_VERSION, REPLY_S)
        if connection.exchange(_request(GROUP, ""), COMMIT_VERSION, REPLY_S).topics[0].partitions[0].error_code == 0:
            return True
        time.sleep(POLL_S)
    return False


def _commit(connection: Connection, size: int) -> int:
    """Commit offsets with metadata in a group of its own; return the size of the metadata."""
    connection.exchange(_request(f"{GROUP}-{next(_numbers)}", "x" * size), COMMIT_VERSION, REPLY_S)
    return size * len(TOPICS)


def _request(group: str, metadata: str) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata=metadata)
    topics = tuple(OffsetCommitRequestTopic(name=name, partitions=(part,)) for name in TOPICS)
    return OffsetCommitRequest(group_id=group, topics=topics)

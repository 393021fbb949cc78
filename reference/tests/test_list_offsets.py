"""ListOffsets of a new leader whose high watermark lags behind the start of its epoch (KIP-207)."""

import pytest

from highwater.reference.replication.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetsHandler
from highwater.reference.replication.states import PartitionState
from highwater.reference.tests.test_partition_guards import Leader
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest
from highwater.reference.wire.records import batch_headers, build_batch

NOT_YET = ErrorCode.OFFSET_NOT_AVAILABLE


class Replicas:
    """What OffsetsHandler needs of a ReplicaManager."""

    def __init__(self, leader: Leader) -> None:
        self.partitions = {("t", 0): leader.partition}


def new_leader() -> OffsetsHandler:
    """Return the handler of a leader of epoch 1 with the times 10, 20 and 30; its high watermark is 2."""
    leader = Leader()
    for timestamp in (10, 20, 30):
        batch = build_batch([(timestamp, None, b"v", ())])
        ((_, header),) = batch_headers(batch)
        leader.partition.append(batch, header)
    leader.fetched(2, 2)
    leader.partition.become_leader(PartitionState(1, 1, (1, 2), 0, 8), (1, 2, 3))
    assert (leader.partition.high_watermark, leader.partition.epoch_start_offset) == (2, 3)
    return OffsetsHandler(Replicas(leader))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("timestamp", "error", "offset"),
    [
        (EARLIEST, ErrorCode.NONE, 0), (10, ErrorCode.NONE, 0), (11, ErrorCode.NONE, 1), (21, NOT_YET, -1),
        (31, NOT_YET, -1), (LATEST, NOT_YET, -1), (MAX_TIMESTAMP, NOT_YET, -1),
    ],
)  # fmt: skip
def test_a_leader_that_lags_returns_what_is_below_its_high_watermark(
    timestamp: int, error: ErrorCode, offset: int
) -> None:
    """An offset that the old leader cannot have returned differently is no reason to wait."""
    handler, body = new_leader(), ListOffsetsRequest(replica_id=-1)
    found = handler._list_one("t", ListOffsetsPartition(partition_index=0, timestamp=timestamp), body, 7)
    assert (found.error_code, found.offset) == (error, offset)


def test_versions_before_5_get_an_error_that_they_know() -> None:
    handler, body = new_leader(), ListOffsetsRequest(replica_id=-1)
    found = handler._list_one("t", ListOffsetsPartition(partition_index=0, timestamp=LATEST), body, 4)
    assert found.error_code == ErrorCode.LEADER_NOT_AVAILABLE

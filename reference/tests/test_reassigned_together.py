"""AlterPartitionReassignments writes all its targets at once: one write for each partition would take seconds."""

import pytest

from highwater.reference.controller.cluster import REASSIGN
from highwater.reference.controller.context import ControllerContext
from highwater.reference.store.messages import Create, SetData
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from highwater.reference.wire.messages.topics import CreatableTopic, CreateTopicsRequest

PARTITIONS = 6


def reassign(world: Simulated, controller: int, *targets: tuple[int, tuple[int, ...]]) -> list[int]:
    """Return the error code for each target; a target is a partition and its new replicas."""
    parts = tuple(ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in targets)
    body = AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(name="t", partitions=parts),), timeout_ms=500)
    return [part.error_code for part in world.ask(body, 0, controller).responses[0].partitions]


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each write of requests adds how many there are then."""
    found: list[int] = []
    write = ControllerContext.write

    async def noted(self: ControllerContext, *operations: object) -> object:
        found.extend(
            operation.data.count(b'"partition"')
            for operation in operations
            if isinstance(operation, Create | SetData) and operation.path == REASSIGN
        )
        return await write(self, *operations)  # type: ignore[arg-type]

    monkeypatch.setattr(ControllerContext, "write", noted)
    return found


def world_with_topic() -> tuple[Simulated, int]:
    world = Simulated(3)
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
    controller = world.ask(MetadataRequest(topics=()), 9).controller_id
    world.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=2_000), 4, controller)
    return world, controller


def test_all_partitions_are_one_write(requested: list[int]) -> None:
    world, controller = world_with_topic()
    codes = reassign(world, controller, *((index, (1 + index % 3,)) for index in range(PARTITIONS)))
    assert codes == [ErrorCode.NONE] * PARTITIONS
    assert requested[0] == PARTITIONS
    world.run(5_000)
    assert world.ask(ListPartitionReassignmentsRequest(timeout_ms=500), 0, controller).topics == ()
    topic = world.ask(MetadataRequest(topics=None), 9).topics[0]
    replicas = {part.partition_index: part.replica_nodes for part in topic.partitions}
    assert replicas == {index: (1 + index % 3,) for index in range(PARTITIONS)}


def test_what_is_refused_is_not_written(requested: list[int]) -> None:
    world, controller = world_with_topic()
    codes = reassign(world, controller, (0, (1, 1)), (1, (9,)), (99, (1,)))
    assert codes == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert requested == []

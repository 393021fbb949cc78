"""Rebalances of a classic group along the behaviours of the specifications EagerRebalance and CooperativeRebalance."""

from collections.abc import Sequence

import pytest

from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.conformance.failures import Unsupported
from highwater.conformance.specified.behaviours import COOPERATIVE, EAGER, ModelBounds, behaviours
from highwater.conformance.specified.walk import SpecifiedGroup
from highwater.errors import UsageError
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest
from highwater.reference.wire.messages.groups import JoinGroupRequest, SyncGroupRequest

MEMBER_ID_SINCE = 4
WALKS = 24


@clause("GRP-69", "specified")
@pytest.mark.parametrize("alternatives", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
@defect(
    Reply(JoinGroupRequest, "generation_id", increment),
    Reply(SyncGroupRequest, "assignment", b""),
    Reply(OffsetFetchRequest, "groups.topics.partitions.committed_offset", increment),
)
def test_each_path_through_the_specification(
    cluster: Cluster, topic: Topic, alternatives: Sequence[ModelBounds]
) -> None:  # fmt: skip
    """Members join, join again, commit and leave; requests of ended generations arrive late."""
    cluster.connect().version_of(JoinGroupRequest, MEMBER_ID_SINCE)
    chance = cluster.draws.generator(12)
    try:
        graphs = [behaviours(bounds) for bounds in alternatives]
    except UsageError as error:
        raise Unsupported(f"TLC cannot generate the behaviours: {error}") from error
    for _ in cluster.draws.steps(WALKS, chance):
        SpecifiedGroup(cluster, topic, chance).walk(chance.choice(graphs))

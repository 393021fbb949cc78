"""Writes, transactions, deletions, reads, sessions and offsets in any order, compared with the models of all."""

import pytest

from highwater.conformance.cases.records.walks.everything import Everything
from highwater.conformance.clause import clause, era
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, increment
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.produce import ProduceRequest


@clause("TXN-29", "everything")
@era("2.5")  # older releases require unknown producers to begin at 0
@defect(
    Request(FetchRequest, "isolation_level", 0),
    Reply(ProduceRequest, "responses.partition_responses.base_offset", increment),
    Reply(OffsetFetchRequest, "groups.topics.partitions.committed_offset", increment),
)
def test_all_objects_of_the_log_used_at_once_follow_their_models(cluster: Cluster) -> None:
    everything = Everything(cluster, 21)
    for _ in everything.walk.steps(60):
        everything.step()
    everything.compare_everything()


@clause("TXN-29", "everything, restarts")
@era("3.9")  # 2.8.2 forgets a producer whose records are deleted
@defect(
    Reply(ProduceRequest, "responses.partition_responses.base_offset", increment),
    Reply(OffsetFetchRequest, "groups.topics.partitions.committed_offset", increment),
)
@pytest.mark.cluster_fault
@pytest.mark.slow
def test_all_objects_of_the_log_go_on_after_restarts(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    everything = Everything(cluster, 22)
    for _ in everything.walk.steps(30):
        if everything.walk.random.random() < 0.1:
            everything.restart()
        else:
            everything.step()
    everything.compare_everything()

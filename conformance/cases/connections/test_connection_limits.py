"""The number of connections of a host is limited (KIP-402)."""

from functools import partial

import pytest

from highwater.conformance.cases.support.admin import controller
from highwater.conformance.cases.topics.test_broker_configs import ALL_BROKERS, altered
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Request, defect
from highwater.conformance.expectations import expect
from highwater.conformance.failures import TargetFailure
from highwater.reference.wire.messages.configs import IncrementalAlterConfigsRequest

PER_HOST, LIMIT = "max.connections.per.ip", 50
ROUNDS = 3
SPARE = 10
"""Connections that brokers of the cluster may open meanwhile, whose host is the same."""


def _open(cluster: Cluster, count: int) -> list[Broker]:
    """Open connections to one broker until it closes one instead of answering; return those that are open."""
    found = list[Broker]()
    for _ in range(count):
        broker = None
        try:
            broker = cluster.connect(cluster.any_address())
            broker.metadata(version=1)
        except (TargetFailure, OSError):
            if broker is not None:
                broker.close()
            break
        found.append(broker)
    return found


def _has_room(cluster: Cluster, count: int) -> bool:
    found = _open(cluster, count)
    for broker in found:
        broker.close()
    return len(found) == count


@clause("QTA-15")
@pytest.mark.cluster_fault
@defect(Request(IncrementalAlterConfigsRequest, "validate_only", True))
def test_closed_connections_make_room_for_others(cluster: Cluster) -> None:
    """It runs alone, for all clients of the suite are on one host."""
    with controller(cluster) as admin, altered(admin, ALL_BROKERS, PER_HOST, str(LIMIT)):
        cluster.eventually("a connection to be refused", lambda: not _has_room(cluster, LIMIT + 1))
        for _ in range(ROUNDS):
            cluster.eventually("room for most", partial(_has_room, cluster, LIMIT - 2 * SPARE))
            found = _open(cluster, LIMIT + 1)
            expect("a connection more than the limit is answered", False, len(found) > LIMIT)
            for broker in found:
                broker.close()
    cluster.eventually("the limit to be gone", partial(_has_room, cluster, LIMIT + 1))

"""Fixtures for several case modules."""

from collections.abc import Iterator

import pytest

from highwater.conformance.cases.fields.trial import RowTrial
from highwater.conformance.cases.fields.world import World
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.cases.support.transactions import Transactional, need_transaction_version
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster


@pytest.fixture
def group(cluster: Cluster) -> str:
    """Return a new group id."""
    return cluster.group()


@pytest.fixture
def coordinator(cluster: Cluster, group: str) -> Broker:
    """Return a connection to the group's coordinator."""
    return cluster.coordinator(group)


@pytest.fixture
def driver(cluster: Cluster, group: str) -> GroupDriver:
    """Return a driver that creates members of `group`."""
    return GroupDriver(cluster, group)


@pytest.fixture
def producer(cluster: Cluster) -> Transactional:
    """Return a transactional producer that has its id and epoch."""
    return Transactional.initialize(cluster)


@pytest.fixture
def new_producer(producer: Transactional) -> Transactional:
    """Return a producer of a cluster with transaction.version 2 (KIP-890).

    There a Produce adds its partition to the transaction, and each EndTxn bumps the producer epoch.
    """
    need_transaction_version(producer.coordinator, 2)
    return producer


@pytest.fixture
def trial(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[RowTrial]:
    """Yield the rows of the case in a world that has what their table needs."""
    table, rows = request.param
    found = RowTrial.prepared(table, rows, World(cluster))
    yield found
    found.world.clean_up(*table.leaves)

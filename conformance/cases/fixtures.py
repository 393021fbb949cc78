"""Fixtures that several modules of cases share."""

import pytest

from highwater.conformance.broker import Broker
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.cases.support.transactions import Transactional, need_transaction_version
from highwater.conformance.cluster import Cluster


@pytest.fixture
def group(cluster: Cluster) -> str:
    """The name of a group that nobody has used."""
    return cluster.group()


@pytest.fixture
def coordinator(cluster: Cluster, group: str) -> Broker:
    """A connection to the group's coordinator."""
    return cluster.coordinator(group)


@pytest.fixture
def driver(cluster: Cluster, group: str) -> GroupDriver:
    """Makes members of that group."""
    return GroupDriver(cluster, group)


@pytest.fixture
def producer(cluster: Cluster) -> Transactional:
    """A transactional one, with its id and epoch."""
    return Transactional.ready(cluster)


@pytest.fixture
def new_producer(producer: Transactional) -> Transactional:
    """Of a cluster where a batch takes its partition in, and every end bumps the epoch."""
    need_transaction_version(producer.coordinator, 2)
    return producer

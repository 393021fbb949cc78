"""Fixtures that several modules of cases share."""

import pytest

from conformance.cases.transactions import Transactional, need_transaction_version
from conformance.cluster import Cluster


@pytest.fixture
def producer(cluster: Cluster) -> Transactional:
    """A transactional one, with its id and epoch."""
    return Transactional.ready(cluster)


@pytest.fixture
def new_producer(producer: Transactional) -> Transactional:
    """Of a cluster where a batch takes its partition in, and every end bumps the epoch."""
    need_transaction_version(producer.coordinator, 2)
    return producer

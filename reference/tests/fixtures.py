"""One cluster of three processes, shared by all tests of a pytest worker."""

from collections.abc import Iterator

import pytest

from highwater.reference.drivers.cluster import Cluster

QUICK = {
    "metadata_store_session_timeout_ms": 2_000,
    "replica_lag_time_max_ms": 3_000,
    "replica_fetch_wait_max_ms": 100,
    "default_replication_factor": 3,
    "offsets_topic_replication_factor": 3,
}


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    started = Cluster(3, settings=dict(QUICK))
    try:
        started.start_all()
        started.wait_until_ready()
        yield started
    finally:
        started.stop_all()


@pytest.fixture(scope="session")
def bootstrap(shared_cluster: Cluster) -> str:
    return ",".join(shared_cluster.addresses.values())

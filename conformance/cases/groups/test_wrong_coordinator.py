"""Every request for a coordinator, in every version, to a broker that is not the coordinator."""

from dataclasses import replace
from typing import Any, Final

import pytest

from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.cases.support.request_rows import MISDIRECTED, Misdirected, Names
from highwater.conformance.cases.support.transactions import coordinator_of
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import API_BY_NAME
from highwater.conformance.defects import Reply
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.errors import ErrorCode

TOPIC_IDS_SINCE: Final = 10  # of OffsetCommit and OffsetFetch


def rows(kind: str) -> list[Any]:
    return [
        pytest.param(row, id=name, marks=[
            pytest.mark.defect(*(Reply(API_BY_NAME[row.api].request, path, 0) for path in row.paths)),
            *([era(row.since)] if row.since else []),
        ])
        for name, row in MISDIRECTED[kind].items()
    ]  # fmt: skip


def errors_in(reply: Any, path: str) -> list[int]:
    """Return all values that the path leads to, one for each element of its lists."""
    found = [reply]
    for step in path.split("."):
        values = [getattr(each, step) for each in found]
        found = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return sorted(set(found))


def assert_refused(cluster: Cluster, row: Misdirected, names: Names, right: str) -> None:
    """Send the request in each advertised version to a broker that is not the coordinator."""
    wrong = cluster.connect(next(address for address in cluster.target.addresses.values() if address != right))
    api = API_BY_NAME[row.api]
    lowest, highest = wrong.advertised.get(api.key, (0, -1))
    newest = api.max_version if row.newest is None else row.newest
    versions = range(max(lowest, row.oldest, api.min_version), min(highest, newest) + 1)
    if not versions:
        raise Unsupported(f"{api.name} v{row.oldest} or newer is not advertised")
    if row.names_ids and versions[-1] >= TOPIC_IDS_SINCE:
        names = replace(names, topic_id=wrong.topic_id(names.topic))
    for version in versions:
        found = errors_in(wrong.call(row.request(names, version), version), row.path(version))
        expect(f"error codes in {api.name} v{version}", [ErrorCode.NOT_COORDINATOR], found)


@clause("GRP-1", "wrong broker")
@pytest.mark.parametrize("row", rows("GROUP"))
def test_another_broker_refuses_what_is_for_the_coordinator(
    cluster: Cluster, driver: GroupDriver, topic: Topic, row: Misdirected
) -> None:
    cluster.need_brokers(2)
    assert_refused(cluster, row, Names(topic, driver.group, cluster.name("x")), driver.connect().address)


@clause("TXN-21", "wrong broker")
@pytest.mark.parametrize("row", rows("TRANSACTIONAL_ID"))
def test_another_broker_refuses_what_is_for_the_coordinator_of_transactions(
    cluster: Cluster, topic: Topic, row: Misdirected
) -> None:
    cluster.need_brokers(2)
    name = cluster.name("x")
    assert_refused(cluster, row, Names(topic, cluster.name("g"), name), coordinator_of(cluster, name))

"""Groups: descriptions, lists by state and type, deletion, and lookup of coordinators."""

import pytest

from highwater.conformance import CLIENT_ID
from highwater.conformance.cases.support.committed_offsets import commit, committed_offset
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.cases.support.transactions import find_transaction_coordinator
from highwater.conformance.clause import clause, era, sweep
from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, without_error
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
)
from highwater.reference.wire.messages.consumer_groups import ConsumerProtocolSubscription, encode_subscription
from highwater.reference.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest

NONE, NOT_REQUESTED = -1, -(2**31)
UNKNOWN_KIND = 100
SUBSCRIBED_TO_NOTHING = encode_subscription(ConsumerProtocolSubscription())


def listed(broker: Broker, **filters: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Return state and type by group id."""
    version = broker.version_of(ListGroupsRequest, 5 if "types_filter" in filters else 4)
    return {
        group.group_id: (group.group_state, group.group_type)
        for group in broker.call(ListGroupsRequest(**filters), version).groups
    }


@clause("GRP-47")
@sweep(DescribeGroupsRequest)
@defect(
    Reply(DescribeGroupsRequest, "groups.members.member_metadata", b""),
    Reply(DescribeGroupsRequest, "groups.members.member_assignment", b""),
    Reply(DescribeGroupsRequest, "groups.members.client_id", ""),
)
def test_a_member_is_described_by_its_bytes_and_its_client(driver: GroupDriver, version: int) -> None:
    member = driver.stable_member(metadata=SUBSCRIBED_TO_NOTHING)
    found = only(member.broker.call(DescribeGroupsRequest(groups=(driver.group,)), version).groups)
    reported = only(found.members)
    expect(
        "metadata and assignment", (SUBSCRIBED_TO_NOTHING, b"a"), (reported.member_metadata, reported.member_assignment)
    )
    expect("client id", CLIENT_ID, reported.client_id)
    expect("there is a host", True, bool(reported.client_host))


@clause("GRP-66")
@defect(
    Reply(DescribeGroupsRequest, "groups.members.member_metadata", b"m"),
    Reply(DescribeGroupsRequest, "groups.protocol_data", "range"),
)
def test_metadata_is_not_described_during_a_rebalance(driver: GroupDriver) -> None:
    member = driver.stable_member()
    new = driver.send_join()
    member.await_rebalance()
    _expect_no_metadata(driver)
    member.rejoin()
    expect("error code of the new member", 0, new.receive_join().error_code)
    _expect_no_metadata(driver)
    leader = member if member.is_leader else new
    expect("error code of the sync", 0, leader.sync({leader.member_id: b"a"}).error_code)
    found = driver.describe()
    metadata = {each.member_metadata for each in found.members}
    expect("protocol and metadata of the stable group", ("range", {b"m"}), (found.protocol_data, metadata))


def _expect_no_metadata(driver: GroupDriver) -> None:
    found = driver.describe()
    metadata = {member.member_metadata for member in found.members}
    expect(f"protocol and metadata of the group in {found.group_state}", ("", {b""}), (found.protocol_data, metadata))


@clause("GRP-48")
@defect(Reply(DescribeGroupsRequest, "groups", lambda groups: groups[:1]))
def test_several_groups_are_described_at_once(cluster: Cluster, driver: GroupDriver) -> None:
    member, unknown = driver.stable_member(), cluster.name("g")
    version = min(member.broker.version_of(DescribeGroupsRequest), 5)
    reply = member.broker.call(DescribeGroupsRequest(groups=(driver.group, unknown)), version)
    found = {group.group_id: (group.error_code, group.group_state) for group in reply.groups}
    expect("error codes and states", True, _known(found, driver.group, unknown))


def _known(found: dict[str, tuple[int, str]], group: str, unknown: str) -> bool:
    """Return whether the known group is stable and the unknown one is Dead, or has another coordinator."""
    return found.get(group) == (0, "Stable") and found.get(unknown) in ((0, "Dead"), (16, ""))


@clause("GRP-20", "states")
@defect(Request(ListGroupsRequest, "states_filter", ()), Reply(ListGroupsRequest, "groups.group_state", ""))
def test_groups_are_listed_by_state(cluster: Cluster, driver: GroupDriver) -> None:
    member = driver.stable_member()
    stable = listed(member.broker, states_filter=("Stable",))
    expect("state with the filter Stable", "Stable", stable.get(driver.group, ("", ""))[0])
    expect(
        "listed with the filter Empty, Dead",
        False,
        driver.group in listed(member.broker, states_filter=("Empty", "Dead")),
    )
    expect(
        "listed with the filter Empty, Stable",
        True,
        driver.group in listed(member.broker, states_filter=("Empty", "Stable")),
    )


@clause("GRP-20", "state in any case")
@era("3.9")
@defect(Request(ListGroupsRequest, "states_filter", ("Dead",)))
def test_the_case_of_a_state_does_not_matter(driver: GroupDriver) -> None:
    member = driver.stable_member()
    expect("listed", True, driver.group in listed(member.broker, states_filter=("sTABLE",)))


@clause("GRP-20", "types")
@defect(Request(ListGroupsRequest, "types_filter", ()), Reply(ListGroupsRequest, "groups.group_type", ""))
def test_groups_are_listed_by_type(driver: GroupDriver) -> None:
    member = driver.stable_member()
    found = listed(member.broker, types_filter=("classic",))
    expect("state and type", ("Stable", "classic"), found.get(driver.group))
    expect("listed with the filter consumer", False, driver.group in listed(member.broker, types_filter=("consumer",)))


@clause("GRP-20", "offsets only")
@defect(Reply(ListGroupsRequest, "groups", ()))
def test_a_group_of_offsets_alone_is_empty(driver: GroupDriver, topic: Topic) -> None:
    broker = driver.connect()
    expect("error code of the commit", 0, commit(broker, driver.group, topic, 1))
    expect("state", "Empty", driver.state())
    expect("state in the list", "Empty", listed(broker).get(driver.group, ("", ""))[0])


@clause("GRP-49")
@sweep(DeleteGroupsRequest)
@defect(Reply(DeleteGroupsRequest, "results.error_code", 0), Reply(DeleteGroupsRequest, "results", ()))
def test_each_of_several_groups_is_deleted_or_not(cluster: Cluster, driver: GroupDriver, version: int) -> None:
    member = driver.stable_member()
    unknown = _unknown_group_of_same_coordinator(cluster, member.broker)
    reply = member.broker.call(DeleteGroupsRequest(groups_names=(driver.group, unknown)), version)
    found = {result.group_id: result.error_code for result in reply.results}
    expect(
        "error codes", True, found == {driver.group: ErrorCode.NON_EMPTY_GROUP, unknown: ErrorCode.GROUP_ID_NOT_FOUND}
    )


def _unknown_group_of_same_coordinator(cluster: Cluster, broker: Broker) -> str:
    """Return the id of a group that does not exist and has the same coordinator."""
    names = (cluster.name("g") for _ in range(100))
    return next(name for name in names if cluster.coordinator(name).address == broker.address)


@clause("GRP-20", "rebalancing")
@defect(Reply(DeleteGroupsRequest, "results.error_code", 0))
def test_a_group_that_rebalances_is_not_deleted(driver: GroupDriver) -> None:
    member = driver.stable_member()
    new = driver.send_join()
    member.await_rebalance()
    expect("error code while it waits for members", ErrorCode.NON_EMPTY_GROUP, _delete_error(driver))
    member.rejoin()
    expect("error code of the new member", 0, new.receive_join().error_code)
    expect("error code while it waits for the assignment", ErrorCode.NON_EMPTY_GROUP, _delete_error(driver))


def _delete_error(driver: GroupDriver) -> int:
    with driver.connect() as broker:
        return int(only(broker.call(DeleteGroupsRequest(groups_names=(driver.group,))).results).error_code)


@clause("GRP-50")
@defect(Reply(OffsetFetchRequest, "groups.topics.partitions.committed_offset", 5))
def test_a_deleted_group_has_no_offsets(driver: GroupDriver, topic: Topic) -> None:
    broker = driver.connect()
    commit(broker, driver.group, topic, 5)
    expect("error code", 0, only(broker.call(DeleteGroupsRequest(groups_names=(driver.group,))).results).error_code)
    expect("offset after the deletion", NONE, committed_offset(broker, driver.group, topic))


@clause("GRP-51", "asked")
@sweep(DescribeGroupsRequest, 3)
@defect(Reply(DescribeGroupsRequest, "groups.authorized_operations", NOT_REQUESTED))
def test_operations_on_a_group_are_told_when_asked_for(driver: GroupDriver, version: int) -> None:
    broker = driver.stable_member().broker
    request = DescribeGroupsRequest(groups=(driver.group,), include_authorized_operations=True)
    expect("some operation is allowed", True, only(broker.call(request, version).groups).authorized_operations > 0)


@clause("GRP-51", "not asked")
@sweep(DescribeGroupsRequest, 3)
@defect(Reply(DescribeGroupsRequest, "groups.authorized_operations", 264))
def test_operations_on_a_group_are_not_told_otherwise(driver: GroupDriver, version: int) -> None:
    broker = driver.stable_member().broker
    found = only(broker.call(DescribeGroupsRequest(groups=(driver.group,)), version).groups)
    expect("authorised operations", NOT_REQUESTED, found.authorized_operations)


# -- coordinators --------------------------------------------------------------------------------------


@clause("GRP-52", "transaction")
@sweep(FindCoordinatorRequest, 1)
@defect(Reply(FindCoordinatorRequest, "coordinators.node_id", 1000), Reply(FindCoordinatorRequest, "node_id", 1000))
def test_a_transactional_id_has_a_coordinator(cluster: Cluster, broker: Broker, version: int) -> None:
    name = cluster.name("x")

    def found() -> bool:
        answer = find_transaction_coordinator(broker, name, version)
        return answer.error_code == 0 and cluster.target.addresses.get(answer.node_id) == f"{answer.host}:{answer.port}"

    cluster.eventually("a coordinator among the brokers", found, 15.0)


@clause("GRP-52", "kind")
@era("2.8")
@pytest.mark.parametrize("kind", [UNKNOWN_KIND, -1])
@defect(Reply(FindCoordinatorRequest, "error_code", without_error(ErrorCode.INVALID_REQUEST)))
def test_another_kind_of_key_is_refused(broker: Broker, kind: int) -> None:
    version = min(broker.version_of(FindCoordinatorRequest, 1), 3)
    reply = broker.call(FindCoordinatorRequest(key="k", key_type=kind), version)
    expect("error code", ErrorCode.INVALID_REQUEST, reply.error_code)


@clause("GRP-52", "many")
@sweep(FindCoordinatorRequest, 4)
@defect(Reply(FindCoordinatorRequest, "coordinators", lambda found: found[:1]))
def test_many_keys_are_answered_each(cluster: Cluster, broker: Broker, version: int) -> None:
    names = tuple(cluster.name("g") for _ in range(5))
    for name in names[:1]:
        cluster.coordinator(name)
    reply = broker.call(FindCoordinatorRequest(coordinator_keys=names), version)
    expect("keys", True, tuple(coordinator.key for coordinator in reply.coordinators) == names)
    expect("error codes", {0}, max(coordinator.error_code for coordinator in reply.coordinators))


# -- deletion of offsets -------------------------------------------------------------------------------


def delete_offset(broker: Broker, group: str, topic: Topic) -> tuple[int, int]:
    """Delete a committed offset; return the error codes of the group and of the partition."""
    parts = (OffsetDeleteRequestPartition(partition_index=topic.partition),)
    request = OffsetDeleteRequest(group_id=group, topics=(OffsetDeleteRequestTopic(name=topic.name, partitions=parts),))
    reply = broker.call(request)
    return reply.error_code, only(only(reply.topics).partitions).error_code if reply.topics else 0


@clause("OFF-9", "gone")
@defect(Request(OffsetDeleteRequest, "topics", ()))
def test_a_deleted_offset_is_gone(cluster: Cluster, driver: GroupDriver, topic: Topic) -> None:
    broker, other = driver.connect(), cluster.create_topic()
    broker.version_of(OffsetDeleteRequest)
    for target_topic in (topic, other):
        commit(broker, driver.group, target_topic, 5)
    expect("error codes", (0, 0), delete_offset(broker, driver.group, topic))
    offsets = tuple(committed_offset(broker, driver.group, topic_of_group) for topic_of_group in (topic, other))
    expect("deleted offset and offset of the other topic", (NONE, 5), offsets)


@clause("OFF-9", "no group")
@defect(Reply(OffsetDeleteRequest, "error_code", 0))
def test_offsets_of_an_unknown_group_cannot_be_deleted(driver: GroupDriver, topic: Topic) -> None:
    expect("error code", ErrorCode.GROUP_ID_NOT_FOUND, delete_offset(driver.connect(), driver.group, topic)[0])

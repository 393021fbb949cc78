"""Fields of requests about groups without members, their offsets and their coordinators."""

from typing import Final

from highwater.conformance.cases.fields.checks import offset_is
from highwater.conformance.cases.fields.program import defects_of, together
from highwater.conformance.cases.fields.tables import TABLES
from highwater.conformance.cases.fields.trial import RowTrial
from highwater.conformance.cases.fields.world import World
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.clause import clause
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import request
from highwater.conformance.defects import Reply, defect, increment
from highwater.conformance.expectations import expect
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from highwater.reference.wire.messages.groups import LeaveGroupRequest

NAMED: Final = 9
"""The last version of OffsetCommit that names topics."""
MEMBERS: Final = [TABLES[f"groups.{name}"] for name in ("Heartbeat", "SyncGroup", "LeaveGroup")]

test_fields_of_a_commit = together("groups.OffsetCommit")
test_fields_of_a_request_for_committed_offsets = together("groups.OffsetFetch")
test_fields_of_a_deletion_of_offsets = together("groups.OffsetDelete")
test_filters_of_a_list_of_groups = together("groups.ListGroups")
test_fields_of_a_description_of_groups = together("groups.DescribeGroups")
test_fields_of_a_deletion_of_groups = together("groups.DeleteGroups")
test_fields_of_a_search_for_coordinators = together("groups.FindCoordinator")


@clause("FLD-7", "members")
@defect(*(planted for table in MEMBERS for planted in defects_of(table)))
def test_fields_of_requests_of_members(cluster: Cluster) -> None:
    world = World(cluster)
    for table in MEMBERS:
        RowTrial.prepared(table, table.rows(), world).check_all()


@clause("FLD-7", "last commit")
@defect(Reply(OffsetFetchRequest, "groups.topics.partitions.committed_offset", increment))
def test_of_two_commits_of_a_partition_the_last_one_counts(cluster: Cluster) -> None:
    world = World(cluster)
    version = min(world.coordinator.version_of(OffsetCommitRequest, 2), NAMED)
    for first, last in ((7, 6), (6, 7)):
        partitions = [{"partition_index": 0, "committed_offset": offset} for offset in (first, last)]
        topic = {"name": world.topic.name, "partitions": partitions}
        world.coordinator.call(request("OffsetCommit", group_id=world.group, topics=[topic]), version)
        offset_is(world, None, last, -1, "")


@clause("FLD-7", "leaving twice")
@defect(Reply(LeaveGroupRequest, "members.error_code", increment))
def test_a_member_that_a_request_names_twice_leaves_once(cluster: Cluster) -> None:
    driver = GroupDriver(cluster, cluster.group())
    member = driver.stable_member()
    sent = request("LeaveGroup", group_id=driver.group, members=[member.member_id, member.member_id])
    reply = member.broker.call(sent, member.broker.version_of(LeaveGroupRequest, 3))
    expect("error codes", [0, ErrorCode.UNKNOWN_MEMBER_ID], [each.error_code for each in reply.members])

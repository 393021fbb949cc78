"""Walks over groups in different states: lists with filters, descriptions, and deletions of several groups."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from highwater.conformance.cases.support.committed_offsets import commit
from highwater.conformance.cases.support.group_walks.members import (
    ClassicWalk,
    WalkMember,
    assign,
    rebalance,
    same_coordinator,
)
from highwater.conformance.cases.support.polling import spread
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, without_error
from highwater.conformance.expectations import expect
from highwater.conformance.models.comparison import compare
from highwater.conformance.models.groups import DEAD, EMPTY, PREPARING, ClassicModel, ModelMember
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

OFFERS: Final = (("range", b"m"),)
STATES_SINCE, TYPES_SINCE = 4, 5
FILTERS: Final[Sequence[tuple[tuple[str, ...], tuple[str, ...]]]] = (
    *(((state,), ()) for state in ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Dead", "Unknown")),
    (("Stable", "Empty"), ()), (("PreparingRebalance", "CompletingRebalance", "Stable", "Stable"), ()),
    ((), ("classic",)), ((), ("consumer",)), ((), ("consumer", "classic")), (("Stable",), ("classic",)),
    (("Stable",), ("consumer",)), (("Empty", "Dead"), ("classic", "consumer")), (("Empty",), ("share",)),
)  # fmt: skip
"""States and types; none means all."""


@clause("GRP-70")
@defect(
    Reply(ListGroupsRequest, "groups", lambda groups: groups[:-1]),
    Request(ListGroupsRequest, "states_filter", ()),
    Reply(DeleteGroupsRequest, "results.error_code", without_error(ErrorCode.NON_EMPTY_GROUP)),
)
def test_lists_descriptions_and_deletions_of_groups_follow_the_model(cluster: Cluster, topic: Topic) -> None:
    names = same_coordinator(cluster, 6)
    broker, models = cluster.coordinator(names[0]), [ClassicModel(name) for name in names]
    dead, offsets_only, left, stable, completing, preparing = models
    for model in models[1:]:
        expect("error code of OffsetCommit", 0, commit(broker, model.group, topic, 1))
        model.state = EMPTY
    _populate(cluster, broker, models)
    check(broker, models)
    delete(broker, [dead, stable, left, preparing, completing])
    check(broker, models)
    delete(broker, [offsets_only, completing, left])
    check(broker, models)
    delete(broker, models)
    check(broker, models)


def _populate(cluster: Cluster, broker: Broker, models: Sequence[ClassicModel]) -> None:
    """Let members join and leave the groups, so that each is in another state."""
    *_, left, stable, completing, preparing = models
    for model in (left, stable, completing, preparing):
        walk = ClassicWalk(cluster, broker, model, "newest")
        member = WalkMember(walk, OFFERS)
        rebalance(walk, [member], "range", new=[member])
        if model is not completing:
            assign(walk, [member])
        if model is left:
            walk.leave((member.member_id, None))
        if model is preparing:
            new = WalkMember(walk, OFFERS)
            new.send_join()
            walk.await_rebalance(member)
            model.state = PREPARING
            _learn(broker, model)


def _learn(broker: Broker, model: ClassicModel) -> None:
    """Take the ids of members that have no reply yet from the description: below JoinGroup 4 they are new."""
    found = broker.call(DescribeGroupsRequest(groups=(model.group,)), spread(broker, DescribeGroupsRequest)[0])
    for member in found.groups[0].members:
        model.members.setdefault(member.member_id, ModelMember(member.member_id))
    expect("number of members", 2, len(model.members))


def check(broker: Broker, models: Sequence[ClassicModel]) -> None:
    """Compare all groups as they are listed with each filter, and as they are described together."""
    names = {model.group for model in models}
    for version in spread(broker, ListGroupsRequest):
        for states, types in ((), ()), *FILTERS:
            if (states and version < STATES_SINCE) or (types and version < TYPES_SINCE):
                continue
            reply = broker.call(ListGroupsRequest(states_filter=states, types_filter=types), version)
            found = tuple(group for group in reply.groups if group.group_id in names)
            listed = tuple(entry for model in models for entry in model.listed())
            wanted = tuple(
                entry
                for entry in listed
                if (not states or entry.group_state in states) and (not types or entry.group_type in types)
            )
            what = f"ListGroups {version} of {states}, {types}"
            compare(what, ListGroupsResponse(groups=wanted), replace(reply, groups=found), version)
    for version in spread(broker, DescribeGroupsRequest):
        reply = broker.call(DescribeGroupsRequest(groups=tuple(model.group for model in models)), version)
        expected = DescribeGroupsResponse(groups=tuple(model.described(version) for model in models))
        compare(f"DescribeGroups {version}", expected, reply, version)


def delete(broker: Broker, models: Sequence[ClassicModel]) -> None:
    """Delete groups in one request, each version in turn, and compare the results."""
    distinct = list(dict.fromkeys(models))
    version = spread(broker, DeleteGroupsRequest)[len(models) % len(spread(broker, DeleteGroupsRequest))]
    errors = {model.group: delete_error(model) for model in distinct}
    reply = broker.call(DeleteGroupsRequest(groups_names=tuple(errors)), version)
    results = tuple(DeletableGroupResult(group_id=name, error_code=error) for name, error in errors.items())
    compare(f"DeleteGroups {version}", DeleteGroupsResponse(results=results), reply, version)
    for model in distinct:
        if not errors[model.group]:
            model.state, model.protocol_type = DEAD, ""


def delete_error(model: ClassicModel) -> int:
    if model.state == DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return 0 if model.state == EMPTY else ErrorCode.NON_EMPTY_GROUP

"""Access control lists: how they are kept, and the error for a user who is denied an operation."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from highwater.conformance.cases.support.acls import Acls, entries, lists_of
from highwater.conformance.cases.support.committed_offsets import commit, committed_topics
from highwater.conformance.cases.support.request_rows import CONTROLS, EXAMPLE, FORWARDED_CONTROL, NEEDED, Names, Needed
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import CONSUMER, EARLIEST, LATEST, Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.conformance.models import acls as lists
from highwater.conformance.models.acls import ALL, DENY, PREFIXED, READ, TOPIC, WRITE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.security import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from highwater.reference.wire.registry import api_of

OTHER_USER = "User:hw-other"
OTHER_HOST = "192.0.2.1"
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
OPERATIONS_SINCE = 8


@pytest.fixture
def acls(cluster: Cluster) -> Iterator[Acls]:
    with lists_of(cluster) as found:
        yield found


def names_of(cluster: Cluster, topic: Topic) -> Names:
    return Names(topic, cluster.group(), cluster.name("x"))


def rows(kind: str) -> list[Any]:
    return [
        pytest.param(needed, id=name, marks=pytest.mark.defect(Reply(needed.type, needed.error, 0)))
        for name, needed in NEEDED[kind].items()
    ]


def error_of(broker: Broker, needed: Needed, names: Names) -> int:
    """Send the request and return the only error code that its path leads to."""
    request = needed.request(names)
    newest = broker.version_of(type(request))
    found = broker.call(request, newest if needed.newest is None else min(newest, needed.newest))
    for step in needed.error.split("."):
        found = getattr(only(found) if isinstance(found, tuple) else found, step)
    return int(found)


def state_of(cluster: Cluster, topic: Topic) -> tuple[Any, ...]:
    """Return what the refused requests could have changed."""
    described = only(cluster.connect().metadata(topic.name).topics)
    with cluster.leader(topic) as leader:
        offsets = (leader.list_offset(topic, EARLIEST).offset, leader.list_offset(topic, LATEST).offset)
    return described.error_code, len(described.partitions), offsets


# -- the lists -------------------------------------------------------------------------------------------


@clause("ACL-1")
@defect(
    Reply(DescribeAclsRequest, "resources", ()), Request(CreateAclsRequest, "creations.permission_type", lists.ALLOW)
)
def test_entries_are_described_as_they_were_created(cluster: Cluster, acls: Acls) -> None:
    name = cluster.name()
    wanted = {
        acls.rule(TOPIC, name, READ),
        acls.rule(TOPIC, name, WRITE, lists.ALLOW, principal=OTHER_USER, host=OTHER_HOST),
        acls.rule(TOPIC, name, ALL, resource_pattern_type=PREFIXED),
        acls.rule(lists.GROUP, name, READ),
    }
    acls.put(*wanted)
    expect("entries", True, set(entries(acls.describe(resource_name_filter=name))) == wanted)


DIFFERENCES: dict[str, tuple[str, str, Any]] = {
    "resource type": ("resource_type", "resource_type_filter", lists.GROUP),
    "pattern type": ("resource_pattern_type", "pattern_type_filter", PREFIXED),
    "principal": ("principal", "principal_filter", OTHER_USER),
    "host": ("host", "host_filter", OTHER_HOST),
    "operation": ("operation", "operation", WRITE),
    "permission": ("permission_type", "permission_type", lists.ALLOW),
}
"""By field: its name in an entry and in a filter, and a value that the user's usual entry does not have."""


@clause("ACL-2")
@defect(Reply(DescribeAclsRequest, "resources", ()), Reply(DeleteAclsRequest, "filter_results.matching_acls", ()))
@pytest.mark.parametrize("field", list(DIFFERENCES))
def test_a_filter_takes_what_matches_each_of_its_fields(cluster: Cluster, acls: Acls, field: str) -> None:
    name, (of_entry, of_filter, value) = cluster.name(), DIFFERENCES[field]
    usual = acls.rule(TOPIC, name, READ)
    other = replace(usual, **{of_entry: value})
    acls.put(usual, other)
    chosen: dict[str, Any] = {"resource_name_filter": name, of_filter: value}
    expect("entries found", {(other,)}, tuple(entries(acls.describe(**chosen))))
    deleted = acls.delete(**chosen)
    expect("error code of the filter", 0, deleted.error_code)
    expect("entries deleted", 1, len(deleted.matching_acls))
    cluster.eventually(
        "the other entry alone", lambda: tuple(entries(acls.describe(resource_name_filter=name))) == (usual,)
    )


@clause("ACL-2", "matching name")
@defect(Request(DescribeAclsRequest, "pattern_type_filter", lists.LITERAL))
def test_a_match_also_takes_prefixes(cluster: Cluster, acls: Acls) -> None:
    prefix = cluster.name()
    literal, prefixed = (
        acls.rule(TOPIC, f"{prefix}-end", READ),
        acls.rule(TOPIC, prefix, READ, resource_pattern_type=PREFIXED),
    )
    acls.put(literal, prefixed)
    found = acls.describe(resource_name_filter=f"{prefix}-end", pattern_type_filter=lists.MATCH)
    expect("entries that apply to the name", True, {literal, prefixed} <= set(entries(found)))
    found = acls.describe(resource_name_filter=f"{prefix}-end", pattern_type_filter=lists.LITERAL)
    expect("entries of the name", {(literal,)}, tuple(entries(found)))


INVALID = {
    "any operation": {"operation": 1},
    "any permission": {"permission_type": 1},
    "any resource": {"resource_type": 1},
    "any pattern": {"resource_pattern_type": lists.ANY},
    "match": {"resource_pattern_type": lists.MATCH},
    "no name": {"resource_name": ""},
    "another cluster": {"resource_type": lists.CLUSTER},
}


@clause("ACL-3")
@defect(Reply(CreateAclsRequest, "results.error_code", 0))
@pytest.mark.parametrize("fields", [pytest.param(fields, id=name) for name, fields in INVALID.items()])
def test_an_entry_that_means_nothing_is_refused(cluster: Cluster, acls: Acls, fields: dict[str, Any]) -> None:
    name = cluster.name()
    (error,) = acls.create(replace(acls.rule(TOPIC, name, READ), **fields))
    expect("the entry is accepted", False, error == 0)
    expect("entries of the name", (), tuple(entries(acls.describe(resource_name_filter=name))))


@clause("ACL-4")
@defect(Reply(DeleteAclsRequest, "filter_results.error_code", ErrorCode.INVALID_REQUEST))
def test_a_filter_may_match_nothing(cluster: Cluster, acls: Acls) -> None:
    deleted = acls.delete(resource_name_filter=cluster.name())
    expect("error code and entries", {(0, ())}, (deleted.error_code, deleted.matching_acls))


# -- what an entry does ----------------------------------------------------------------------------------


def coordinator_node(cluster: Cluster, group: str) -> int:
    with cluster.coordinator(group) as coordinator:
        return next(node for node, address in cluster.target.addresses.items() if address == coordinator.address)


def assert_refused_once_denied(cluster: Cluster, acls: Acls, needed: Needed, topic: Topic) -> None:
    names = names_of(cluster, topic)
    name = {"TOPIC": topic.name, "GROUP": names.group, "TRANSACTIONAL_ID": names.transactional_id}[needed.kind]
    of_group = hasattr(needed.request(EXAMPLE), "group_id")
    user = acls.connect(coordinator_node(cluster, names.group) if of_group else topic.leader_id)
    user.version_of(needed.type)
    if needed.resource == lists.GROUP and error_of(user, needed, names) == ErrorCode.UNSUPPORTED_VERSION:
        raise Unsupported("the request is advertised, but its groups are not enabled")
    before, refusal = state_of(cluster, topic), needed.refusal
    acls.put(
        acls.rule(needed.resource, name, ALL, lists.ALLOW), acls.rule(needed.resource, name, needed.operation),
        *([acls.rule(TOPIC, name, FORWARDED_CONTROL.operation)] if needed.forwarded else []),
    )  # fmt: skip
    if needed.forwarded:  # the controller knows the other entries when it knows the last one
        cluster.eventually(
            "the controller to know the entries", lambda: error_of(user, FORWARDED_CONTROL, names) == refusal
        )
        expect("error code", refusal, error_of(user, needed, names))
    else:
        cluster.eventually("the refusal", lambda: error_of(user, needed, names) == refusal)
    expect("topic: error code, partitions, offsets", {before}, state_of(cluster, topic))
    allowed = next(control for control in CONTROLS[needed.kind] if control.operation != needed.operation)
    expect("another operation is refused", False, error_of(user, allowed, names) == refusal)


@clause("ACL-5")
@pytest.mark.parametrize("needed", rows("TOPIC"))
def test_who_is_denied_an_operation_on_a_topic_is_refused(
    cluster: Cluster, acls: Acls, topic: Topic, needed: Needed
) -> None:
    assert_refused_once_denied(cluster, acls, needed, topic)


@clause("ACL-6")
@pytest.mark.parametrize("needed", rows("GROUP"))
def test_who_is_denied_an_operation_on_a_group_is_refused(
    cluster: Cluster, acls: Acls, topic: Topic, needed: Needed
) -> None:
    assert_refused_once_denied(cluster, acls, needed, topic)


@clause("ACL-7")
@pytest.mark.parametrize("needed", rows("TRANSACTIONAL_ID"))
def test_who_is_denied_an_operation_on_a_transactional_id_is_refused(
    cluster: Cluster, acls: Acls, topic: Topic, needed: Needed
) -> None:
    assert_refused_once_denied(cluster, acls, needed, topic)


@clause("ACL-8")
@pytest.mark.defect(*(Reply(needed.type, needed.error, 0) for needed in NEEDED["CLUSTER"].values()))
@pytest.mark.cluster_fault
def test_who_is_denied_the_cluster_is_refused(cluster: Cluster, acls: Acls, topic: Topic) -> None:
    """Alone, because the user may do nothing with the cluster while this case runs."""
    names = names_of(cluster, topic)
    user = acls.connect()
    advertised = [needed for needed in NEEDED["CLUSTER"].values() if api_of(needed.type).key in user.advertised]
    acls.deny(lists.CLUSTER, lists.CLUSTER_NAME, ALL)
    for needed in advertised:
        expect(f"error code of {needed.api}", needed.refusal, error_of(user, needed, names))


def produce_error(acls: Acls, topic: Topic) -> int:
    with acls.connect(topic.leader_id) as user:
        return user.produce(topic, batch(b"v"), version=user.version_of(ProduceRequest)).error_code


@clause("ACL-9", "prefix")
@defect(Request(CreateAclsRequest, "creations.resource_pattern_type", lists.LITERAL))
def test_a_prefix_applies_to_every_name_that_begins_with_it(cluster: Cluster, acls: Acls, topic: Topic) -> None:
    inside = cluster.create_topic()
    acls.deny(TOPIC, inside.name[:-1], WRITE, resource_pattern_type=PREFIXED)
    cluster.eventually("the refusal", lambda: produce_error(acls, inside) == REFUSED)
    outside = cluster.create_topic(name=f"x-{inside.name}")
    expect("error code outside the prefix", 0, produce_error(acls, outside))


@clause("ACL-9", "all users")
@defect(
    Request(CreateAclsRequest, "creations.principal", OTHER_USER),
    Reply(ProduceRequest, "responses.partition_responses.error_code", 0),
)
def test_an_entry_for_all_users_applies_to_the_user(cluster: Cluster, acls: Acls, topic: Topic) -> None:
    """The allowance comes first: without it any entry of the topic would close it to the user."""
    acls.allow(TOPIC, topic.name, ALL)
    expect("error code before the denial", 0, produce_error(acls, topic))
    acls.deny(TOPIC, topic.name, WRITE, principal=lists.ALL_USERS)
    cluster.eventually("the refusal", lambda: produce_error(acls, topic) == REFUSED)


@clause("ACL-9", "other principal")
@defect(Request(CreateAclsRequest, "creations.principal", lists.ALL_USERS))
def test_an_entry_for_another_user_denies_nothing(acls: Acls, topic: Topic) -> None:
    acls.deny(TOPIC, topic.name, WRITE, principal=OTHER_USER)
    acls.allow(TOPIC, topic.name, WRITE)
    expect("error code", 0, produce_error(acls, topic))


@clause("ACL-9", "other host")
@defect(Request(CreateAclsRequest, "creations.host", "*"))
def test_an_entry_for_another_host_denies_nothing(acls: Acls, topic: Topic) -> None:
    acls.deny(TOPIC, topic.name, WRITE, host=OTHER_HOST)
    acls.allow(TOPIC, topic.name, WRITE)
    expect("error code", 0, produce_error(acls, topic))


@clause("ACL-10")
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", 0))
def test_a_denial_outweighs_an_allowance(cluster: Cluster, acls: Acls, topic: Topic) -> None:
    acls.put(acls.rule(TOPIC, topic.name, ALL, lists.ALLOW), acls.rule(TOPIC, topic.name, WRITE, DENY))
    cluster.eventually("the refusal", lambda: produce_error(acls, topic) == REFUSED)
    with acls.connect(topic.leader_id) as user:
        expect("error code of Fetch, which is allowed", 0, user.fetch(topic, 0).error_code)


@clause("ACL-10", "only others")
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", 0))
def test_what_is_allowed_to_others_only_is_refused(cluster: Cluster, acls: Acls, topic: Topic) -> None:
    acls.allow(TOPIC, topic.name, WRITE, principal=OTHER_USER)
    cluster.eventually("the refusal", lambda: produce_error(acls, topic) == REFUSED)


@clause("ACL-11")
@defect(Reply(MetadataRequest, "topics.error_code", REFUSED))
@pytest.mark.parametrize(
    "operation", [READ, WRITE, lists.DELETE, lists.ALTER], ids=["READ", "WRITE", "DELETE", "ALTER"]
)
def test_who_may_do_more_may_also_describe(cluster: Cluster, acls: Acls, topic: Topic, operation: int) -> None:
    acls.allow(TOPIC, topic.name, operation)
    with acls.connect() as user:
        expect("error code of the topic", 0, only(user.metadata(topic.name).topics).error_code)
    needed = NEEDED["TOPIC"]["DescribeConfigs"]
    with acls.connect() as user:
        expect("error code of DescribeConfigs", REFUSED, error_of(user, needed, names_of(cluster, topic)))


@clause("ACL-12")
@defect(Reply(MetadataRequest, "topics.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
def test_a_refusal_does_not_show_whether_the_topic_exists(cluster: Cluster, acls: Acls, topic: Topic) -> None:
    missing = cluster.name()
    acls.deny(TOPIC, topic.name, ALL)
    acls.deny(TOPIC, missing, ALL)
    with acls.connect() as user:
        errors = {found.name: found.error_code for found in user.metadata(topic.name, missing).topics}
    expect("error codes", True, errors == {topic.name: REFUSED, missing: REFUSED})


@clause("ACL-12", "list of topics")
@defect(Reply(MetadataRequest, "topics", lambda topics: (*topics, replace(topics[0], error_code=REFUSED))))
def test_the_list_of_all_topics_leaves_out_what_may_not_be_described(acls: Acls, topic: Topic) -> None:
    acls.deny(TOPIC, topic.name, ALL)
    with acls.connect() as user:
        found = user.call(MetadataRequest(topics=None), user.version_of(MetadataRequest, 1)).topics
    expect("the topic is in the list", False, topic.name in {each.name for each in found})
    expect("error codes in the list", True, REFUSED not in {each.error_code for each in found})


@clause("ACL-12", "committed offsets")
@defect(Reply(OffsetFetchRequest, "topics", lambda topics: (*topics, replace(topics[0], name="hidden"))))
def test_the_list_of_all_offsets_leaves_out_topics_that_may_not_be_described(
    cluster: Cluster, acls: Acls, topic: Topic
) -> None:
    group, visible = cluster.group(), cluster.create_topic()
    coordinator = cluster.coordinator(group)
    for each in (topic, visible):
        expect("error code of the commit", 0, commit(coordinator, group, each, 1))
    acls.deny(TOPIC, topic.name, ALL)
    with acls.connect(coordinator_node(cluster, group)) as user:
        found = committed_topics(user, group, None, 7)
    expect("topics", {(visible.name,)}, tuple(each.name for each in found))


@clause("ACL-13")
@defect(Request(MetadataRequest, "include_topic_authorized_operations", False))
def test_operations_that_are_allowed_are_returned_on_request(acls: Acls, topic: Topic) -> None:
    acls.put(acls.rule(TOPIC, topic.name, ALL, lists.ALLOW), acls.rule(TOPIC, topic.name, WRITE))
    with acls.connect() as user:
        version = max(OPERATIONS_SINCE, user.version_of(MetadataRequest, OPERATIONS_SINCE))
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=topic.name),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        bits = only(user.call(request, version).topics).topic_authorized_operations
    allowed = {operation for operation in range(lists.READ, 12) if bits >> operation & 1 and bits >= 0}
    expect("reading is allowed", True, READ in allowed)
    expect("writing is allowed", False, WRITE in allowed)


@clause("ACL-14")
@defect(Request(DeleteAclsRequest, "filters.operation", READ))
def test_a_deleted_entry_no_longer_applies(cluster: Cluster, acls: Acls, topic: Topic) -> None:
    acls.deny(TOPIC, topic.name, WRITE)
    cluster.eventually("the refusal", lambda: produce_error(acls, topic) == REFUSED)
    expect("error code", 0, acls.delete(resource_name_filter=topic.name, operation=WRITE).error_code)
    cluster.eventually("the permission", lambda: produce_error(acls, topic) == 0)


@clause("ACL-15")
@defect(Reply(FetchRequest, "responses.partitions.error_code", 0))
def test_the_other_topics_of_a_request_are_served(cluster: Cluster, acls: Acls, topic: Topic) -> None:
    """Both have their leader on one broker, so that one request can name both."""
    allowed = cluster.create_topic(assignment=[topic.leader_id])
    acls.deny(TOPIC, topic.name, READ)
    with acls.connect(topic.leader_id) as user:
        expect("error code of the denied topic", REFUSED, user.fetch(topic, 0).error_code)
        refused, served = (NEEDED["TOPIC"]["Fetch"].request(Names(each, "", "")) for each in (topic, allowed))
        both = replace(refused, topics=(*refused.topics, *served.topics), replica_id=CONSUMER)
        reply = user.call(both)
    errors = {each.topic: only(each.partitions).error_code for each in reply.responses}
    expect("error codes", True, errors == {topic.name: REFUSED, allowed.name: 0})

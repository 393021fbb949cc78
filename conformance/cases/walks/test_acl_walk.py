"""Walks over access control lists (KIP-140, KIP-290): entries, filters and permissions are compared with a model."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest

from highwater.conformance.cases.support.acls import Acls, entries, filter_of, lists_of
from highwater.conformance.cases.support.admin import controller
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect
from highwater.conformance.models import acls as lists
from highwater.conformance.models.acls import (
    ALL,
    ALLOW,
    ANY,
    ANYTHING,
    DENY,
    DESCRIBE,
    LITERAL,
    MATCH,
    OF_TOPICS,
    PREFIXED,
    READ,
    TOPIC,
    WILDCARD,
    WRITE,
    expected,
    matches,
)
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.security import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

SEED: Final = 290
OTHER_HOST: Final = "192.0.2.1"
ROUNDS: Final = 6
FILTERS: Final = 25
"""Random filters in each round."""
CHANGES: Final = 14
OPERATIONS_SINCE: Final = 8
INVALID: Final[tuple[dict[str, Any], ...]] = ({"resource_name": ""}, {"resource_type": lists.CLUSTER})
"""Fields with which an entry alone is refused. For an operation, a type or a permission that no entry can have, Apache
Kafka 4.3.1 refuses the whole request with UNKNOWN_SERVER_ERROR (CreateAclsRequest.aclBinding throws)."""


@pytest.fixture
def acls(cluster: Cluster) -> Iterator[Acls]:
    with lists_of(cluster) as found:
        yield found


class AclWalk:
    """The entries of two principals that only this case names, so that it can compare and delete all of them."""

    def __init__(self, cluster: Cluster, acls: Acls) -> None:
        self.cluster, self.acls, self.random = cluster, acls, random.Random(SEED)
        name = cluster.name()
        self.names = (name, f"{name}-b", f"{name}-b-c", WILDCARD)
        self.principals = tuple(f"User:{cluster.name('u')}" for _ in range(2))
        self.entries: set[AclCreation] = set()

    def any_entry(self) -> AclCreation:
        choose, name = self.random.choice, self.random.choice(self.names)
        return AclCreation(
            resource_type=choose((TOPIC, lists.GROUP, lists.TRANSACTIONAL_ID)), resource_name=name,
            resource_pattern_type=LITERAL if name == WILDCARD else choose((LITERAL, PREFIXED)),
            principal=choose(self.principals), host=choose(("*", OTHER_HOST)),
            operation=choose((ALL, READ, WRITE, DESCRIBE)), permission_type=choose((ALLOW, DENY)),
        )  # fmt: skip

    def any_filter(self, principals: Sequence[str | None]) -> dict[str, Any]:
        choose = self.random.choice
        chosen = {
            "resource_type_filter": choose((ANY, TOPIC, lists.GROUP, lists.TRANSACTIONAL_ID, lists.CLUSTER)),
            "resource_name_filter": choose((None, *self.names, f"{self.names[0]}-bc")),
            "pattern_type_filter": choose((ANY, MATCH, LITERAL, PREFIXED)), "principal_filter": choose(principals),
            "host_filter": choose((None, "*", OTHER_HOST)), "operation": choose((ANY, ALL, READ, DESCRIBE)),
            "permission_type": choose((ANY, ALLOW, DENY)),
        }  # fmt: skip
        given = self.random.sample(sorted(set(chosen) - {"principal_filter"}), self.random.randint(0, 3))
        return {**ANYTHING, **{field: chosen[field] for field in (*given, "principal_filter")}}

    def create(self) -> None:
        """Create entries, some twice and some again, with an invalid one between them, and compare the results."""
        valid = [self.any_entry() for _ in range(self.random.randint(2, 6))]
        again = self.random.sample(sorted(self.entries, key=repr), min(2, len(self.entries)))
        refused = [replace(self.any_entry(), **fields) for fields in INVALID]
        sent = [*valid, *again, valid[0], *refused]
        self.random.shuffle(sent)
        with controller(self.cluster) as broker:
            results = broker.call(CreateAclsRequest(creations=tuple(sent))).results
        found = [(each.error_code, bool(each.error_message)) for each in results]
        wrong = (int(ErrorCode.INVALID_REQUEST), True)
        expect("error codes of CreateAcls", [wrong if each in refused else (0, False) for each in sent], found)
        self.entries |= {*valid, *again}

    def delete(self) -> None:
        """Delete by several filters in one request; an entry may be reported for each filter that it matches."""
        wanted = [self.any_filter(self.principals) for _ in range(self.random.randint(1, 3))]
        request = DeleteAclsRequest(filters=tuple(DeleteAclsFilter(**each) for each in wanted))
        with controller(self.cluster) as broker:
            results = broker.call(request).filter_results
        expect("number of results of DeleteAcls", len(wanted), len(results))
        left = set(self.entries)
        for each, result in zip(wanted, results, strict=True):
            gone = {entry for entry in self.entries if matches(each, entry)}
            found = [self._deleted(acl) for acl in result.matching_acls]
            expect(f"error code for {each}", 0, result.error_code)
            self._compare(f"entries deleted by {each}", (gone, gone & left), found)
            left -= gone
        self.entries = left

    def _deleted(self, acl: Any) -> AclCreation:
        expect("error code of a deleted entry", 0, acl.error_code)
        return AclCreation(
            resource_type=acl.resource_type, resource_name=acl.resource_name, resource_pattern_type=acl.pattern_type,
            principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type,
        )  # fmt: skip

    def _compare(self, what: str, allowed: Sequence[set[AclCreation]], found: Sequence[AclCreation]) -> None:
        expect(f"{what}: each is named once", len(set(found)), len(found))
        if set(found) not in allowed:
            missing, extra = allowed[0] - set(found), set(found) - allowed[0]
            expect(f"{what}: missing, and others", (set(), set()), (missing, extra))

    def check(self) -> None:
        """Wait until each broker describes the entries of the model, and compare what filters return."""
        brokers = [self.cluster.connect(address) for address in self.cluster.target.addresses.values()]
        for broker in brokers:
            self.cluster.eventually("the entries at every broker", partial(self._is_known, broker))
        single = [{**ANYTHING, "principal_filter": each} for each in (None, *self.principals, "User:*")]
        for wanted in (*single, *(self.any_filter((None, *self.principals)) for _ in range(FILTERS))):
            found = self._own(self.random.choice(brokers), wanted)
            expected = {entry for entry in self.entries if matches(wanted, entry)}
            self._compare(f"entries that {wanted} matches", [expected], found)

    def _own(self, broker: Broker, wanted: dict[str, Any]) -> list[AclCreation]:
        found = entries(broker.call(filter_of(**wanted)))
        return [entry for entry in found if entry.principal in self.principals]

    def _is_known(self, broker: Broker) -> bool:
        return set(self._own(broker, ANYTHING)) == self.entries

    def close(self) -> None:
        filters = tuple(DeleteAclsFilter(**{**ANYTHING, "principal_filter": each}) for each in self.principals)
        with controller(self.cluster) as broker:
            broker.call(DeleteAclsRequest(filters=filters))


@clause("ACL-2", "mixed")
@defect(
    Request(CreateAclsRequest, "creations.host", "*"),
    Reply(DescribeAclsRequest, "resources", lambda resources: resources[1:]),
    Reply(DeleteAclsRequest, "filter_results.matching_acls", lambda acls: acls[1:]),
    Request(DescribeAclsRequest, "pattern_type_filter", ANY),
)
def test_entries_and_filters_follow_the_model(cluster: Cluster, acls: Acls) -> None:
    walk = AclWalk(cluster, acls)
    try:
        for _ in range(ROUNDS):
            walk.create()
            walk.create()
            walk.check()
            walk.delete()
            walk.check()
    finally:
        walk.close()


# -- what is allowed ---------------------------------------------------------------------------------------


def described(broker: Broker, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the error code and the allowed operations of each topic, as a logged-in user sees them."""
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names), allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )  # fmt: skip
    found = broker.call(request, broker.version_of(MetadataRequest, OPERATIONS_SINCE)).topics
    return {topic.name: (topic.error_code, topic.topic_authorized_operations) for topic in found}


@clause("ACL-13", "mixed")
@defect(
    Request(CreateAclsRequest, "creations.principal", lists.ALL_USERS),
    Request(CreateAclsRequest, "creations.resource_pattern_type", LITERAL),
    Request(DeleteAclsRequest, "filters.operation", WRITE),
)
def test_permissions_follow_the_model(cluster: Cluster, acls: Acls) -> None:
    """Entries for the user, for others and for all, from every host and another one, come and go one by one."""
    chance, first = random.Random(SEED), cluster.create_topic().name
    names = (first, *(cluster.create_topic(name=f"{first}{end}").name for end in ("-b", "-b-c")))
    others = acls.rule(TOPIC, first, ALL, ALLOW, principal="User:hw-other", resource_pattern_type=PREFIXED)
    acls.put(others)  # without any entry of its own a topic may be open to all
    rules, users = {others}, [acls.connect(node) for node in cluster.target.addresses]

    def any_rule() -> AclCreation:
        return acls.rule(
            TOPIC, chance.choice(names), chance.choice((ALL, *OF_TOPICS)), chance.choice((ALLOW, ALLOW, DENY)),
            principal=chance.choice((acls.principal, acls.principal, lists.ALL_USERS, "User:hw-other")),
            host=chance.choice(("*", "*", OTHER_HOST)), resource_pattern_type=chance.choice((LITERAL, PREFIXED)),
        )  # fmt: skip

    def follows(user: Broker) -> bool:
        return described(user, names) == {name: expected(rules, acls.principal, name) for name in names}

    for step in range(CHANGES):
        removed = chance.choice(sorted(rules - {others}, key=repr)) if step % 3 == 2 else None
        if removed:
            rules.discard(removed)
            acls.delete(
                resource_type_filter=TOPIC, resource_name_filter=removed.resource_name, host_filter=removed.host,
                pattern_type_filter=removed.resource_pattern_type, principal_filter=removed.principal,
                operation=removed.operation, permission_type=removed.permission_type,
            )  # fmt: skip
        else:
            added = {any_rule() for _ in range(3)}
            expect("error codes of CreateAcls", [0] * len(added), acls.create(*added))
            rules |= added
        for user in users:
            wanted = {name: expected(rules, acls.principal, name) for name in names}
            cluster.eventually(f"after change {step}, operations {wanted}", partial(follows, user))

"""Fields of requests about client quotas, SCRAM users and access control lists."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pytest

from highwater.conformance.broker import Broker, expect
from highwater.conformance.cases.fields.partitions import INT32_MAX
from highwater.conformance.cases.fields.table import Answers, Api, Call, Row, changed, check_all, no_items, shared
from highwater.conformance.cases.support.acls import ALLOW, ANY, ANYTHING, LITERAL, MATCH, NOT_IN_CHARGE, READ, TOPIC
from highwater.conformance.cases.support.admin import controller
from highwater.conformance.clause import KRAFT, clause
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterEntityData,
    ComponentData,
    DescribeClientQuotasRequest,
    OpData,
)
from highwater.reference.wire.messages.security import (
    AclCreation,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

INVALID, NOT_FOUND, DUPLICATE, UNACCEPTABLE, NO_MECHANISM, NO_VERSION = (
    ErrorCode.INVALID_REQUEST, ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE,
    ErrorCode.UNACCEPTABLE_CREDENTIAL, ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.UNSUPPORTED_VERSION,
)  # fmt: skip
USER, CLIENT, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = range(3)
PRODUCED, FETCHED, CONNECTED = "producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"
SHA_256, SHA_512 = 1, 2


@dataclass
class World:
    """The controller, and the names of users, which `clean_up` removes with their quotas and credentials."""

    cluster: Cluster
    names: list[str] = field(default_factory=list)

    @cached_property
    def controller(self) -> Broker:
        return controller(self.cluster)

    @cached_property
    def broker(self) -> Broker:
        return self.cluster.connect()

    def name(self) -> str:
        self.names.append(self.cluster.name("u"))
        return self.names[-1]


def call_controller(world: World, request: Any, version: int) -> Any:
    return world.controller.call(request, version)


def read_error(reply: Any) -> int:
    return int(reply.error_code)


# -- AlterClientQuotas -------------------------------------------------------------------------------------

Entity = tuple[tuple[str, str | None], ...]
NEW: Final = "new"
"""In a row, a new name."""


def op(key: str = PRODUCED, value: float | None = 1000.0) -> OpData:
    """Return a change; None removes the quota."""
    return OpData(key=key, value=value or 0.0, remove=value is None)


def quota(*ops: OpData, entity: Entity = ((USER, NEW),)) -> Callable[[World], AlterClientQuotasRequestEntryData]:
    def build(world: World) -> AlterClientQuotasRequestEntryData:
        parts = tuple(
            AlterEntityData(entity_type=kind, entity_name=world.name() if name == NEW else name)
            for kind, name in entity
        )
        return AlterClientQuotasRequestEntryData(entity=parts, ops=ops or (op(),))

    return build


def without_changes(world: World) -> AlterClientQuotasRequestEntryData:
    entity = (AlterEntityData(entity_type=USER, entity_name=world.name()),)
    return AlterClientQuotasRequestEntryData(entity=entity, ops=())


def alter_quotas(world: World, items: Sequence[AlterClientQuotasRequestEntryData], version: int) -> Answers:
    reply = world.controller.call(AlterClientQuotasRequest(entries=tuple(items)), version)
    return {_entity_key(entry): entry.error_code for entry in reply.entries}


def _entity_key(entry: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((part.entity_type, part.entity_name or "") for part in entry.entity))


def has_quotas(**expected: float) -> Callable[[World, Any], None]:
    """Return a check of the quotas of the entity of an item, which has one part."""

    def stored(world: World, item: AlterClientQuotasRequestEntryData) -> None:
        (part,) = item.entity
        component = ComponentData(entity_type=part.entity_type, match_type=EXACT, match=part.entity_name)
        request = DescribeClientQuotasRequest(components=(component,), strict=True)

        def found() -> dict[str, float]:
            entries = world.broker.call(request).entries or ()
            return dict(sorted((value.key, value.value) for entry in entries for value in entry.values))

        with suppress(TargetFailure):
            world.cluster.eventually("the quotas", lambda: found() == expected)
        expect("quotas of the entity", str(expected), str(found()))

    return stored


def remove_quotas(world: World) -> None:
    entities = [AlterEntityData(entity_type=kind, entity_name=name) for kind in (USER, CLIENT) for name in world.names]
    ops = (op(PRODUCED, None), op(FETCHED, None), op("request_percentage", None))
    entries = tuple(AlterClientQuotasRequestEntryData(entity=(entity,), ops=ops) for entity in entities)
    world.controller.call(AlterClientQuotasRequest(entries=entries))


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


@pytest.fixture
def quota_world(cluster: Cluster) -> Iterator[World]:
    world = World(cluster)
    yield world
    with suppress(TargetFailure, Unsupported):
        remove_quotas(world)


ALTER_QUOTAS: Final = Api(AlterClientQuotasRequest, quota(), alter_quotas, _entity_key, call=call_controller)
QUOTAS: Final[list[Row | Call]] = [
    Row("entity empty", quota(entity=()), INVALID),
    Row("entity of an unknown type", quota(entity=(("team", NEW),)), INVALID),
    Row("entity with an unknown type too", quota(entity=((USER, NEW), ("team", NEW))), INVALID),
    Row("entity without a type", quota(entity=(("", NEW),)), INVALID),
    Row("entity type in upper case", quota(entity=(("USER", NEW),)), INVALID),
    Row("ip with user", quota(op(CONNECTED), entity=((IP, "127.0.0.9"), (USER, NEW))), INVALID),
    Row("ip invalid", quota(op(CONNECTED, 10.0), entity=((IP, "1.2.3.4.5"),)), INVALID),
    Row("entity_name empty", quota(entity=((USER, ""),)), INVALID),
    Row("entity_name null, removed", quota(op(value=None), entity=((CLIENT, None),))),
    Row("client-id", quota(entity=((CLIENT, NEW),)), stored=has_quotas(producer_byte_rate=1000.0)),
    Row("key of ips", quota(op(CONNECTED)), INVALID, has_quotas()),
    Row("key empty", quota(op("")), INVALID, has_quotas()),
    Row("key in upper case", quota(op(PRODUCED.upper())), INVALID, has_quotas()),
    Row("key unknown beside a known one", quota(op(), op("no_such_rate")), INVALID, has_quotas()),
    Row("value 0", quota(op(value=0.0)), INVALID, has_quotas()),
    Row("value negative", quota(op(value=-1.0)), INVALID, has_quotas()),
    Row("value not whole", quota(op(value=1.5)), INVALID, has_quotas()),
    Row("value infinite", quota(op(value=float("inf"))), INVALID, has_quotas()),
    Row("percentage not whole", quota(op("request_percentage", 0.5)), stored=has_quotas(request_percentage=0.5)),
    Row("removal of an absent quota", quota(op(value=None)), stored=has_quotas()),
    Row("removal of an unknown key", quota(op("no_such_rate", None)), frozenset({0, INVALID}), has_quotas()),
    Row("ops empty", without_changes, stored=has_quotas()),
    Row("two keys", quota(op(), op(FETCHED, 5.0)), 0, has_quotas(consumer_byte_rate=5.0, producer_byte_rate=1000.0)),
    Call("entries empty", lambda world: AlterClientQuotasRequest(), 0, lambda reply: len(reply.entries)),
]


@clause("FLD-10", "AlterClientQuotas")
@KRAFT
@defect(Reply(AlterClientQuotasRequest, "entries.error_code", increment))
@pytest.mark.parametrize("rows", shared(*QUOTAS))
def test_fields_of_a_change_of_quotas(quota_world: World, rows: Sequence[Row | Call]) -> None:
    check_all(ALTER_QUOTAS, rows, quota_world, quota_world.controller)


# -- DescribeClientQuotas ----------------------------------------------------------------------------------


def quotas_of(*components: tuple[str, int, str | None], strict: bool = False) -> Callable[[World], Any]:
    return lambda world: DescribeClientQuotasRequest(
        strict=strict,
        components=tuple(
            ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in components
        ),
    )


def read_described(reply: Any) -> tuple[int, int]:
    """Return the error code and the number of entries."""
    return reply.error_code, len(reply.entries or ())


REFUSED: Final = (INVALID, 0)
DESCRIBED: Final = [
    Call("components empty", quotas_of(), 0, read_error),
    Call("type unknown", quotas_of(("team", EXACT, "a")), (NO_VERSION, 0), read_described),
    Call("type empty", quotas_of(("", EXACT, "a")), REFUSED, read_described),
    Call("type twice", quotas_of((USER, EXACT, "a"), (USER, EXACT, "b")), REFUSED, read_described),
    Call("type twice in two ways", quotas_of((USER, EXACT, "a"), (USER, SPECIFIED, None)), REFUSED, read_described),
    Call("ip with user", quotas_of((IP, SPECIFIED, None), (USER, EXACT, "a")), REFUSED, read_described),
    Call("match_type 3", quotas_of((USER, 3, None)), REFUSED, read_described),
    Call("match_type negative", quotas_of((USER, -1, None)), REFUSED, read_described),
    Call("name null of an exact match", quotas_of((USER, EXACT, None)), REFUSED, read_described),
    Call("name of the default", quotas_of((USER, DEFAULT, "a")), REFUSED, read_described),
    Call("name of any", quotas_of((USER, SPECIFIED, "a")), REFUSED, read_described),
    Call("name unknown", quotas_of((USER, EXACT, "hw-none")), (0, 0), read_described),
    Call("name empty", quotas_of((USER, EXACT, "")), (0, 0), read_described),
]


@clause("FLD-10", "DescribeClientQuotas")
@KRAFT
@defect(Reply(DescribeClientQuotasRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*DESCRIBED))
def test_fields_of_a_description_of_quotas(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(DescribeClientQuotasRequest), rows, world, world.broker)


# -- AlterUserScramCredentials, DescribeUserScramCredentials -----------------------------------------------


def credential(name: str = NEW, **fields: Any) -> Callable[[World], ScramCredentialUpsertion]:
    usual = {"mechanism": SHA_256, "iterations": 4096, "salt": b"s" * 16, "salted_password": b"p" * 32}
    return lambda world: ScramCredentialUpsertion(
        **changed({"name": world.name() if name == NEW else name, **usual}, fields)
    )


def alter_users(world: World, items: Sequence[ScramCredentialUpsertion], version: int) -> Answers:
    reply = world.controller.call(AlterUserScramCredentialsRequest(upsertions=tuple(items)), version)
    return {result.user: result.error_code for result in reply.results}


def described_users(world: World, *names: str) -> tuple[Any, ...]:
    """Return error code, and number of credentials, for each user."""
    request = DescribeUserScramCredentialsRequest(users=tuple(UserName(name=name) for name in names))
    results = world.broker.call(request).results
    return tuple((result.error_code, len(result.credential_infos)) for result in results)


def is_user(count: int) -> Callable[[World, ScramCredentialUpsertion], None]:
    """Return a check of the number of credentials of the user of an item."""
    wanted = ((0 if count else NOT_FOUND, count),)

    def stored(world: World, item: ScramCredentialUpsertion) -> None:
        with suppress(TargetFailure):
            world.cluster.eventually("the credentials", lambda: described_users(world, item.name) == wanted)
        expect("error code and credentials of the user", wanted, described_users(world, item.name))

    return stored


def users(*wanted: tuple[str, int, bool]) -> Callable[[World], Any]:
    """Return a builder of a request for users, equal names for equal users, each with mechanism and deletion or not."""

    def build(world: World) -> AlterUserScramCredentialsRequest:
        names = {each: world.name() if each else "" for each in dict.fromkeys(name for name, _, _ in wanted)}
        deletions, upsertions = list[Any](), list[Any]()
        for name, mechanism, deleted in wanted:
            if deleted:
                deletions.append(ScramCredentialDeletion(name=names[name], mechanism=mechanism))
            else:
                upsertions.append(credential(names[name], mechanism=mechanism)(world))
        return AlterUserScramCredentialsRequest(deletions=tuple(deletions), upsertions=tuple(upsertions))

    return build


def read_users(reply: Any) -> tuple[int, ...]:
    """Return the error code of each answer, in order."""
    return tuple(sorted(result.error_code for result in reply.results))


@pytest.fixture
def user_world(cluster: Cluster) -> Iterator[World]:
    world = World(cluster)
    yield world
    with suppress(TargetFailure, Unsupported):
        for mechanism in (SHA_256, SHA_512):
            deletions = tuple(ScramCredentialDeletion(name=name, mechanism=mechanism) for name in world.names)
            world.controller.call(AlterUserScramCredentialsRequest(deletions=deletions))


ALTER_USERS: Final = Api(
    AlterUserScramCredentialsRequest, credential(), alter_users, lambda each: each.name, call=call_controller
)
SET_A: Final = ("a", SHA_256, False)
USERS: Final[list[Row | Call]] = [
    Row("name empty", credential(""), UNACCEPTABLE),
    Row("mechanism 0", credential(mechanism=0), NO_MECHANISM, is_user(0)),
    Row("mechanism 3", credential(mechanism=3), NO_MECHANISM, is_user(0)),
    Row("mechanism negative", credential(mechanism=-1), NO_MECHANISM, is_user(0)),
    Row("mechanism of the longer hash", credential(mechanism=SHA_512, salted_password=b"p" * 64), 0, is_user(1)),
    Row("iterations 0", credential(iterations=0), UNACCEPTABLE, is_user(0)),
    Row("iterations negative", credential(iterations=-1), UNACCEPTABLE, is_user(0)),
    Row("iterations one too few", credential(iterations=4095), UNACCEPTABLE, is_user(0)),
    Row("iterations at the limit", credential(iterations=16_384), 0, is_user(1)),
    Row("iterations one too many", credential(iterations=16_385), UNACCEPTABLE, is_user(0)),
    Row("iterations largest", credential(iterations=INT32_MAX), UNACCEPTABLE, is_user(0)),
    Call("nothing", users(), (), read_users),
    Call("user twice", users(SET_A, SET_A), (DUPLICATE,), read_users),
    Call("user twice among others", users(SET_A, ("b", SHA_256, False), SET_A), (0, DUPLICATE), read_users),
    Call("both mechanisms", users(SET_A, ("a", SHA_512, False)), (DUPLICATE,), read_users),
    Call("set and deleted", users(SET_A, ("a", SHA_256, True)), frozenset({(DUPLICATE,), (NOT_FOUND,)}), read_users),
    Call("deletion of an unknown user", users(("a", SHA_256, True)), (NOT_FOUND,), read_users),
    Call("deletion of no mechanism", users(("a", 0, True)), (NO_MECHANISM,), read_users),
    Call("deletion of mechanism 3", users(("a", 3, True)), (NO_MECHANISM,), read_users),
    Call("deletion without a name", users(("", SHA_256, True)), (UNACCEPTABLE,), read_users),
    Call("deletion beside a new user", users(("b", SHA_256, True), SET_A), (0, NOT_FOUND), read_users),
]


def users_of(*names: str, **fields: Any) -> Callable[[World], Any]:
    return lambda world: DescribeUserScramCredentialsRequest(
        **changed({"users": tuple(UserName(name=name) for name in names)}, fields)
    )


def read_user_errors(reply: Any) -> tuple[int, ...]:
    """Return the error code, then those of the answers, in order."""
    return reply.error_code, *sorted(result.error_code for result in reply.results)


DESCRIBED_USERS: Final = [
    Call("users empty", users_of(), 0, read_error),
    Call("users null", users_of(users=None), 0, read_error),
    Call("user unknown", users_of("hw-none"), (0, NOT_FOUND), read_user_errors),
    Call("user unknown twice", users_of("hw-none", "hw-none"), (0, DUPLICATE), read_user_errors),
    Call("two unknown users", users_of("hw-none", "hw-none-2"), (0, NOT_FOUND, NOT_FOUND), read_user_errors),
    Call("user without a name", users_of(""), (0, NOT_FOUND), read_user_errors),
]


@clause("FLD-10", "AlterUserScramCredentials")
@KRAFT
@defect(Reply(AlterUserScramCredentialsRequest, "results.error_code", increment))
@pytest.mark.parametrize("rows", shared(*USERS))
def test_fields_of_a_change_of_users(user_world: World, rows: Sequence[Row | Call]) -> None:
    check_all(ALTER_USERS, rows, user_world, user_world.controller)


@clause("FLD-10", "DescribeUserScramCredentials")
@KRAFT
@defect(Reply(DescribeUserScramCredentialsRequest, "results.error_code", increment))
@pytest.mark.parametrize("rows", shared(*DESCRIBED_USERS))
def test_fields_of_a_description_of_users(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(DescribeUserScramCredentialsRequest), rows, world, world.broker)


# -- CreateAcls, DescribeAcls, DeleteAcls ------------------------------------------------------------------

ACL_PATTERNS: Final = (1, None)
"""The versions with types of patterns."""
ALIEN: Final = "User:hw-absent"
"""A principal that no connection of the suite has."""


def entry(**fields: Any) -> Callable[[World], AclCreation]:
    """Return a builder of an entry that allows a new topic to be read by a user that does not exist."""
    usual = {
        "resource_type": TOPIC, "resource_pattern_type": LITERAL, "principal": ALIEN, "host": "*", "operation": READ,
        "permission_type": ALLOW,
    }  # fmt: skip
    return lambda world: AclCreation(**changed({"resource_name": world.name(), **usual}, fields))


def create_acls(world: World, items: Sequence[AclCreation], version: int) -> Answers:
    results = call_acls(world, CreateAclsRequest(creations=tuple(items)), version).results
    return {each: result.error_code for each, result in zip(items, results, strict=True)}


def call_acls(world: World, request: Any, version: int) -> Any:
    """Send a request to the controller; raise Unsupported without an authorizer that the connection may change."""
    reply = world.controller.call(request, version)
    results = (reply, *getattr(reply, "results", ()), *getattr(reply, "filter_results", ()))
    if any(getattr(result, "error_code", 0) in NOT_IN_CHARGE for result in results):
        raise Unsupported("no authorizer whose lists this connection may change")
    return reply


def is_listed(count: int) -> Callable[[World, AclCreation], None]:
    """Return a check of the number of entries of the resource of an item."""

    def stored(world: World, item: AclCreation) -> None:
        named = {"resource_type_filter": TOPIC, "resource_name_filter": item.resource_name}

        def found() -> int:
            reply = world.broker.call(DescribeAclsRequest(**ANYTHING | named))
            return sum(len(resource.acls) for resource in reply.resources)

        with suppress(TargetFailure):
            world.cluster.eventually("the entries", lambda: found() == count)
        expect("entries of the resource", count, found())

    return stored


def filtered(request: Callable[..., Any], **fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request with a filter for the entries of a topic that does not exist."""
    named = {"resource_type_filter": TOPIC, "resource_name_filter": "hw-none", "principal_filter": "User:hw-none"}
    return lambda world: request(**changed(ANYTHING | named, fields))


def delete_of(**fields: Any) -> DeleteAclsRequest:
    return DeleteAclsRequest(filters=(DeleteAclsFilter(**fields),))


def read_entries(reply: Any) -> tuple[int, int]:
    return reply.error_code, len(reply.resources)


def read_deleted(reply: Any) -> tuple[tuple[int, int], ...]:
    """Return the error code and the number of entries of each filter."""
    return tuple((result.error_code, len(result.matching_acls)) for result in reply.filter_results)


FILTERS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("resource_name empty", {"resource_name_filter": ""}),
    ("resource_name with a blank", {"resource_name_filter": "a b"}),
    ("resource_name of all", {"resource_name_filter": "*"}),
    ("principal empty", {"principal_filter": ""}),
    ("principal without type", {"principal_filter": "hw-absent"}),
    ("host empty", {"host_filter": ""}),
    ("host unknown", {"host_filter": "no such host"}),
]
"""Name of a row, and changed fields of a filter that matches no entry."""
NOT_ONE: Final = frozenset({INVALID, ErrorCode.UNKNOWN_SERVER_ERROR})
"""The error for an entry that names several resources or operations; Apache Kafka 4.3.1 rejects the whole request."""
BESIDE_IT: Final = frozenset({0, ErrorCode.UNKNOWN_SERVER_ERROR})
CREATE_ACLS: Final = Api(CreateAclsRequest, entry(), create_acls, lambda each: each)
CREATED: Final[list[Row | Call]] = [
    Row("without changes", entry(), 0, is_listed(1)),
    Row("resource_type any", entry(resource_type=ANY), NOT_ONE, is_listed(0), BESIDE_IT),
    Row("resource_type of another cluster", entry(resource_type=4), INVALID, is_listed(0)),
    Row("resource_name empty", entry(resource_name=""), INVALID),
    Row("pattern_type any", entry(resource_pattern_type=ANY), NOT_ONE, is_listed(0), BESIDE_IT, versions=ACL_PATTERNS),
    Row(
        "pattern_type match",
        entry(resource_pattern_type=MATCH),
        NOT_ONE,
        is_listed(0),
        BESIDE_IT,
        versions=ACL_PATTERNS,
    ),
    Row("principal without type", entry(principal="hw-absent"), INVALID, is_listed(0)),
    Row("principal empty", entry(principal=""), INVALID, is_listed(0)),
    Row("principal of a type without name", entry(principal="User:"), frozenset({0, INVALID})),
    Row("host empty", entry(host=""), 0, is_listed(1)),
    Row("operation any", entry(operation=ANY), NOT_ONE, is_listed(0), BESIDE_IT),
    Row("permission_type any", entry(permission_type=ANY), NOT_ONE, is_listed(0), BESIDE_IT),
    Call("creations empty", lambda world: CreateAclsRequest(), 0, lambda reply: len(reply.results)),
]
LISTED: Final = [
    *(
        Call(name, filtered(DescribeAclsRequest, **fields), (0, 0), read_entries, ACL_PATTERNS)
        for name, fields in FILTERS
    ),
]
ERASED: Final = [
    Call("filters empty", lambda world: DeleteAclsRequest(), (), read_deleted),
    *(Call(name, filtered(delete_of, **fields), ((0, 0),), read_deleted, ACL_PATTERNS) for name, fields in FILTERS),
]


@pytest.fixture
def acl_world(cluster: Cluster) -> Iterator[World]:
    world = World(cluster)
    call_acls(world, filtered(DescribeAclsRequest)(world), world.controller.version_of(DescribeAclsRequest))
    yield world
    with suppress(TargetFailure, Unsupported):
        named = {"resource_type_filter": TOPIC, "principal_filter": ALIEN}
        filters = tuple(DeleteAclsFilter(**ANYTHING | named | {"resource_name_filter": name}) for name in world.names)
        world.controller.call(DeleteAclsRequest(filters=filters))


@clause("FLD-10", "CreateAcls")
@KRAFT
@defect(Reply(CreateAclsRequest, "results.error_code", increment))
@pytest.mark.parametrize("rows", shared(*CREATED))
def test_fields_of_new_entries_of_access_control_lists(acl_world: World, rows: Sequence[Row | Call]) -> None:
    check_all(CREATE_ACLS, rows, acl_world, acl_world.controller)


@clause("FLD-10", "DescribeAcls")
@KRAFT
@defect(Reply(DescribeAclsRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*LISTED))
def test_fields_of_a_filter_of_access_control_lists(acl_world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(DescribeAclsRequest), rows, acl_world, acl_world.broker)


@clause("FLD-10", "DeleteAcls")
@KRAFT
@defect(Reply(DeleteAclsRequest, "filter_results.error_code", increment))
@pytest.mark.parametrize("rows", shared(*ERASED))
def test_fields_of_a_deletion_from_access_control_lists(acl_world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(DeleteAclsRequest), rows, acl_world, acl_world.controller)

"""A model of access control lists (KIP-140, KIP-290): which entries a filter matches, and what they allow."""

from collections.abc import Collection
from typing import Any, Final

from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.security import AclCreation

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(2, 9)
DESCRIBE_CONFIGS, ALTER_CONFIGS = 10, 11
DENY, ALLOW = 2, 3
CLUSTER_NAME: Final = "kafka-cluster"
ALL_USERS: Final = "User:*"
ANYTHING: Final[dict[str, Any]] = {
    "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY, "principal_filter": None,
    "host_filter": None, "operation": ANY, "permission_type": ANY,
}  # fmt: skip
WILDCARD: Final = "*"
UNSET: Final = -(2**31)
OF_TOPICS: Final = (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, 10, 11)
"""What Metadata reports of a topic: 10 and 11 are DESCRIBE_CONFIGS and ALTER_CONFIGS."""
IMPLIED: Final = {
    DESCRIBE: {READ, WRITE, DELETE, ALTER},
    DESCRIBE_CONFIGS: {ALTER_CONFIGS},
}
"""By operation, those whose permission includes it."""


def applies_to(entry: AclCreation, name: str) -> bool:
    """Return whether the pattern of an entry takes a resource of its type with this name."""
    if entry.resource_pattern_type == PREFIXED:
        return name.startswith(entry.resource_name)
    return entry.resource_name in {name, WILDCARD}


def matches(wanted: dict[str, Any], entry: AclCreation) -> bool:
    """Return whether an entry matches each field of a filter (ResourcePatternFilter, AccessControlEntryFilter)."""
    pattern, name = wanted["pattern_type_filter"], wanted["resource_name_filter"]
    named = applies_to(entry, name) if pattern == MATCH and name is not None else name in {None, entry.resource_name}
    return (
        named
        and wanted["resource_type_filter"] in {ANY, entry.resource_type}
        and pattern in {ANY, MATCH, entry.resource_pattern_type}
        and wanted["principal_filter"] in {None, entry.principal}
        and wanted["host_filter"] in {None, entry.host}
        and wanted["operation"] in {ANY, entry.operation}
        and wanted["permission_type"] in {ANY, entry.permission_type}
    )


def is_allowed(rules: Collection[AclCreation], principal: str, topic: str, operation: int) -> bool:
    """Return whether the entries let a user on this host do it: a denial outweighs all, and else one must allow it."""
    applying = [
        each
        for each in rules
        if each.resource_type == TOPIC and each.principal in {principal, ALL_USERS}
        and each.host == "*" and applies_to(each, topic)
    ]  # fmt: skip
    if any(each.permission_type == DENY and each.operation in {operation, ALL} for each in applying):
        return False
    enough = {operation, ALL, *IMPLIED.get(operation, ())}
    return any(each.permission_type == ALLOW and each.operation in enough for each in applying)


def expected(rules: Collection[AclCreation], principal: str, topic: str) -> tuple[int, int]:
    """Return the error code and the allowed operations of a topic by the model."""
    if not is_allowed(rules, principal, topic, DESCRIBE):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, UNSET
    return 0, sum(1 << each for each in OF_TOPICS if is_allowed(rules, principal, topic, each))

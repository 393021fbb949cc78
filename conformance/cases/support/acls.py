"""Access control lists (KIP-140, KIP-290) for the user of the login listener, set by the suite's own connection."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from highwater.conformance.cases.support.admin import controller
from highwater.conformance.cases.support.sasl import listener
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.acls import ALLOW, ANYTHING, DENY, LITERAL
from highwater.reference.client.access import Access
from highwater.reference.security.login import Account
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import DescribeClusterRequest
from highwater.reference.wire.messages.security import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

NOT_IN_CHARGE: Final = {ErrorCode.SECURITY_DISABLED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


class Acls:
    """Lists that a case sets; `close` removes those that name one of its resources."""

    def __init__(self, cluster: Cluster) -> None:
        """Raise Unsupported unless there is a login listener, and an authorizer that this connection may change."""
        self._cluster, self._listener = cluster, listener(cluster)
        self.principal = f"User:{self._listener.user}"
        self._resources: set[tuple[int, str]] = set()
        if self.describe(resource_name_filter=cluster.name()).error_code in NOT_IN_CHARGE:
            raise Unsupported("no authorizer whose lists this connection may change")

    def connect(self, node: int | None = None) -> Broker:
        """Log in as the user, to one broker or to that of the listener."""
        found, access = self._listener, self._listener.access
        account = Account(found.mechanisms[0], found.user, found.password)
        logged_in = Access(access.context, account, access.cafile)
        first = self._cluster.connect(found.address, access=logged_in)
        if node is None:
            return first
        with first:
            brokers = first.call(DescribeClusterRequest()).brokers
        (address,) = (f"{broker.host}:{broker.port}" for broker in brokers if broker.broker_id == node)
        return self._cluster.connect(address, access=logged_in)

    # -- lists ---------------------------------------------------------------------------------------

    def rule(self, resource: int, name: str, operation: int, permission: int = DENY, **fields: Any) -> AclCreation:
        """Return an entry for the user, from every host."""
        default: dict[str, Any] = {"principal": self.principal, "host": "*", "resource_pattern_type": LITERAL}
        return AclCreation(
            resource_type=resource, resource_name=name, operation=operation, permission_type=permission,
            **(default | fields),
        )  # fmt: skip

    def create(self, *rules: AclCreation) -> list[int]:
        """Create entries and return one error code for each."""
        self._resources |= {(rule.resource_type, rule.resource_name) for rule in rules}
        with controller(self._cluster) as broker:
            return [result.error_code for result in broker.call(CreateAclsRequest(creations=rules)).results]

    def put(self, *rules: AclCreation) -> None:
        """Create entries and wait until every broker describes them."""
        expect("error codes of CreateAcls", [0] * len(rules), self.create(*rules))
        for rule in rules:
            self._cluster.eventually("the entry at every broker", partial(self._is_known, rule))

    def deny(self, resource: int, name: str, operation: int, **fields: Any) -> None:
        self.put(self.rule(resource, name, operation, DENY, **fields))

    def allow(self, resource: int, name: str, operation: int, **fields: Any) -> None:
        self.put(self.rule(resource, name, operation, ALLOW, **fields))

    def _is_known(self, rule: AclCreation) -> bool:
        target = self._cluster.target
        addresses = [address for node, address in target.addresses.items() if self._cluster.is_up(node)]
        return all(rule in self._entries_at(address, rule.resource_type, rule.resource_name) for address in addresses)

    def _entries_at(self, address: str, resource: int, name: str) -> set[AclCreation]:
        with self._cluster.connect(address) as broker:
            reply = broker.call(filter_of(resource_type_filter=resource, resource_name_filter=name))
        return set(entries(reply))

    def describe(self, **fields: Any) -> Any:
        with self._cluster.connect() as broker:
            return broker.call(filter_of(**fields))

    def delete(self, **fields: Any) -> Any:
        """Delete the entries that match a filter and return the only result."""
        request = DeleteAclsRequest(filters=(DeleteAclsFilter(**(ANYTHING | fields)),))
        with controller(self._cluster) as broker:
            return only(broker.call(request).filter_results)

    def close(self) -> None:
        for resource, name in self._resources:
            self.delete(resource_type_filter=resource, resource_name_filter=name)


def filter_of(**fields: Any) -> DescribeAclsRequest:
    """Return a request for the entries with these fields, and with anything in the others."""
    return DescribeAclsRequest(**(ANYTHING | fields))


def entries(reply: Any) -> Iterator[AclCreation]:
    """Return what DescribeAcls lists as it could have been created."""
    expect("error code of DescribeAcls", 0, reply.error_code)
    for resource in reply.resources:
        for acl in resource.acls:
            yield AclCreation(
                resource_type=resource.resource_type, resource_name=resource.resource_name,
                resource_pattern_type=resource.pattern_type, principal=acl.principal, host=acl.host,
                operation=acl.operation, permission_type=acl.permission_type,
            )  # fmt: skip


@contextmanager
def lists_of(cluster: Cluster) -> Iterator[Acls]:
    """Yield the lists of a case and remove them at the end."""
    acls = Acls(cluster)
    try:
        yield acls
    finally:
        acls.close()

"""Walks over client quotas and SCRAM users: replies, and what every filter describes, are compared with a model."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from highwater.conformance.cases.support.admin import controller
from highwater.conformance.cases.support.polling import eventually_equal, spread
from highwater.conformance.clause import clause, era
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.defects import Reply, Request, defect, increment, without_error
from highwater.conformance.failures import TargetFailure
from highwater.conformance.models.comparison import compare
from highwater.conformance.models.quotas import (
    CLIENT,
    EXACT,
    FETCHED,
    PRODUCED,
    REQUESTS,
    SPECIFIED,
    USER,
    Change,
    Entity,
    Quotas,
)
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntityData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from highwater.reference.wire.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)


class QuotaWalk:
    """Alters quotas of entities and keeps them in a model."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.broker, self.controller = cluster, cluster.connect(), controller(cluster)
        self.quotas = Quotas()
        self.steps = 0

    def alter(self, wanted: Sequence[tuple[Entity, Sequence[Change], int]], *, validate_only: bool = False) -> None:
        """Alter several entities in one request; each is altered, or rejected with its error."""
        versions = spread(self.controller, AlterClientQuotasRequest)
        version, self.steps = versions[self.steps % len(versions)], self.steps + 1
        request = message(
            AlterClientQuotasRequest,
            entries=[
                [_components(entity), [[key, value or 0.0, value is None] for key, value in changes]]
                for entity, changes, _ in wanted
            ],
            validate_only=validate_only,
        )
        results = [{"error_code": error, "entity": _components(entity)} for entity, _, error in wanted]
        reply = self.controller.call(request, version)
        compare(f"AlterClientQuotas {version} of {wanted}", message(
            AlterClientQuotasResponse, entries=results,
        ), reply, version)  # fmt: skip
        for entity, changes, error in wanted:
            if not error and not validate_only:
                self.quotas.change(entity, changes)
        self.check()

    def removals(self) -> list[tuple[Entity, list[Change], int]]:
        """Return the changes that leave no quota."""
        return [(entity, [(key, None) for key in known], 0) for entity, known in self.quotas.values.items() if known]

    def check(self) -> None:
        """Compare what filters by exact and by any names return, strict ones and others."""
        names = sorted({part for entity in self.quotas.values for part in entity})
        filters: list[tuple[tuple[str, int, str], ...]] = [((kind, EXACT, name),) for kind, name in names]
        filters += [((kind, SPECIFIED, ""),) for kind in (USER, CLIENT)]
        filters += [((kind, EXACT, name), (other, SPECIFIED, "")) for kind, name in names for other in _other(kind)]
        versions = spread(self.broker, DescribeClientQuotasRequest)
        for number, components in enumerate(filters):
            version, strict = versions[number % len(versions)], (number + self.steps) % 2 == 0
            request = message(
                DescribeClientQuotasRequest,
                components=[[kind, match, name if match == EXACT else None] for kind, match, name in components],
                strict=strict,
            )  # fmt: skip
            found = self.quotas.matching(components, strict=strict)
            expected = DescribeClientQuotasResponse(entries=tuple(self._entry(entity) for entity in found))
            what = f"DescribeClientQuotas {version} of {components}{', strict' if strict else ''}"
            eventually_equal(self.cluster, what, expected, partial(self._own, request, version), version)

    def _own(self, request: DescribeClientQuotasRequest, version: int) -> DescribeClientQuotasResponse:
        """Return the reply with the names of this case only; other cases may have quotas too."""
        reply: DescribeClientQuotasResponse = self.broker.call(request, version)
        own = tuple(
            replace(entry, entity=tuple(sorted(entry.entity, key=lambda part: part.entity_type)),
                    values=tuple(sorted(entry.values, key=lambda value: value.key)))
            for entry in reply.entries or ()
            if all(self.cluster.prefix in (part.entity_name or "") for part in entry.entity)
        )  # fmt: skip
        return replace(reply, entries=own)

    def _entry(self, entity: Entity) -> EntryData:
        return EntryData(
            entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
            values=tuple(ValueData(key=key, value=value) for key, value in sorted(self.quotas.values[entity].items())),
        )


def _other(kind: str) -> Iterable[str]:
    return [each for each in (USER, CLIENT) if each != kind]


def _components(entity: Entity) -> tuple[AlterEntityData, ...]:
    return tuple(AlterEntityData(entity_type=kind, entity_name=name) for kind, name in entity)


@clause("QTA-12", "walk")
@defect(
    Reply(AlterClientQuotasRequest, "entries.error_code", without_error(ErrorCode.INVALID_REQUEST)),
    Request(DescribeClientQuotasRequest, "strict", False),
    Request(AlterClientQuotasRequest, "entries.ops", lambda changes: changes[:1]),
)
def test_quotas_follow_the_model(cluster: Cluster) -> None:
    """Users, client ids and pairs of both have quotas; invalid ones are between valid ones of each request."""
    cluster.connect().version_of(AlterClientQuotasRequest)
    walk = QuotaWalk(cluster)
    users, clients = ([cluster.name(kind) for _ in range(2)] for kind in ("u", "c"))
    user: Entity = ((USER, users[0]),)
    other: Entity = ((USER, users[1]),)
    client: Entity = ((CLIENT, clients[0]),)
    pair: Entity = ((CLIENT, clients[0]), (USER, users[0]))
    unknown: Entity = (("team", users[0]),)
    invalid = ErrorCode.INVALID_REQUEST
    try:
        walk.alter([(user, [(PRODUCED, 1000.0), (FETCHED, 2000.0)], 0), (unknown, [(PRODUCED, 1.0)], invalid),
                    (pair, [(PRODUCED, 500.0)], 0)])  # fmt: skip
        walk.alter([(client, [("no_such_rate", 1.0)], invalid), (other, [(REQUESTS, 12.5)], 0)])
        walk.alter([(user, [(PRODUCED, None)], 0), (client, [(FETCHED, 3000.0)], 0)], validate_only=True)
        walk.alter([(user, [(PRODUCED, None), (FETCHED, 2500.0)], 0), (client, [(FETCHED, 3000.0)], 0)])
        walk.alter([(pair, [(FETCHED, None), (REQUESTS, 1.0)], 0), (other, [(PRODUCED, 1.0), (REQUESTS, 99.0)], 0)])
        walk.alter([(client, [(PRODUCED, 7.0), ("no_such_rate", 1.0)], invalid), (pair, [(PRODUCED, None)], 0)])
        walk.alter(walk.removals())
    finally:
        with suppress(TargetFailure):
            walk.alter(walk.removals())


# -- SCRAM users ---------------------------------------------------------------------------------------

SHA_256, SHA_512, UNKNOWN_MECHANISM = 1, 2, 9
FEWEST, MOST = 4096, 16384
KEY: Final = b"k" * 64


@clause("SEC-23", "walk")
@era("3.9")  # 2.8.2 deletes two mechanisms of a user in one request
@defect(
    Reply(DescribeUserScramCredentialsRequest, "results.credential_infos.iterations", increment),
    Reply(AlterUserScramCredentialsRequest, "results.error_code", without_error(ErrorCode.UNACCEPTABLE_CREDENTIAL)),
)
def test_the_credentials_of_users_follow_the_model(cluster: Cluster) -> None:
    """Each request sets and deletes credentials of several users; a user with an invalid change keeps what it had."""
    cluster.connect().version_of(AlterUserScramCredentialsRequest)
    first, second, third = (cluster.name("u") for _ in range(3))
    known: dict[str, dict[int, int]] = {}
    too_few, too_many = (ErrorCode.UNACCEPTABLE_CREDENTIAL,) * 2
    mechanism, twice, missing = (
        ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.DUPLICATE_RESOURCE, ErrorCode.RESOURCE_NOT_FOUND,
    )  # fmt: skip
    changes: list[tuple[dict[str, int], list[tuple[str, int]], list[tuple[str, int, int]]]] = [
        ({}, [], [(first, SHA_256, FEWEST), (second, SHA_256, MOST)]),
        ({second: too_few}, [], [(first, SHA_512, FEWEST + 1), (second, SHA_512, FEWEST - 1), (third, SHA_512, 8192)]),
        ({first: too_many, third: missing}, [(third, SHA_256)], [(first, SHA_256, MOST + 1), (second, SHA_512, 5000)]),
        ({first: mechanism}, [(second, SHA_256)], [(first, UNKNOWN_MECHANISM, 5000), (third, SHA_256, 6000)]),
        ({first: twice}, [(first, SHA_256), (third, SHA_512)], [(first, SHA_256, 5000), (second, SHA_256, 7000)]),
        ({second: twice}, [(second, SHA_256), (second, SHA_512)], [(first, SHA_256, 9000)]),
        ({}, [(second, SHA_512)], []),
    ]
    try:
        for errors, deleted, set_ in changes:
            _alter_users(cluster, errors, deleted, set_)
            for user, kind in deleted:
                if user not in errors:
                    del known[user][kind]
            for user, kind, iterations in set_:
                if user not in errors:
                    known.setdefault(user, {})[kind] = iterations
            _check_users(cluster, known, [first, cluster.name("absent"), third, second])
    finally:
        for left in [(user, kind) for user, kinds in known.items() for kind in kinds]:
            with suppress(TargetFailure):
                _alter_users(cluster, {}, [left], [])


def _alter_users(
    cluster: Cluster, errors: dict[str, int], deleted: Sequence[tuple[str, int]], set_: Sequence[tuple[str, int, int]]
) -> None:
    request = message(
        AlterUserScramCredentialsRequest,
        deletions=[[user, kind] for user, kind in deleted],
        upsertions=[
            {
                "name": user,
                "mechanism": kind,
                "iterations": count,
                "salt": b"salt" * 4,
                "salted_password": KEY[: 32 * min(kind, 2)],
            }
            for user, kind, count in set_
        ],
    )
    users = sorted({user for user, _ in deleted} | {user for user, _, _ in set_})
    results = [[user, errors.get(user, 0)] for user in users]
    with controller(cluster) as broker:
        reply = broker.call(request)
    compare(
        f"AlterUserScramCredentials {deleted}, {set_}",
        message(AlterUserScramCredentialsResponse, results=results),
        reply,
        0,
    )


def _check_users(cluster: Cluster, known: dict[str, dict[int, int]], users: Sequence[str]) -> None:
    request = message(DescribeUserScramCredentialsRequest, users=list(users))
    results = [{
        "user": user, "error_code": 0 if known.get(user) else ErrorCode.RESOURCE_NOT_FOUND,
        "credential_infos": [[kind, count] for kind, count in known.get(user, {}).items()],
    } for user in users]  # fmt: skip
    expected: Any = message(DescribeUserScramCredentialsResponse, results=results)
    with cluster.connect() as broker:
        eventually_equal(cluster, "DescribeUserScramCredentials", expected, lambda: broker.call(request), 0)

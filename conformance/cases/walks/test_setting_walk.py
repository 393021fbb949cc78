"""Walks over the settings of topics: each reply, and all settings as they are described, are compared with a model."""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from highwater.conformance.cases.support.admin import config_changes, controller, create, describe_configs, new_topic
from highwater.conformance.cases.support.polling import eventually_equal, spread
from highwater.conformance.clause import KRAFT, clause
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.defects import Reply, Request, defect, without_error
from highwater.conformance.models.comparison import compare
from highwater.conformance.models.settings import (
    APPEND,
    DELETE,
    INVALID,
    ITEMS,
    LISTS,
    SET,
    SUBTRACT,
    TOPIC,
    VALUES,
    Change,
    TopicSettings,
)
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
Outcome = Any
"""The overrides of a topic after a request, or an error code."""


class SettingWalk:
    """Changes settings of topics, beside one that does not exist, and keeps their models up to date."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.broker, self.controller = cluster, cluster.connect(), controller(cluster)
        names = [cluster.topic_name() for _ in range(3)]
        for name, result in create(cluster, *map(new_topic, names)).items():
            assert not result.error_code, name
        cluster.eventually("the topics", lambda: all(self._has(name) for name in names))
        unaltered = self._unaltered(names[0])
        self.topics = [TopicSettings(name, unaltered) for name in names]
        self.absent = cluster.name("absent")
        self.steps = 0

    def _has(self, name: str) -> bool:
        return not describe_configs(self.broker, name).error_code

    def _unaltered(self, name: str) -> Any:
        """Return all settings of a topic without overrides."""
        described = describe_configs(self.broker, name, include_synonyms=True)
        return {found.name: found for found in described.configs}

    def check(self) -> None:
        """Compare all settings, or some of them, of all topics, in the versions in turn, with or without synonyms."""
        self.steps += 1
        versions = spread(self.broker, DescribeConfigsRequest)
        version = versions[self.steps % len(versions)]
        synonyms = version > 0 and self.steps % 2 == 0
        names = None if self.steps % 3 else ("retention.ms", "no.such.setting", *LISTS)
        request = message(
            DescribeConfigsRequest,
            resources=[
                [TOPIC, name, names]
                for name in (self.topics[0].name, self.absent, *(each.name for each in self.topics[1:]))
            ],
            include_synonyms=synonyms,
        )
        absent = {"error_code": UNKNOWN, "resource_type": TOPIC, "resource_name": self.absent}
        described = [each.described(names, version, synonyms=synonyms) for each in self.topics]
        expected = message(DescribeConfigsResponse, results=[absent, *described])
        what = f"after change {self.steps}, DescribeConfigs {version}"
        eventually_equal(self.cluster, what, expected, lambda: self.broker.call(request, version), version)

    def change(self, changes: dict[str, Sequence[Change]], *, validate_only: bool, version: int) -> None:
        """Send IncrementalAlterConfigs for several topics at once."""
        request = IncrementalAlterConfigsRequest(
            resources=tuple(config_changes(name, *each) for name, each in changes.items()), validate_only=validate_only
        )
        outcomes = self._outcomes(changes, lambda topic: topic.changed(changes[topic.name]))
        results = tuple(
            IncrementalAlterConfigsResourceResponse(error_code=_error(each), resource_type=TOPIC, resource_name=name)
            for name, each in outcomes.items()
        )
        what = f"IncrementalAlterConfigs {version} of {changes}"
        expected = IncrementalAlterConfigsResponse(responses=results)
        compare(what, expected, self.controller.call(request, version), version)
        self._apply(outcomes, validate_only)

    def replace(self, values: dict[str, dict[str, str | None]], *, validate_only: bool, version: int) -> None:
        """Send AlterConfigs for several topics at once."""
        request = message(
            AlterConfigsRequest,
            resources=[[TOPIC, name, [[key, value] for key, value in each.items()]] for name, each in values.items()],
            validate_only=validate_only,
        )  # fmt: skip
        outcomes = self._outcomes(values, lambda topic: topic.replaced(values[topic.name]))
        results = tuple(
            AlterConfigsResourceResponse(error_code=_error(each), resource_type=TOPIC, resource_name=name)
            for name, each in outcomes.items()
        )
        what = f"AlterConfigs {version} of {values}"
        compare(what, AlterConfigsResponse(responses=results), self.controller.call(request, version), version)
        self._apply(outcomes, validate_only)

    def _outcomes(self, names: dict[str, Any], outcome: Callable[[TopicSettings], Outcome]) -> dict[str, Outcome]:
        by_name = {each.name: each for each in self.topics}
        return {name: outcome(by_name[name]) if name in by_name else UNKNOWN for name in names}

    def _apply(self, outcomes: dict[str, Outcome], validate_only: bool) -> None:
        for topic in self.topics:
            found = outcomes.get(topic.name)
            if isinstance(found, dict) and not validate_only:
                topic.overrides = found
        self.check()


def _error(outcome: Outcome) -> Any:
    return 0 if isinstance(outcome, dict) else outcome


def random_change(chance: random.Random, *, valid: bool) -> Change:
    if valid:
        name = chance.choice(list(VALUES))
        operation = chance.choice((SET, SET, DELETE, APPEND, SUBTRACT) if name in LISTS else (SET, SET, DELETE))
        if operation in {APPEND, SUBTRACT}:
            return name, operation, chance.choice(ITEMS[name])
        return name, operation, chance.choice(VALUES[name]) if operation == SET else chance.choice((None, "unused"))
    name = chance.choice(list(INVALID))
    return chance.choice(
        [(name, SET, chance.choice(INVALID[name])), ("retention.ms", SET, None), ("retention.ms", APPEND, "1"),
         ("compression.type", SUBTRACT, "gzip")]
    )  # fmt: skip


@clause("ADM-47")
@KRAFT
@defect(
    Request(IncrementalAlterConfigsRequest, "resources.configs.config_operation", SET),
    Reply(DescribeConfigsRequest, "results.configs.config_source", 5),
    Reply(IncrementalAlterConfigsRequest, "responses.error_code", without_error(ErrorCode.INVALID_CONFIG)),
)
def test_changes_of_single_settings_follow_the_model(cluster: Cluster) -> None:
    cluster.connect().version_of(IncrementalAlterConfigsRequest)
    walk, chance = SettingWalk(cluster), cluster.draws.generator(4)
    versions = spread(walk.controller, IncrementalAlterConfigsRequest)
    names = [walk.topics[0].name, walk.absent, *(each.name for each in walk.topics[1:])]
    for step in cluster.draws.steps(24, chance):
        changes: dict[str, Sequence[Change]] = {}
        for name in chance.sample(names, chance.randint(1, 4)):
            each = [
                random_change(chance, valid=True) for _ in range(1 if name == walk.absent else chance.randint(0, 3))
            ]
            if step % 3 == 0 and name not in {walk.absent, names[-1]}:
                each.insert(chance.randint(0, len(each)), random_change(chance, valid=False))
            changes[name] = each
        walk.change(changes, validate_only=step % 6 == 5, version=versions[step % len(versions)])


@clause("ADM-47", "replaced")
@KRAFT
@defect(
    Request(AlterConfigsRequest, "validate_only", False),
    Reply(AlterConfigsRequest, "responses.error_code", without_error(ErrorCode.INVALID_CONFIG)),
)
def test_replaced_settings_follow_the_model(cluster: Cluster) -> None:
    cluster.connect().version_of(AlterConfigsRequest)
    walk, chance = SettingWalk(cluster), cluster.draws.generator(5)
    versions = spread(walk.controller, AlterConfigsRequest)
    names = [walk.topics[0].name, walk.absent, *(each.name for each in walk.topics[1:])]
    for step in cluster.draws.steps(15, chance):
        values: dict[str, dict[str, str | None]] = {}
        for name in chance.sample(names, chance.randint(1, 4)):
            chosen = chance.sample(list(VALUES), chance.randint(0, 4))
            values[name] = {key: chance.choice(VALUES[key]) for key in chosen}
            if step % 3 == 1 and name not in {walk.absent, names[-1]}:
                key = chance.choice(list(INVALID))
                values[name][key] = chance.choice((None, *INVALID[key]))
        walk.replace(values, validate_only=step % 5 == 4, version=versions[step % len(versions)])

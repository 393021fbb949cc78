"""A model of the settings of topics: the overrides of each, and what a request makes of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from highwater.conformance.models.comparison import one_of
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

TOPIC: Final = 2
"""Type of a resource."""
TOPIC_SOURCE: Final = 1
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]
"""Name, operation and value."""
LISTS: Final = ("cleanup.policy", "follower.replication.throttled.replicas")
VALUES: Final[dict[str, tuple[str, ...]]] = {
    "retention.ms": ("-1", "0", "1000"),
    "segment.bytes": ("1048576", "2147483647"),
    "max.message.bytes": ("0", "12345"),
    "compression.type": ("gzip", "uncompressed", "producer"),
    "min.cleanable.dirty.ratio": ("0.0", "1.0", "0.25"),
    "message.timestamp.type": ("LogAppendTime", "CreateTime"),
    "unclean.leader.election.enable": ("true", "false"),
    "cleanup.policy": ("compact", "delete", "compact,delete"),
    "follower.replication.throttled.replicas": ("*", "0:1,1:1"),
}
"""Valid values, the limits among them."""
INVALID: Final[dict[str, tuple[str, ...]]] = {
    "retention.ms": ("-2", "soon", ""),
    "segment.bytes": ("2147483648", "-1"),
    "max.message.bytes": ("-1", "1.5"),
    "compression.type": ("zip", ""),
    "min.cleanable.dirty.ratio": ("1.01", "-0.1"),
    "message.timestamp.type": ("createtime",),
    "unclean.leader.election.enable": ("yes",),
    "cleanup.policy": ("burn", "compact,burn"),
    "no.such.setting": ("1",),
}
"""Values that are rejected, next to the limits or of another type, and a setting that does not exist."""
ITEMS: Final = {
    "cleanup.policy": ("compact", "delete"),
    "follower.replication.throttled.replicas": ("0:1", "1:2", "2:1"),
}
"""Single items to append and to subtract."""


@dataclass(slots=True, eq=False)
class TopicSettings:
    """The overrides of one topic; `defaults` describe a topic without any, for all names and synonyms."""

    name: str
    defaults: dict[str, DescribeConfigsResourceResult]
    overrides: dict[str, str] = field(default_factory=dict)

    def changed(self, changes: Sequence[Change]) -> "dict[str, str] | int | Any":
        """Return the overrides after an IncrementalAlterConfigs, or the error of its first invalid change."""
        names = [name for name, _, _ in changes]
        if len(set(names)) < len(names):
            return ErrorCode.INVALID_REQUEST
        if any(value is None and operation != DELETE for _, operation, value in changes):
            return ErrorCode.INVALID_REQUEST
        result = dict(self.overrides)
        for name, operation, value in changes:
            if operation == DELETE:
                result.pop(name, None)
            elif operation in {APPEND, SUBTRACT} and name not in LISTS:
                return one_of(ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
            elif operation == SET:
                result[name] = value or ""
            else:
                result[name] = self._list(result, name, operation, value or "")
        return result if _are_valid(result) else ErrorCode.INVALID_CONFIG

    def _list(self, values: dict[str, str], name: str, operation: int, value: str) -> str:
        """Return the list after an item was appended, unless it is there, or was subtracted."""
        default = self.defaults[name].value if name in self.defaults else None
        before = values.get(name, default) or ""
        items = [item for item in before.split(",") if item]
        if operation == APPEND:
            items += [item for item in value.split(",") if item not in items]
        else:
            items = [item for item in items if item not in value.split(",")]
        return ",".join(items)

    def replaced(self, values: dict[str, str | None]) -> dict[str, str] | int:
        """Return the overrides after an AlterConfigs, or its error."""
        if None in values.values():
            return ErrorCode.INVALID_REQUEST
        whole = {name: value or "" for name, value in values.items()}
        return whole if _are_valid(whole) else ErrorCode.INVALID_CONFIG

    def described(self, names: Iterable[str] | None, version: int, *, synonyms: bool) -> DescribeConfigsResult:
        """Return what DescribeConfigs describes of the named settings, or of all."""
        wanted = [name for name in self.defaults if names is None or name in set(names)]
        return DescribeConfigsResult(
            resource_type=TOPIC, resource_name=self.name,
            configs=tuple(self._described(name, version, synonyms=synonyms) for name in wanted),
        )  # fmt: skip

    def _described(self, name: str, version: int, *, synonyms: bool) -> DescribeConfigsResourceResult:
        found, overridden = self.defaults[name], name in self.overrides
        if overridden:
            value = self.overrides[name]
            own = DescribeConfigsSynonym(name=name, value=value, source=TOPIC_SOURCE)
            found = replace(found, value=value, config_source=TOPIC_SOURCE, synonyms=(own, *found.synonyms))
        default: Any = one_of(False, not overridden)  # only version 0 has it, and Apache Kafka did not set it
        return replace(
            found, is_default=default, synonyms=found.synonyms if synonyms else (),
            documentation=None if version >= 3 else "",
        )  # fmt: skip


def _are_valid(values: dict[str, str]) -> bool:
    return all(value not in INVALID.get(name, ()) and not _names_all_and_some(value) for name, value in values.items())


def _names_all_and_some(value: str) -> bool:
    """Whether a list of throttled replicas has others beside `*` (ThrottledReplicaListValidator)."""
    return "*" in value.split(",") and value != "*"

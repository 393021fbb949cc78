"""Each item of a request has its result: the response names the same topics, partitions, resources or groups.

A request may name an item twice, and a response may order its results in any way, so sets are compared; where a result
has no name, the numbers are.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Names = Iterable[Any]


def _each(field: str, *names: str) -> Callable[[Any], Names]:
    """Return a function that yields these fields of each element of an array."""
    return lambda message: [tuple(getattr(item, name) for name in names) for item in getattr(message, field) or ()]


def _places(topics: str, name: str, parts: str, number: str) -> Callable[[Any], Names]:
    """Return a function that yields topic and partition of each element of an array in an array."""

    def places(message: Any) -> Names:
        for topic in getattr(message, topics) or ():
            for part in getattr(topic, parts) or ():
                yield getattr(topic, name), part if isinstance(part, int) else getattr(part, number)

    return places


@dataclass(frozen=True, slots=True)
class Results:
    """How to read the items of a request and of its response, up to the version that names topics by id."""

    asked: Callable[[Any], Names]
    answered: Callable[[Any], Names]
    until: int = 99
    by_number: bool = False
    none_is_all: bool = False
    """Whether a request without items asks for all that there are."""


def _offsets_of(parts: str) -> Callable[[Any], Names]:
    """Return a function that yields the groups of an OffsetFetch since version 8, before that topics and partitions."""
    topics = _places("topics", "name", parts, "partition_index")
    return lambda message: [group.group_id for group in message.groups] or list(topics(message))


PARTITIONS: Final = _places("topics", "name", "partitions", "partition_index")
EPOCH_PARTITIONS: Final = _places("topics", "topic", "partitions", "partition")
RESOURCES: Final = _each("resources", "resource_type", "resource_name")
RESULTS: Final[Mapping[int, Results]] = {
    0: Results(
        _places("topic_data", "name", "partition_data", "index"),
        _places("responses", "name", "partition_responses", "index"), 12,
    ),
    2: Results(PARTITIONS, PARTITIONS),
    3: Results(_each("topics", "name"), _each("topics", "name"), 9, none_is_all=True),
    8: Results(PARTITIONS, PARTITIONS, 9),
    9: Results(_offsets_of("partition_indexes"), _offsets_of("partitions"), 9, none_is_all=True),
    10: Results(lambda message: message.coordinator_keys, _each("coordinators", "key")),
    13: Results(_each("members", "member_id", "group_instance_id"), _each("members", "member_id", "group_instance_id")),
    15: Results(lambda message: message.groups, _each("groups", "group_id")),
    19: Results(_each("topics", "name"), _each("topics", "name")),
    20: Results(lambda message: message.topic_names, _each("responses", "name"), 5),
    21: Results(PARTITIONS, PARTITIONS),
    23: Results(EPOCH_PARTITIONS, EPOCH_PARTITIONS),
    24: Results(
        _places("v3_and_below_topics", "name", "partitions", ""),
        _places("results_by_topic_v3_and_below", "name", "results_by_partition", "partition_index"), 3,
    ),
    28: Results(PARTITIONS, PARTITIONS),
    30: Results(lambda message: message.creations, lambda message: message.results, by_number=True),
    31: Results(lambda message: message.filters, lambda message: message.filter_results, by_number=True),
    32: Results(RESOURCES, _each("results", "resource_type", "resource_name")),
    33: Results(RESOURCES, _each("responses", "resource_type", "resource_name")),
    37: Results(_each("topics", "name"), _each("results", "name")),
    42: Results(lambda message: message.groups_names, _each("results", "group_id")),
    43: Results(
        _places("topic_partitions", "topic", "partitions", ""),
        _places("replica_election_results", "topic", "partition_result", "partition_id"), none_is_all=True,
    ),
    44: Results(RESOURCES, _each("responses", "resource_type", "resource_name")),
    45: Results(PARTITIONS, _places("responses", "name", "partitions", "partition_index")),
    47: Results(PARTITIONS, PARTITIONS),
    61: Results(_places("topics", "name", "partition_indexes", ""), PARTITIONS),
    65: Results(lambda message: message.transactional_ids, _each("transaction_states", "transactional_id")),
    69: Results(lambda message: message.group_ids, _each("groups", "group_id")),
    77: Results(lambda message: message.group_ids, _each("groups", "group_id")),
}  # fmt: skip
"""By API key."""


def missing_results(key: int, version: int, request: Any, response: Any) -> str:
    """Return what the response lacks or adds; empty if it has a result for each item, or an error for the whole."""
    results = RESULTS[key]
    failed_as_a_whole = bool(getattr(response, "error_code", None))
    if version > results.until or failed_as_a_whole:
        return ""
    asked, answered = list(results.asked(request) or ()), list(results.answered(response))
    if results.none_is_all and not asked:
        return ""
    if results.by_number:
        return "" if len(asked) == len(answered) else f"{len(answered)} results for {len(asked)} items"
    asked_names, names = Counter(map(_name, asked)), Counter(map(_name, answered))
    lacking, added = sorted(asked_names.keys() - names.keys()), sorted(names.keys() - asked_names.keys())
    if lacking or added:
        return f"results for {', '.join(added) or 'nothing'} added, for {', '.join(lacking) or 'nothing'} missing"[:200]
    return ""


def _name(item: Any) -> str:
    return "-".join(map(str, item)) if isinstance(item, tuple) else str(item)

"""Requests of probes: built from the name of an API and plain values, and what responses have in common."""

from collections.abc import Iterable
from typing import Any, Final

from highwater.reference.wire.registry import APIS
from highwater.reference.wire.schema import ArrayOf, FieldType, StructOf, fields_of

BIG: Final = 1 << 20
REQUESTS: Final = {api.name: api.request for api in APIS.values()}
VERSIONS: Final = {
    "AddOffsetsToTxn": 3, "AddPartitionsToTxn": 3, "AlterConfigs": 1, "AlterPartitionReassignments": 1,
    "CreatePartitions": 1, "CreateTopics": 5, "DeleteGroups": 1, "DeleteRecords": 2, "DeleteTopics": 3,
    "DescribeCluster": 0, "DescribeConfigs": 1, "DescribeGroups": 5, "DescribeLogDirs": 1, "DescribeProducers": 0,
    "DescribeTopicPartitions": 0, "DescribeTransactions": 0, "ElectLeaders": 2, "EndTxn": 3, "Fetch": 12,
    "FindCoordinator": 2, "Heartbeat": 3, "IncrementalAlterConfigs": 1, "InitProducerId": 4, "JoinGroup": 7,
    "LeaveGroup": 3, "ListGroups": 4, "ListOffsets": 7, "ListPartitionReassignments": 0, "ListTransactions": 0,
    "Metadata": 9, "OffsetCommit": 7, "OffsetDelete": 0, "OffsetFetch": 7, "OffsetForLeaderEpoch": 3, "Produce": 9,
    "SyncGroup": 3, "TxnOffsetCommit": 3,
}  # fmt: skip
"""The version of each request, unless a probe needs another one."""


def request(api: str, **fields: Any) -> Any:
    """Return a request; dicts in its fields become structs, and lists tuples."""
    return _built(StructOf(REQUESTS[api]), fields)


def _built(kind: FieldType, value: Any) -> Any:
    if isinstance(kind, StructOf) and isinstance(value, dict):
        types = {field.name: field.type for field in fields_of(kind.struct)}
        return kind.struct(**{name: _built(types[name], each) for name, each in value.items()})
    if isinstance(kind, ArrayOf) and value is not None:
        return tuple(_built(kind.element, each) for each in value)
    return value


def of_topics(keys: Iterable[tuple[str, Any]], name: str = "name", partitions: str = "partitions") -> list[Any]:
    """Return the topics of a request from pairs of a topic and what the request has for a partition."""
    found: dict[str, list[Any]] = {}
    for topic, part in keys:
        found.setdefault(topic, []).append(part)
    return [{name: topic, partitions: parts} for topic, parts in found.items()]


def errors_of(answer: Any) -> set[int]:
    """Return all error codes in a response."""
    found: set[int] = set()
    for field in fields_of(type(answer)):
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        elif isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructOf):
            found.update(error for each in value or () for error in errors_of(each))
    return found


def parts_of(answer: Any) -> dict[tuple[str, int], Any]:
    """Return the partitions of a response with topics, by topic and number."""
    return {(topic.name, part.partition_index): part for topic in answer.topics for part in topic.partitions}


def produce_request(topic: str, batches: dict[int, bytes], **fields: Any) -> Any:
    """Return a Produce of one batch for each partition, with acks=all unless a field says otherwise."""
    parts = [{"index": number, "records": batch} for number, batch in batches.items()]
    data = [{"name": topic, "partition_data": parts}]
    return request("Produce", **{"acks": -1, "timeout_ms": 1_500, "topic_data": data, **fields})


def fetch_request(topic: str, offsets: dict[int, int], of_each: dict[str, Any] | None = None, **fields: Any) -> Any:
    """Return a Fetch of partitions at their offsets; `of_each` has more fields of each partition."""
    asked = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": BIG, **(of_each or {})}
        for number, offset in offsets.items()
    ]
    return request(
        "Fetch", **{"max_bytes": BIG, "topics": [{"topic": topic, "partitions": asked}] if asked else [], **fields}
    )


def list_request(topic: str, timestamp: int, partition: int = 0, isolation: int = 0, epoch: int = -1) -> Any:
    """Return a ListOffsets for one partition."""
    part = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
    return request("ListOffsets", replica_id=-1, isolation_level=isolation, topics=of_topics([(topic, part)]))

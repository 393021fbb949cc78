"""Read, write and propose reassignment plans, in the JSON format of kafka-reassign-partitions.sh."""

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.errors import UsageError
from highwater.reference.controller.topic_changes import assign_replicas

VERSION: Final = 1
Key = tuple[str, int]
Plan = dict[Key, tuple[int, ...]]


class PlannedPartition(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    replicas: tuple[int, ...]


class PlanFile(msgspec.Struct, frozen=True):
    partitions: tuple[PlannedPartition, ...]
    version: int = VERSION


def read_plan(path: Path) -> Plan:
    """Read a plan file; raise UsageError if it is invalid, or names a partition or replica twice."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=PlanFile)
    except OSError as error:
        raise UsageError(f"cannot read this plan ({error.strerror})", where=str(path)) from error
    except msgspec.DecodeError as error:
        raise UsageError(
            f"this file is not a plan: {error}", where=str(path), hint="see highwater reassign generate --help"
        ) from error
    if found.version != VERSION or not found.partitions:
        raise UsageError("expected version 1 and at least one partition", where=str(path))
    plan = {(planned.topic, planned.partition): planned.replicas for planned in found.partitions}
    if len(plan) < len(found.partitions):
        raise UsageError("a partition is named more than once", where=str(path))
    for (topic, partition), replicas in plan.items():
        if not replicas or len(set(replicas)) < len(replicas):
            raise UsageError(f"{topic}-{partition} needs distinct replicas, not {list(replicas)}", where=str(path))
    return plan


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as the JSON object of Apache Kafka's tool; the plans of both tools are interchangeable."""
    parts = [
        {"topic": topic, "partition": partition, "replicas": list(replicas)}
        for (topic, partition), replicas in sorted(plan.items())
    ]
    return {"version": VERSION, "partitions": parts}


def to_text(plan: Plan) -> str:
    return json.dumps(plan_json(plan))


def propose(current: Plan, brokers: dict[int, str | None]) -> Plan:
    """Return a plan that distributes the topics over these brokers (id to rack) as a topic creation would."""
    proposed: Plan = {}
    for topic in sorted({name for name, _ in current}):
        partitions = sorted(number for name, number in current if name == topic)
        factor = max(len(current[topic, number]) for number in partitions)
        if factor > len(brokers):
            raise UsageError(f"{factor} replicas need more than the {len(brokers)} given brokers", where=topic)
        placed = assign_replicas(brokers, len(partitions), factor, start=0)
        proposed |= {(topic, number): placed[slot] for slot, number in enumerate(partitions)}
    return proposed

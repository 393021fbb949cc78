"""A topic from its creation to its deletion, and again: partitions, settings, an empty log. Refusals do not wait."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.fuzz.wire.oracles.sizes import BATCHES_SINCE, excess
from highwater.fuzz.wire.sequences.context import SequenceAbandoned, SequenceContext, Violation
from highwater.fuzz.wire.sequences.logs import FETCH_BYTES, Producer, fetch_records, random_values
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from highwater.reference.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

CREATE_PARTITIONS, REASSIGN, DESCRIBE_PAGES = 37, 45, 75
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
STEPS: Final = (4, 9)
SETTLE_S: Final = 4.0
"""Time until all requests see that a topic exists, or no longer does."""
POLL_S: Final = 0.01
PATIENT_MS: Final = 60_000
"""Timeout of a request that is refused: it must not be waited for."""
LONGEST: Final = 249
"""Characters of a topic name (org.apache.kafka.common.internals.Topic)."""
EXPLICIT_SINCE, DRY_SINCE, COUNTED_SINCE = 4, 1, 5  # versions of Metadata, CreateTopics, CreateTopics
ILLEGAL_NAMES: Final = (
    "", ".", "..", "x" * (LONGEST + 1), "x" * 300, "a/b", "a b", "ü", "a" * 30 + "!", "a-._" * 40 + "\n", "\0",
)  # fmt: skip
"""Also long runs of legal characters before an illegal one: a pattern may need exponential time for them."""
NO_BROKER: Final = 2**30
WRONG_REPLICAS: Final = ((), (NO_BROKER,), (-1,), (NO_BROKER, NO_BROKER))
"""Lists of replicas that no partition may have: none, brokers that do not exist, one twice (ReplicationControlManager.
validateManualPartitionAssignment)."""
MANY: Final = 2**31 - 1
FETCH_LIMITS: Final = (
    (1, FETCH_BYTES), (200, FETCH_BYTES), (FETCH_BYTES, 1), (FETCH_BYTES, 200), (FETCH_BYTES, FETCH_BYTES),
)  # fmt: skip
"""Bytes of a response, and of one partition in it."""
LARGEST, LARGEST_SINCE = -3, 7  # timestamp and version of ListOffsets
TOPIC_RESOURCE, SET = 2, 0
RETENTION: Final = "retention.ms"
WRONG_SETTINGS: Final = ((RETENTION, "soon"), ("cleanup.policy", "burn"), ("segment.bytes", "-7"))


@dataclass
class Topic:
    """The model: the log end offset of each partition, none if the topic does not exist."""

    name: str
    ends: list[int] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    made_by_metadata: bool = False
    """Whether Metadata has created it before: then it must be able to do so again."""


def run(context: SequenceContext) -> None:
    connection = context.connect()
    name = f"fuzz-topic-{context.rng.getrandbits(48):x}-"
    topic = Topic(name + "n" * context.rng.choice((0, 1, LONGEST - len(name))))
    try:
        for _ in context.steps(*STEPS):
            context.rng.choice(list(_steps(context, topic)))(context, connection, topic)
    finally:
        with suppress(SequenceAbandoned, Violation):
            context.call(connection, DeleteTopicsRequest(topic_names=(topic.name,), timeout_ms=5_000))


def _steps(context: SequenceContext, topic: Topic) -> Iterator["Step"]:
    yield from (create, create_illegal, validate_many, delete, describe)
    if topic.ends:
        yield from (write, write, delete)
        yield from (fetch_all, fetch_all, list_largest)
        yield from (grow, grow, grow) if context.supports(CREATE_PARTITIONS) else ()
        yield from (reassign_illegal,) if context.supports(REASSIGN) else ()
        yield from (read_pages,) if context.supports(DESCRIBE_PAGES) else ()
        yield from (set_retention, refuse_settings, validate_settings) if context.supports(DESCRIBE_CONFIGS) else ()
    else:
        yield from (create, dry_run, create_by_metadata)


# -- existence ---------------------------------------------------------------------------------------


def create(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """Create the topic; if it exists, that is refused without waiting."""
    count = context.rng.choice((1, 2, 3))
    asked = CreatableTopic(name=topic.name, num_partitions=count, replication_factor=1)
    result = _created(context, connection, asked)
    done = context.accepted(result.error_code, ErrorCode.TOPIC_ALREADY_EXISTS)
    context.require(done != bool(topic.ends), f"{topic.name}: CreateTopics says {result.error_code}")
    if done:
        context.require(result.num_partitions in (-1, count), f"{result.num_partitions} partitions, asked {count}")
        topic.ends, topic.settings = [0] * count, {}
        _await_partitions(context, connection, topic)


def _created(context: SequenceContext, connection: Connection, asked: CreatableTopic, *, dry: bool = False) -> Any:
    request = CreateTopicsRequest(topics=(asked,), timeout_ms=PATIENT_MS, validate_only=dry)
    answer = context.call(connection, request, context.version(CreateTopicsRequest, at_least=DRY_SINCE if dry else 0))
    names = [result.name for result in answer.topics]
    context.require(names == [asked.name], f"CreateTopics of {asked.name!r} has results for {names}")
    return answer.topics[0]


def dry_run(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """Validate only: the topic could be created, and is not."""
    asked = CreatableTopic(name=topic.name, num_partitions=1, replication_factor=1)
    context.accepted(_created(context, connection, asked, dry=True).error_code)
    describe(context, connection, topic)


def create_illegal(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """An illegal name, number or list of replicas is refused, without waiting."""
    counts = context.rng.choice(((0, 1), (-2, 1), (1, 0), (1, 1_000), (-1, -1), (1, 1)))
    name = f"{topic.name[:200]}-illegal"
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    if counts == (1, 1):
        name = context.rng.choice(ILLEGAL_NAMES)
    elif counts == (-1, -1):
        assignments = (CreatableReplicaAssignment(broker_ids=context.rng.choice(WRONG_REPLICAS)),)
    asked = CreatableTopic(name=name, num_partitions=counts[0], replication_factor=counts[1], assignments=assignments)
    result = _created(context, connection, asked)
    what = f"{name!r} with {counts[0]} partitions and {counts[1]} replicas"
    context.require(result.error_code != 0, f"{what}, assigned {[row.broker_ids for row in assignments]}, is created")


def validate_many(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """Validate only, with as many partitions as the field can hold: the answer must come at once, whatever it is."""
    asked = CreatableTopic(name=f"{topic.name[:200]}-many", num_partitions=MANY, replication_factor=1)
    _created(context, connection, asked, dry=True)


def create_by_metadata(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """Let Metadata create the topic, unless the broker does not do that."""
    version = context.version(MetadataRequest, at_least=EXPLICIT_SINCE)
    end = time.monotonic() + SETTLE_S
    while time.monotonic() < end:
        found = _described(context, connection, topic, version, create=True)
        if not found.error_code and found.partitions:
            topic.ends, topic.settings, topic.made_by_metadata = [0] * len(found.partitions), {}, True
            _await_partitions(context, connection, topic)
            return
        if not topic.made_by_metadata and found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise SequenceAbandoned("Metadata creates no topics")
        time.sleep(POLL_S)
    context.require(not topic.made_by_metadata, f"Metadata has created {topic.name} before, and no longer does")
    raise SequenceAbandoned("Metadata creates no topics")


def delete(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """Delete the topic; if there is none, that is refused without waiting."""
    request = DeleteTopicsRequest(topic_names=(topic.name,), timeout_ms=PATIENT_MS)
    answer = context.call(connection, request)
    names = [result.name for result in answer.responses]
    context.require(names == [topic.name], f"DeleteTopics of {topic.name} has results for {names}")
    done = context.accepted(answer.responses[0].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    context.require(done == bool(topic.ends), f"{topic.name}: DeleteTopics says {answer.responses[0].error_code}")
    topic.ends, topic.settings = [], {}
    describe(context, connection, topic)


def describe(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """Metadata shows the partitions of the topic, or that there is none."""
    if topic.ends:
        _await_partitions(context, connection, topic)
        return
    version = context.version(MetadataRequest, at_least=EXPLICIT_SINCE)
    end = time.monotonic() + SETTLE_S
    while (found := _described(context, connection, topic, version)).error_code == 0 and time.monotonic() < end:
        time.sleep(POLL_S)
    context.require(found.error_code != 0, f"{topic.name} does not exist, and Metadata shows it")


def _await_partitions(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    version = context.version(MetadataRequest, at_least=EXPLICIT_SINCE)
    end, wanted = time.monotonic() + SETTLE_S, list(range(len(topic.ends)))
    while True:
        found = _described(context, connection, topic, version)
        numbers = sorted(part.partition_index for part in found.partitions)
        led = all(part.error_code == 0 for part in found.partitions)
        if found.error_code == 0 and numbers == wanted and led:
            return
        context.require(time.monotonic() < end, f"{topic.name} has partitions {numbers}, not {wanted}")
        time.sleep(POLL_S)


def _described(
    context: SequenceContext, connection: Connection, topic: Topic, version: int, *, create: bool = False
) -> Any:
    asked = (MetadataRequestTopic(name=topic.name),)
    answer = context.call(connection, MetadataRequest(topics=asked, allow_auto_topic_creation=create), version)
    names = [found.name for found in answer.topics]
    context.require(names == [topic.name], f"Metadata of {topic.name} has results for {names}")
    return answer.topics[0]


# -- what it holds -----------------------------------------------------------------------------------


def grow(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """Add partitions; refused without waiting: not a larger number, or wrong replicas. A dry run changes nothing."""
    is_dry, replicas = context.rng.random() < 0.5, context.rng.choice((*(None,) * 8, *WRONG_REPLICAS))
    count = max(len(topic.ends) + context.rng.choice((-1, 0, 1, 1, 2)), 0)
    added = max(count - len(topic.ends), 1)
    assignments = None if replicas is None else (CreatePartitionsAssignment(broker_ids=replicas),) * added
    asked = CreatePartitionsTopic(name=topic.name, count=count, assignments=assignments)
    request = CreatePartitionsRequest(topics=(asked,), timeout_ms=PATIENT_MS, validate_only=is_dry)
    result = context.call(connection, request).results[0]
    done = context.accepted(
        result.error_code, ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    )  # fmt: skip
    allowed = count > len(topic.ends) and replicas is None
    context.require(done == allowed, f"{count} partitions of {len(topic.ends)} with replicas {replicas}: {result}")
    if allowed and not is_dry:
        topic.ends += [0] * (count - len(topic.ends))
    _await_partitions(context, connection, topic)


def reassign_illegal(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """Wrong replicas for a partition that exists are refused."""
    replicas, number = context.rng.choice(WRONG_REPLICAS), context.rng.randrange(len(topic.ends))
    part = ReassignablePartition(partition_index=number, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=PATIENT_MS, topics=(ReassignableTopic(name=topic.name, partitions=(part,)),)
    )
    answer = context.call(connection, request)
    context.accepted(answer.error_code)
    code = answer.responses[0].partitions[0].error_code
    done = context.accepted(code, ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.INVALID_REPLICATION_FACTOR)
    context.require(not done, f"a reassignment to the replicas {replicas} is accepted")


def read_pages(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """Pages of any size contain each partition once; a limit below 1 is 1 (KafkaApis.handleDescribeTopicPartitions)."""
    limit, found, cursor = context.rng.choice((-1, 0, 1, 2, 2_000)), list[int](), None
    for _ in range(len(topic.ends) + 1):
        request = DescribeTopicPartitionsRequest(
            topics=(TopicRequest(name=topic.name),), response_partition_limit=limit, cursor=cursor
        )
        answer = context.call(connection, request)
        for entry in answer.topics:
            context.accepted(entry.error_code)
            found += [part.partition_index for part in entry.partitions]
        place = answer.next_cursor
        if place is None:
            break
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=place.topic_name, partition_index=place.partition_index
        )
    wanted = list(range(len(topic.ends)))
    context.require(sorted(found) == wanted, f"the pages of {limit} have the partitions {found}, not {wanted}")


def fetch_all(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """Append to some partitions, and fetch all within random limits of bytes."""
    for _ in topic.ends:
        write(context, connection, topic)
    most, part_most = context.rng.choice(FETCH_LIMITS)
    parts = tuple(
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=part_most)
        for number in range(len(topic.ends))
    )
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=most, topics=(FetchTopic(topic=topic.name, partitions=parts),)
    )
    version = context.version(FetchRequest, at_least=BATCHES_SINCE)
    answer = context.call(connection, request, version)
    context.accepted(answer.error_code)
    beyond = excess(version, request, answer)
    context.require(not beyond, beyond)
    filled = {part.partition_index for entry in answer.responses for part in entry.partitions if part.records}
    context.require(bool(filled) or not any(topic.ends), "no records, and the topic has some")


def list_largest(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """The record with the largest timestamp is below the end; an empty partition has none (KIP-734)."""
    version = context.version(ListOffsetsRequest, at_least=LARGEST_SINCE)
    parts = tuple(ListOffsetsPartition(partition_index=n, timestamp=LARGEST) for n in range(len(topic.ends)))
    request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic.name, partitions=parts),))
    (answer,) = context.call(connection, request, version).topics
    for part in answer.partitions:
        end = topic.ends[part.partition_index]
        if context.accepted(part.error_code):
            found = f"partition {part.partition_index} ends at {end}, offset {part.offset} has the largest timestamp"
            context.require(-1 <= part.offset < end or part.offset == -1, found)


def write(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """Append to a partition, whose log begins at 0 when the topic is created, and read that."""
    number = context.rng.randrange(len(topic.ends))
    values = random_values(context)
    data = PartitionProduceData(index=number, records=Producer().batch(context, values))
    request = ProduceRequest(
        acks=-1, timeout_ms=1_000, topic_data=(TopicProduceData(name=topic.name, partition_data=(data,)),)
    )
    part = context.call(connection, request).responses[0].partition_responses[0]
    context.accepted(part.error_code)
    end = topic.ends[number]
    context.require(part.base_offset == end, f"{topic.name}-{number}: base offset {part.base_offset}, the end is {end}")
    topic.ends[number] += len(values)
    if number == 0:
        _, found = fetch_records(context, connection, topic.name, end)
        context.require([row[2] for _, row in found] == values, f"{topic.name}-0: {len(found)} records from {end}")


def set_retention(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """Set a value, which DescribeConfigs then shows."""
    value = str(context.rng.choice((86_400_000, 604_800_001, 1 << 40)))
    context.accepted(_alter(context, connection, topic, RETENTION, value))
    topic.settings = {**topic.settings, RETENTION: value}
    _check_settings(context, connection, topic)


def refuse_settings(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """A value that is none is refused, and leaves all values as they were."""
    name, value = context.rng.choice(WRONG_SETTINGS)
    before = _settings(context, connection, topic)
    context.require(_alter(context, connection, topic, name, value) != 0, f"{name} is set to {value!r}")
    after = _settings(context, connection, topic)
    context.require(before == after, f"a refused change of {name} leaves {after.get(name)!r} for {before.get(name)!r}")


def validate_settings(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    """A change that is only validated leaves all values as they were."""
    before = _settings(context, connection, topic)
    context.accepted(_alter(context, connection, topic, RETENTION, "123456789", dry=True))
    after = _settings(context, connection, topic)
    context.require(before == after, f"a dry run leaves {after.get(RETENTION)} for {before.get(RETENTION)}")


def _alter(
    context: SequenceContext, connection: Connection, topic: Topic, name: str, value: str, *, dry: bool = False
) -> int:  # fmt: skip
    """Return the error of an alteration, one change or of all settings at once."""
    keys = [key for key in (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS) if context.supports(key)]
    if not keys:
        raise SequenceAbandoned("settings cannot be altered")
    request: Any
    if context.rng.choice(keys) == ALTER_CONFIGS:
        whole = {**topic.settings, name: value}
        configs = tuple(AlterableConfig(name=key, value=each) for key, each in whole.items())
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic.name, configs=configs)
        request = AlterConfigsRequest(resources=(resource,), validate_only=dry)
    else:
        change = IncrementalAlterableConfig(name=name, config_operation=SET, value=value)
        one = IncrementalAlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic.name, configs=(change,))
        request = IncrementalAlterConfigsRequest(resources=(one,), validate_only=dry)
    answer = context.call(connection, request)
    context.require(len(answer.responses) == 1, f"{len(answer.responses)} results for one resource")
    return int(answer.responses[0].error_code)


def _settings(context: SequenceContext, connection: Connection, topic: Topic) -> dict[str, str | None]:
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic.name, configuration_keys=None)
    answer = context.call(connection, DescribeConfigsRequest(resources=(resource,)))
    context.accepted(answer.results[0].error_code)
    return {config.name: config.value for config in answer.results[0].configs}


def _check_settings(context: SequenceContext, connection: Connection, topic: Topic) -> None:
    end = time.monotonic() + SETTLE_S
    while (found := _settings(context, connection, topic)).get(RETENTION) != topic.settings[RETENTION]:
        context.require(
            time.monotonic() < end, f"{RETENTION} is {found.get(RETENTION)}, and was set to {topic.settings[RETENTION]}"
        )
        time.sleep(POLL_S)


Step = Callable[[SequenceContext, Connection, Topic], None]

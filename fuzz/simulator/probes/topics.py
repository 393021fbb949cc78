"""Probes of administrators: topics, their settings, settings of brokers, reassignments and elections."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.node import Needs, probe
from highwater.fuzz.simulator.probes.client.requests import request
from highwater.fuzz.simulator.probes.client.session import LATEST, E, Session, record
from highwater.fuzz.simulator.probes.fetch import elect, move_leader, reassign
from highwater.fuzz.simulator.probes.records import HOUR_MS, PartitionModel
from highwater.fuzz.simulator.probes.trimming import SET, TOPIC_RESOURCE, alter
from highwater.reference.wire.records import build_batch

BROKER_RESOURCE: Final = 4
DELETE, APPEND, SUBTRACT = 1, 2, 3
PREFERRED, UNCLEAN = 0, 1
ALL_BROKERS: Final = ""
UNKNOWN_ID: Final = b"no such topic id"


async def described(session: Session, name: str, *keys: str, broker_id: int = 1) -> list[str]:
    """Return some settings of a topic."""
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None}
    answer = await session.ask(broker_id, request("DescribeConfigs", resources=[resource], include_synonyms=True))
    session.ok(answer.results[0].error_code, f"DescribeConfigs of {name}")
    settings = {each.name: each.value for each in answer.results[0].configs}
    return [settings[key] for key in keys]


async def exists(session: Session, topic: str) -> bool:
    """Return whether any broker knows the topic."""
    known = [await session.metadata(topic, broker_id) for broker_id in session.brokers]
    return any(each.error_code == E.NONE for each in known)


async def delete(session: Session, topic: str) -> None:
    """Delete a topic, and wait until no broker knows it."""
    answer = await session.ask_any(request("DeleteTopics", topic_names=[topic], timeout_ms=3_000))
    session.ok(answer.responses[0].error_code, f"DeleteTopics of {topic}")
    await session.until(partial(exists, session, topic), False, f"whether {topic} exists")


async def replicas_at(session: Session, topic: str) -> set[tuple[tuple[int, ...], bool]]:
    """Return the replicas of partition 0 in each broker's Metadata, and whether one of them leads."""
    known = [await session.known(topic, broker_id) for broker_id in session.brokers]
    return {(tuple(part.replica_nodes), part.leader_id in part.replica_nodes) for part in known}


async def holders(session: Session, topic: str) -> set[int]:
    """Return the brokers whose log folder has the topic."""
    found = set()
    for broker_id in session.brokers:
        answer = await session.ask(broker_id, request("DescribeLogDirs", topics=None))
        if any(each.name == topic for result in answer.results for each in result.topics):
            found.add(broker_id)
    return found


async def are_replicas(session: Session, topic: str, replicas: list[int]) -> None:
    """Wait until a partition has these replicas, and no other broker has its data (ADM-34)."""
    expected = {(tuple(replicas), True)}
    await session.until(partial(replicas_at, session, topic), expected, f"the replicas of {topic}")
    await session.until(partial(holders, session, topic), set(replicas), f"the brokers with data of {topic}")


# -- topics ----------------------------------------------------------------------------------------------------------


@probe("ADM-1", "ADM-11", "ADM-12", "ADM-14", "ADM-15", "ADM-16")
async def creation_of_topics(session: Session) -> None:
    """CreateTopics: validation only, settings, replicas, errors."""
    name = f"{session.name}-only"
    found = await session.request_topic(name, 2, validate_only=True)
    session.ok(found.error_code, "CreateTopics that only validates")
    await session.sleep(400)
    session.expect(not await exists(session, name), "CreateTopics that only validates creates the topic")
    topic = await session.create_topic(
        "made", assigned=[[2, 3], [3, 1], [1, 2]], retention_ms=7_654_321, cleanup_policy="delete", segment_bytes=4_000
    )
    parts = {p.partition_index: tuple(p.replica_nodes) for p in (await session.metadata(topic)).partitions}
    session.equal(parts, {0: (2, 3), 1: (3, 1), 2: (1, 2)}, "the replicas of a topic with an assignment")
    for broker_id in session.brokers:
        settings = await described(session, topic, "retention.ms", "segment.bytes", broker_id=broker_id)
        session.equal(settings, ["7654321", "4000"], "the settings of a new topic")
    await (await PartitionModel(session, topic).append(3)).check()
    wrong: tuple[tuple[dict[str, Any], E], ...] = (
        ({"partitions": 0}, E.INVALID_PARTITIONS), ({"replicas": 9}, E.INVALID_REPLICATION_FACTOR),
        ({"cleanup_policy": "nothing"}, E.INVALID_CONFIG), ({"assigned": [[1, 1]]}, E.INVALID_REPLICA_ASSIGNMENT),
    )  # fmt: skip
    for fields, error in wrong:
        found = await session.request_topic(f"{session.name}-wrong", **fields)
        session.error(found.error_code, error, f"CreateTopics with {fields}")
    session.error((await session.request_topic(topic)).error_code, E.TOPIC_ALREADY_EXISTS, "CreateTopics again")


@probe("ADM-3", "ADM-17", "MD-10")
async def more_partitions(session: Session) -> None:
    """CreatePartitions only increases the number; DescribeTopicPartitions returns each of them once."""
    replicas = 2 + session.draw(2)
    topic = await session.create_topic("grow", 2, replicas)
    for count, error in ((2, E.INVALID_PARTITIONS), (1, E.INVALID_PARTITIONS), (5, E.NONE), (5, E.INVALID_PARTITIONS)):
        asked = {"name": topic, "count": count, "assignments": None}
        answer = await session.ask_any(request("CreatePartitions", topics=[asked], timeout_ms=2_000))
        session.error(answer.results[0].error_code, error, f"CreatePartitions to {count}")
    await session.healthy(topic, 5)
    counts = {len(p.replica_nodes) for p in (await session.metadata(topic)).partitions}
    session.equal(counts, {replicas}, "the numbers of replicas of old and new partitions")
    await (await PartitionModel(session, topic, 4).append()).check()
    found, cursor = [], None
    for _ in range(5):
        body = request("DescribeTopicPartitions", topics=[{"name": topic}], response_partition_limit=2, cursor=cursor)
        answer = await session.ask(1, body)
        page = [p.partition_index for each in answer.topics for p in each.partitions]
        session.expect(len(page) <= 2, f"a page of two partitions has {page}")
        found += page
        if answer.next_cursor is None:
            break
        cursor = {"topic_name": answer.next_cursor.topic_name, "partition_index": answer.next_cursor.partition_index}
    session.equal(found, list(range(5)), "the partitions on the pages of DescribeTopicPartitions")


@probe("ADM-4", "ADM-19", "ADM-20")
async def topics_created_again(session: Session) -> None:
    """A topic with the name of a deleted one has none of its records; an unknown one cannot be deleted."""
    topic = await session.create_topic("again", 2, segment_bytes=300)
    for number in (0, 1):
        await session.values(topic, b"old", b"older", b"x" * 400, partition=number)
    for _ in range(2):
        await delete(session, topic)
        await session.create_topic("again", 2)
        for number in (0, 1):
            model = PartitionModel(session, topic, number)
            await model.check_offsets()
            await (await model.append()).check()
    answer = await session.ask_any(request("DeleteTopics", topics=[{"topic_id": UNKNOWN_ID}], timeout_ms=1_000), 6)
    session.error(answer.responses[0].error_code, E.UNKNOWN_TOPIC_ID, "DeleteTopics of an unknown id")
    answer = await session.ask_any(request("DeleteTopics", topic_names=[f"{topic}-none"], timeout_ms=1_000))
    session.error(answer.responses[0].error_code, E.UNKNOWN_TOPIC_OR_PARTITION, "DeleteTopics of an unknown name")


# -- settings --------------------------------------------------------------------------------------------------------


@probe("ADM-5", "ADM-26", "ADM-28")
async def settings_of_topics(session: Session) -> None:
    """AlterConfigs replaces, IncrementalAlterConfigs changes single settings and lists."""
    topic = await session.create_topic("set", retention_ms=111_111, max_message_bytes=5_000)
    names = "retention.ms", "max.message.bytes", "segment.bytes", "cleanup.policy"
    default = await described(session, "t", *names)
    steps: tuple[tuple[tuple[str, int, str | None], str], ...] = (
        (("segment.bytes", SET, "3000"), "delete"),
        (("cleanup.policy", APPEND, "compact"), "compact,delete"),
        (("cleanup.policy", SUBTRACT, "delete"), "compact"),
    )
    for change, policy in steps:
        session.ok(await alter(session, topic, change), f"{change}")
        expected = ["111111", "5000", "3000", policy]
        await session.until(partial(_settings, session, topic, *names), expected, f"the settings after {change}", 500)
    answer = await session.produce(topic, build_batch([record(b"v")]))
    session.error(answer.error_code, E.INVALID_RECORD, "a record without a key after the topic became compacted")
    configs = [{"name": "max.message.bytes", "value": "6000"}]
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": configs}
    answer = await session.ask_any(request("AlterConfigs", resources=[resource]))
    session.ok(answer.responses[0].error_code, "AlterConfigs")
    for size in ("6000", default[1]):
        expected = [default[0], size, default[2], "delete"]
        await session.until(
            partial(_settings, session, topic, *names), expected, "the settings after AlterConfigs", 500
        )
        session.ok(await alter(session, topic, ("max.message.bytes", DELETE, None)), "DELETE")
    session.error(await alter(session, topic, ("segment.bytes", SET, "-5")), E.INVALID_CONFIG, "an invalid value")
    error = await alter(session, f"{topic}-none", ("segment.bytes", SET, "5000"))
    session.error(error, E.UNKNOWN_TOPIC_OR_PARTITION, "IncrementalAlterConfigs of a topic that does not exist")


async def _settings(session: Session, topic: str, *names: str) -> list[str]:
    """Return settings as a drawn broker knows them, lists in alphabetical order."""
    found = await described(session, topic, *names, broker_id=session.one_of(*session.brokers))
    return [",".join(sorted(value.split(","))) for value in found]


@probe("PRD-13", "PRD-14", "PRD-15")
async def settings_of_all_partitions(session: Session) -> None:
    """A changed setting is in effect for every partition."""
    topic = await session.create_topic("effect", 3, max_message_bytes=10_000)
    batch = build_batch([record(b"x" * 200, b"k", session.wall_ms)])
    late = build_batch([record(b"late", b"k", session.wall_ms - HOUR_MS)])
    plain = build_batch([record(b"v", None, session.wall_ms)])
    steps: tuple[tuple[str, int, bytes, E], ...] = (
        ("max.message.bytes", len(batch) - 1, batch, E.MESSAGE_TOO_LARGE),
        ("max.message.bytes", len(batch), batch, E.NONE),
        ("message.timestamp.before.max.ms", 2 * HOUR_MS, late, E.NONE),
        ("message.timestamp.before.max.ms", HOUR_MS // 2, late, E.INVALID_TIMESTAMP),
    )
    for name, value, sent, expected in steps:
        await alter(session, topic, (name, SET, str(value)))
        await _are_answered(session, topic, sent, expected, f"with {name} {value}")
    await alter(session, topic, ("cleanup.policy", SET, "compact"))
    await _are_answered(session, topic, plain, E.INVALID_RECORD, "without a key")


async def _are_answered(session: Session, topic: str, batch: bytes, expected: E, what: str) -> None:
    async def errors() -> list[int]:
        return [(await session.produce(topic, batch, number)).error_code for number in range(3)]

    await session.until(errors, [expected] * 3, f"the errors of a batch {what} in each partition", 3_000)


@probe("ADM-40", "ADM-41", "ADM-42", needs=Needs.ALONE)
async def settings_of_brokers(session: Session) -> None:
    """Settings of all brokers and of one broker apply to topics without an override."""
    led = [[1, 2, 3], [2, 3, 1]]
    plain = await session.create_topic("plain", assigned=led)
    fixed = await session.create_topic("fixed", assigned=led, message_timestamp_type="CreateTime")
    key, by_client, by_broker = "log.message.timestamp.type", "CreateTime", "LogAppendTime"

    async def types(topic: str) -> list[str]:
        """Return the timestamp type that brokers 1 and 2 apply."""
        answers = [await session.produce(topic, build_batch([record(b"v")]), number) for number in (0, 1)]
        return [by_client if answer.log_append_time_ms < 0 else by_broker for answer in answers]

    steps: tuple[tuple[str, int, str | None, list[str]], ...] = (
        ("1", SET, by_client, [by_client, by_client]),
        (ALL_BROKERS, SET, by_broker, [by_client, by_broker]),
        ("1", DELETE, None, [by_broker, by_broker]),
        (ALL_BROKERS, DELETE, None, [by_client, by_client]),
        ("1", SET, by_broker, [by_broker, by_client]),
        ("1", DELETE, None, [by_client, by_client]),
    )
    for name, how, value, expected in steps:
        what = f"{key} of broker {name or 'default'} is {value}"
        found = await alter(session, name, (key, how, value), kind=BROKER_RESOURCE, broker_id=int(name or 1))
        session.ok(found, what)
        await session.until(partial(types, plain), expected, f"the types of timestamps when {what}", 2_500)
        session.equal(await types(fixed), [by_client] * 2, "the types of timestamps in a topic with its own")
    found = await alter(session, "1", ("broker.id", SET, "7"), kind=BROKER_RESOURCE, broker_id=1)
    session.error(found, (E.INVALID_REQUEST, E.INVALID_CONFIG), "a change of broker.id")


# -- replicas --------------------------------------------------------------------------------------------------------


@probe("ADM-31", "ADM-34", "ADM-35", "ADM-36", "ADM-37")
async def reassignment(session: Session) -> None:
    """After a reassignment the partition has exactly these replicas, and the others keep nothing."""
    topic = await session.create_topic("moved", assigned=[[1, 2]])
    model = await PartitionModel(session, topic).append(6)
    for replicas in ([2, 3], [3, 1], [1, 2, 3], [2]):
        session.ok(await reassign(session, topic, replicas), f"a reassignment to {replicas}")
        await are_replicas(session, topic, replicas)
        await session.healthy(topic)
        await (await model.append()).check()
    refused: tuple[tuple[list[int] | None, dict[str, Any], E], ...] = (
        ([1, 1], {}, E.INVALID_REPLICA_ASSIGNMENT), (None, {}, E.NO_REASSIGNMENT_IN_PROGRESS),
        ([2, 3], {"allow_replication_factor_change": False}, E.INVALID_REPLICATION_FACTOR),
    )  # fmt: skip
    for target, fields, error in refused:
        session.error(await reassign(session, topic, target, **fields), error, f"a reassignment to {target} {fields}")
    await are_replicas(session, topic, [2])
    session.equal(await ongoing(session, topic), False, "whether a finished reassignment is listed")


async def ongoing(session: Session, topic: str) -> bool:
    """Return whether ListPartitionReassignments has the topic."""
    answer = await session.ask_any(request("ListPartitionReassignments", topics=None))
    return any(each.name == topic for each in answer.topics)


async def _listed(
    session: Session, topic: str, numbers: Sequence[int] | None
) -> dict[int, tuple[set[int], tuple[int, ...], tuple[int, ...]]]:
    """Return all replicas, those added and those removed, of each reassignment that is listed; None requests all."""
    topics = None if numbers is None else [{"name": topic, "partition_indexes": numbers}] if numbers else []
    answer = await session.ask_any(request("ListPartitionReassignments", topics=topics))
    session.ok(answer.error_code, "ListPartitionReassignments")
    return {
        p.partition_index: (set(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas))
        for each in answer.topics for p in each.partitions
    }  # fmt: skip


@probe("ADM-36", "ADM-37", "ADM-45", needs=Needs.ALONE)
async def cancelled_reassignment(session: Session) -> None:
    """After a reassignment was cancelled the partition has its original replicas, and no other broker its data."""
    first, second, added = sorted(session.brokers, key=lambda each: each != session.cluster.controller())
    topic = await session.create_topic("cancel", assigned=[[first, second]] * 3)
    model = await PartitionModel(session, topic).append(3)
    await session.fault("cut", added, for_ms=1_900, of="brokers", direction="both")
    session.ok(await reassign(session, topic, [first, added], 2), "a reassignment to a broker that is cut off")
    await session.sleep(100)
    for numbers in (None, (), (0,), (1, 2), (2,), (1, 0, 7)):
        found = await _listed(session, topic, numbers)
        expected = {n: ({first, second, added}, (added,), (second,)) for n in (0, 1) if numbers is None or n in numbers}
        session.equal(found, expected, f"the reassignments that wait, of the partitions {numbers}")
    session.ok(await reassign(session, topic, None, 2), "its cancellation")
    await session.until(partial(ongoing, session, topic), False, "whether it is listed afterwards", 6_000)
    await session.sleep(2_500)
    await are_replicas(session, topic, [first, second])
    await (await model.append()).check()


@probe("CTL-7", "CTL-8")
async def moved_and_deleted(session: Session) -> None:
    """A topic can be deleted during and after a reassignment, and created again on all brokers."""
    for _ in range(2):
        topic = await session.create_topic("side", assigned=[[1, 2]])
        await session.values(topic, *[b"x" * 100] * 5)
        session.ok(await reassign(session, topic, [2, 3]), "a reassignment")
        if session.draw(2):
            await are_replicas(session, topic, [2, 3])
        await delete(session, topic)
        await session.until(partial(holders, session, topic), set(), f"the brokers with data of {topic}", 3_000)
        await session.create_topic("side", assigned=[[1, 2, 3]])
        session.equal(await session.offset(topic, LATEST), 0, "the end of the new topic")
        await session.values(topic, b"new")
        session.equal([r.value for r in await session.read(topic)], [b"new"], "the records of the new topic")
        await delete(session, topic)


@probe("ADM-32", "ADM-33")
async def elections(session: Session) -> None:
    """An election that changes nothing is answered with ELECTION_NOT_NEEDED."""
    topic = await session.create_topic("elect", assigned=[[1, 2, 3]])
    for leader, replicas in ((1, None), (2, [2, 1, 3]), (1, [1, 2, 3])):
        if replicas:
            await move_leader(session, topic, replicas)
        before = await session.known(topic)
        for kind in (PREFERRED, UNCLEAN):
            session.equal(await elect(session, topic, kind), E.ELECTION_NOT_NEEDED, f"an election of type {kind}")
        await session.sleep(100)
        after = await session.known(topic)
        found = before.leader_id, after.leader_id, after.leader_epoch
        session.equal(found, (leader, leader, before.leader_epoch), "leaders and epoch around needless elections")

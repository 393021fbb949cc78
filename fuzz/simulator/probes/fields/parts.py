"""Probes of requests with several parts: each part is answered as if it were alone, whatever the others are."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import Group, stable
from highwater.fuzz.simulator.probes.client.requests import errors_of, of_topics, parts_of, request
from highwater.fuzz.simulator.probes.client.session import EARLIEST, GROUP, TRANSACTION, E, Session, record
from highwater.fuzz.simulator.probes.client.transactional import Transactional
from highwater.fuzz.simulator.probes.fields.listings import Place, fields
from highwater.fuzz.simulator.probes.offsets import all_committed, committed_ok
from highwater.fuzz.simulator.probes.topics import described, exists
from highwater.fuzz.simulator.probes.trimming import SET, TOPIC_RESOURCE
from highwater.reference.wire.records import build_batch

GOOD: Final = build_batch([record(b"v")])
LAGS: Final = [
    {"name": "min.compaction.lag.ms", "value": "1001"}, {"name": "max.compaction.lag.ms", "value": "1000"},
]  # fmt: skip
"""Settings of which each is valid, and both are not (KIP-354)."""
CLOSED_WITHIN_MS: Final = 200
ZEROS: Final = bytes(16)
ON_ONE: Final = [[1, 2, 3]]


def shuffled(session: Session, items: Sequence[Any]) -> list[Any]:
    """Return the items in an order that the seed draws."""
    left, found = list(items), []
    while left:
        found.append(left.pop(session.draw(len(left))))
    return found


# -- records ---------------------------------------------------------------------------------------------------------


@fields("PRD-1", "PRD-2", "PRD-20")
async def acks_0(session: Session) -> None:
    """An error in any partition of a Produce with acks=0 closes the connection; the others are stored."""
    topics = [await session.create_topic(suffix, assigned=ON_ONE * 2) for suffix in ("x", "y", "z")]
    places = [(topic, number) for topic in topics for number in (0, 1)]
    stored = dict.fromkeys(places, 0)
    for position in (None, *range(len(places) + 1)):
        order: list[Any] = list(places)
        if position is not None:
            order.insert(position, session.one_of((topics[0], 7), (topics[position % 3], 5), (f"{topics[1]}-none", 0)))
        sent = [(topic, {"index": number, "records": GOOD}) for topic, number in order]
        data = of_topics(sent, partitions="partition_data")
        before = session.closures
        session.send(1, request("Produce", acks=0, timeout_ms=1_000, topic_data=data), 9)
        await session.sleep(CLOSED_WITHIN_MS)
        closed = session.closures - before
        session.equal(closed, int(position is not None), f"how often the connection closes after acks=0 to {order}")
        for place in places:
            stored[place] += 1
            end = partial(session.offset, place[0], -1, place[1])
            await session.until(end, stored[place], f"the end of {place} after a Produce with acks=0 to {order}")


@fields("PRD-14", "PRD-29")
async def records_without_keys(session: Session) -> None:
    """Produce reports each invalid record of a batch by its index."""
    topic = await session.create_topic("keys", cleanup_policy="compact")
    for count in (1, 3, 6):
        keys = [session.one_of(b"k", None) for _ in range(count)]
        keys[session.draw(count)] = None
        batch = build_batch([record(b"v", key) for key in keys])
        answer = await session.produce(topic, batch)
        session.error(answer.error_code, E.INVALID_RECORD, f"a batch with the keys {keys}")
        wrong = [number for number, key in enumerate(keys) if key is None]
        found = [each.batch_index for each in answer.record_errors]
        session.equal(found, wrong, f"the invalid records of a batch with the keys {keys}")


@fields("ADM-6", "ADM-29")
async def deletions_of_records(session: Session) -> None:
    """Each partition of a DeleteRecords is answered by itself; of the negative offsets only -1 has a meaning."""
    topic = await session.create_topic("del", assigned=ON_ONE * 6)
    for number in range(6):
        await session.values(topic, b"a", b"b", b"c", partition=number)
    asked = {0: 1, 1: -2, 2: 4, 3: -1, 4: 0, 5: -(1 << 40), 9: 1}
    order = shuffled(session, list(asked))
    parts = [(topic, {"partition_index": number, "offset": asked[number]}) for number in order]
    answer = await session.ask(1, request("DeleteRecords", topics=of_topics(parts), timeout_ms=2_000))
    found = {number: (p.error_code, p.low_watermark) for (_, number), p in parts_of(answer).items()}
    outside = (int(E.OFFSET_OUT_OF_RANGE), -1)
    expected = {0: (0, 1), 1: outside, 2: outside, 3: (0, 3), 4: (0, 0), 5: outside}
    session.equal(found.pop(9)[0], E.UNKNOWN_TOPIC_OR_PARTITION, "the error of an unknown partition")
    session.equal(found, expected, f"errors and log starts of DeleteRecords in the order {order}")
    starts = [await session.offset(topic, EARLIEST, number) for number in range(6)]
    session.equal(starts, [max(expected[n][1], 0) for n in range(6)], "the log starts")


# -- topics and settings -----------------------------------------------------------------------------------------------


@fields("ADM-1", "ADM-4", "ADM-13", "ADM-19", "ADM-48")
async def creations_and_deletions(session: Session) -> None:
    """Of the topics of one CreateTopics or DeleteTopics each succeeds or fails by itself."""
    name = session.name
    there = await session.create_topic("there")
    counts = {"num_partitions": 2, "replication_factor": 1}
    plain = {"num_partitions": -1, "replication_factor": -1}
    given = [{"partition_index": 0, "broker_ids": [2, 1]}]
    asked: dict[str, tuple[dict[str, Any], E]] = {
        f"{name}-good": (counts, E.NONE),
        f"{name}-given": ({**plain, "assignments": given}, E.NONE),
        f"{name}-count": ({**plain, "assignments": given, "num_partitions": 1}, E.INVALID_REQUEST),
        f"{name}-factor": ({**plain, "assignments": given, "replication_factor": 2}, E.INVALID_REQUEST),
        f"{name}-null": ({**counts, "configs": [{"name": "retention.ms", "value": None}]}, E.INVALID_CONFIG),
        f"{name}-bad": ({**counts, "configs": [{"name": "retention.ms", "value": "no"}]}, E.INVALID_CONFIG),
        f"{name}-none": ({**counts, "configs": [{"name": "no.such", "value": "1"}]}, E.INVALID_CONFIG),
        f"{name}-lags": ({**counts, "configs": LAGS}, E.INVALID_CONFIG),
        f"{name}/slash": (counts, E.INVALID_TOPIC_EXCEPTION),
        there: (counts, E.TOPIC_ALREADY_EXISTS),
    }
    for validate_only in (True, False):
        order = shuffled(session, list(asked))
        body = request(
            "CreateTopics", timeout_ms=2_000, validate_only=validate_only,
            topics=[{"name": each, "assignments": [], "configs": [], **asked[each][0]} for each in order],
        )  # fmt: skip
        found = [(each.name, each.error_code) for each in (await session.ask_any(body)).topics]
        expected = [(each, asked[each][1]) for each in order]
        session.equal(found, expected, f"the errors of CreateTopics with validate_only={validate_only}")
    made = [each for each, (_, error) in asked.items() if error in {E.NONE, E.TOPIC_ALREADY_EXISTS}]
    for each in asked:
        if "/" not in each:
            session.equal(await exists(session, each), each in made, f"whether {each} exists")
    ids = {each: bytes((await session.metadata(each)).topic_id) for each in made}
    await _deletions(session, ids, f"{name}-none")


async def _deletions(session: Session, ids: dict[str, bytes], unknown: str) -> None:
    """Delete topics by name and by id with one request, which returns both of each."""
    by_id = session.one_of(*ids)
    asked = [{"name": None, "topic_id": ids[each]} if each == by_id else {"name": each} for each in [*ids, unknown]]
    answer = await session.ask_any(request("DeleteTopics", topics=shuffled(session, asked), timeout_ms=3_000), 6)
    found = {each.name: (each.error_code, bytes(each.topic_id)) for each in answer.responses}
    expected = {each: (0, topic_id) for each, topic_id in ids.items()}
    session.equal(found.pop(unknown)[0], E.UNKNOWN_TOPIC_OR_PARTITION, "the deletion of an unknown topic")
    session.equal(found, expected, "errors and ids in DeleteTopics")


@fields("ADM-14", "ADM-17", "ADM-18", "ADM-44")
async def more_partitions_of_several_topics(session: Session) -> None:
    """Of the topics of one CreatePartitions each is extended or refused, and checked the same if nothing may change."""
    names = ("grow", "few", "given", "many", "short", "dead", "twice", "wide", "narrow", "mixed")
    topics = {name: await session.create_topic(name, 2, 2) for name in names}
    asked: dict[str, tuple[int, Any, E]] = {
        "grow": (4, None, E.NONE), "few": (1, None, E.INVALID_PARTITIONS), "given": (3, [[3, 1]], E.NONE),
        "many": (3, [[1, 2], [2, 3]], E.INVALID_REPLICA_ASSIGNMENT),
        "short": (4, [[1, 2]], E.INVALID_REPLICA_ASSIGNMENT),
        "dead": (3, [[1, 9]], E.INVALID_REPLICA_ASSIGNMENT), "twice": (3, [[2, 2]], E.INVALID_REPLICA_ASSIGNMENT),
        "wide": (3, [[1, 2, 3]], E.INVALID_REPLICA_ASSIGNMENT), "narrow": (3, [[3]], E.INVALID_REPLICA_ASSIGNMENT),
        "mixed": (4, [[1, 2], [3, 1, 2]], E.INVALID_REPLICA_ASSIGNMENT),
    }  # fmt: skip
    for validate_only in (True, False):
        order = shuffled(session, names)
        body = request("CreatePartitions", timeout_ms=2_000, validate_only=validate_only, topics=[
            {"name": topics[name], "count": asked[name][0], "assignments": _of_brokers(asked[name][1])}
            for name in order
        ])  # fmt: skip
        found = {each.name: each.error_code for each in (await session.ask_any(body)).results}
        expected = {topics[name]: asked[name][2] for name in names}
        session.equal(found, expected, f"the errors of CreatePartitions with validate_only={validate_only}")
        for name in names:
            grown = not validate_only and asked[name][2] is E.NONE
            await session.healthy(topics[name], asked[name][0] if grown else 2)


def _of_brokers(assignments: list[list[int]] | None) -> Any:
    return None if assignments is None else [{"broker_ids": each} for each in assignments]


@fields("ADM-26", "ADM-27", "ADM-47")
async def settings_of_several_topics(session: Session) -> None:
    """Each resource of a request is changed or refused by itself; what is named twice, also a setting, is refused."""
    names = ("good", "twice", "wrong", "same", "last")
    topics = {name: await session.create_topic(name, retention_ms=1_000_000) for name in names}
    unknown = f"{session.name}-none"
    order = shuffled(session, [topics[name] for name in names] + [topics["twice"], unknown])
    errors = {topics["twice"]: E.INVALID_REQUEST, topics["wrong"]: E.INVALID_CONFIG, topics["same"]: E.INVALID_REQUEST}
    errors |= {unknown: E.UNKNOWN_TOPIC_OR_PARTITION}
    for api, value in (("IncrementalAlterConfigs", "2000000"), ("AlterConfigs", "3000000")):
        for validate_only in (True, False):
            resources = []
            for each in order:
                setting: dict[str, Any] = {"name": "retention.ms", "value": "-7" if each == topics["wrong"] else value}
                setting |= {"config_operation": SET} if api.startswith("Inc") else {}
                configs = [setting] * (2 if each == topics["same"] else 1)
                resources.append({"resource_type": TOPIC_RESOURCE, "resource_name": each, "configs": configs})
            answer = await session.ask_any(request(api, resources=resources, validate_only=validate_only))
            found = {each.resource_name: each.error_code for each in answer.responses}
            expected = {each: errors.get(each, E.NONE) for each in order}
            session.equal(found, expected, f"the errors of {api} with validate_only={validate_only}")
        for topic in topics.values():
            broker_id = session.one_of(*session.brokers)
            now = partial(described, session, topic, "retention.ms", broker_id=broker_id)
            kept = "1000000" if topic in errors else value
            await session.until(now, [kept], f"retention.ms of {topic} after {api}", 1_500)


# -- offsets and transactions ------------------------------------------------------------------------------------------


@fields("OFF-9", "OFF-15")
async def deletions_of_offsets_of_several_topics(session: Session) -> None:
    """Each partition of an OffsetDelete is deleted or refused by itself."""
    read, left, kept = [await session.create_topic(name, 2) for name in ("read", "left", "kept")]
    group = await Group.found(session)
    member = group.member(read)
    await stable(group, member)
    offsets = {(topic, number): 5 + number for topic in (read, left, kept) for number in (0, 1)}
    await committed_ok(group, offsets, member)
    asked = {
        (read, 0): E.GROUP_SUBSCRIBED_TO_TOPIC, (left, 0): E.NONE, (left, 1): E.NONE, (kept, 0): E.NONE,
        (f"{read}-none", 0): E.UNKNOWN_TOPIC_OR_PARTITION, (kept, 7): E.UNKNOWN_TOPIC_OR_PARTITION,
    }  # fmt: skip
    parts = [(topic, {"partition_index": number}) for topic, number in shuffled(session, list(asked))]
    answer = await group.ask("OffsetDelete", topics=of_topics(parts))
    session.ok(answer.error_code, "OffsetDelete")
    errors = {place: part.error_code for place, part in parts_of(answer).items()}
    session.equal(errors, asked, "the errors of OffsetDelete")
    session.equal(set(await all_committed(group)), {(read, 0), (read, 1), (kept, 1)}, "the offsets that are left")


@fields("TXN-41")
async def several_transactions(session: Session) -> None:
    """AddPartitionsToTxn answers for each transaction and, where it only verifies, for each partition."""
    topic = await session.create_topic("several", 4)
    producers = [await Transactional(session, f"s{n}").begin() for n in range(6)]
    places = [await session.coordinator(each.name, TRANSACTION) for each in producers]
    coordinator = max(set(places), key=lambda each: (places.count(each), each))
    together = [each for each, place in zip(producers, places, strict=True) if place == coordinator]
    member: dict[str, set[int]] = {}
    for producer in together:
        member[producer.name] = {n for n in range(4) if session.draw(2)} or {1}
        await producer.added(*[(topic, n) for n in member[producer.name]])
    for version, missing in ((4, E.INVALID_TXN_STATE), (5, E.TRANSACTION_ABORTABLE)):
        found = await _added(session, coordinator, together, topic, version, verify_only=True)
        expected = {
            (each.name, n): E.NONE if n in member[each.name] else missing for each in together for n in range(4)
        }
        session.equal(found, expected, f"the errors of AddPartitionsToTxn {version} that only verifies")
    stranger = together[0].producer
    together[0].producer += 1_000
    found = await _added(session, coordinator, together, topic, 5, verify_only=False)
    wrong = E.INVALID_PRODUCER_ID_MAPPING
    expected = {(each.name, n): E.NONE if k else wrong for k, each in enumerate(together) for n in range(4)}
    session.equal(found, expected, "the errors of AddPartitionsToTxn of several producers, one of them unknown")
    together[0].producer = stranger


async def _added(
    session: Session, coordinator: int, producers: Sequence[Transactional], topic: str, version: int, *,
    verify_only: bool,
) -> dict[Place, int]:  # fmt: skip
    """Return the error of each partition for each producer."""
    body = request("AddPartitionsToTxn", transactions=[
        {"transactional_id": each.name, "producer_id": each.producer, "producer_epoch": each.epoch,
         "verify_only": verify_only, "topics": [{"name": topic, "partitions": list(range(4))}]}
        for each in producers
    ])  # fmt: skip
    answer = await session.ask(coordinator, body, version)
    return {
        (each.transactional_id, part.partition_index): part.partition_error_code
        for each in answer.results_by_transaction for topic_result in each.topic_results
        for part in topic_result.results_by_partition
    }  # fmt: skip


@fields("OFF-2", "GRP-1")
async def another_coordinator(session: Session) -> None:
    """A broker that is not the coordinator refuses each version of OffsetFetch, before 2 in each partition."""
    topic = await session.create_topic("where", 2)
    group = await Group.found(session)
    await committed_ok(group, {(topic, 0): 3, (topic, 1): 4})
    other = session.one_of(*[each for each in session.brokers if each != await session.coordinator(group.name, GROUP)])
    named = [{"name": topic, "partition_indexes": [0, 1]}]
    for version in range(1, 9):
        if version < 8:
            body = request("OffsetFetch", group_id=group.name, topics=named)
        else:
            body = request("OffsetFetch", groups=[{"group_id": group.name, "topics": named}])
        answer = await session.ask(other, body, version)
        errors = {part.error_code for part in parts_of(answer).values()} if version < 2 else errors_of(answer) - {0}
        session.equal(errors, {E.NOT_COORDINATOR}, f"the errors of OffsetFetch {version} at another broker")

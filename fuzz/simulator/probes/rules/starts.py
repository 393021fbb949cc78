"""Probes of topics after a restart: their settings are in effect, and nothing of former topics is left."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.alone import alone, became_complete
from highwater.fuzz.simulator.probes.client.session import EARLIEST, LATEST, Session, record
from highwater.fuzz.simulator.probes.records import HOUR_MS, IdempotentModel, PartitionModel, producer_id
from highwater.fuzz.simulator.probes.remembered import described_producers
from highwater.fuzz.simulator.probes.restarts import after_restart
from highwater.fuzz.simulator.probes.topics import delete, described
from highwater.fuzz.simulator.probes.trimming import delete_records

PARTITIONS: Final = 3
KEPT_MS: Final = 4_000
"""Longer than the restart of a broker takes."""
SOON_MS: Final = 4_000


@after_restart("ADM-4", "ADM-6", "ADM-16", "FET-44", "IDM-5", "LST-1", "LST-8")
async def recreated_after_a_restart(session: Session) -> None:
    """A topic with the name of a deleted one has neither its log starts, nor its producers, records or settings."""
    replicas, name = session.one_of(1, 3), "restarted"
    topic = await session.create_topic(name, PARTITIONS, replicas, segment_bytes=300, max_message_bytes=9_999)
    for number in range(PARTITIONS):
        model = await PartitionModel(session, topic, number).append(5)
        if number:
            model.start = 1 + session.draw(model.end)
            found = await delete_records(session, topic, model.start, number)
            session.equal(found, (0, model.start), "DeleteRecords")
    producer = IdempotentModel(session, topic, await producer_id(session))
    await producer.append(2, 1)
    defaults = await described(session, "t", "segment.bytes", "max.message.bytes")
    await session.rolling_restart()
    await session.healthy(topic, PARTITIONS)
    for _ in range(2):
        await delete(session, topic)
        await session.create_topic(name, PARTITIONS, replicas)
        session.look_again()
        for number in range(PARTITIONS):
            ends = [await session.offset(topic, each, number) for each in (EARLIEST, LATEST)]
            session.equal(ends, [0, 0], f"start and end of {topic}-{number}, which was created again")
            session.equal(await described_producers(session, topic, number), {}, f"the producers of {topic}-{number}")
        found_settings = await described(session, topic, "segment.bytes", "max.message.bytes")
        session.equal(found_settings, defaults, "the settings of a topic that was created again")
        for number in range(PARTITIONS):
            await (await PartitionModel(session, topic, number).append(2)).check()
        again = IdempotentModel(session, topic, await producer_id(session))
        await again.append(1, 2)


@alone("ADM-5", "ADM-16", "FET-36", "FET-44")
async def settings_in_effect_after_a_restart(session: Session) -> None:
    """Retention by time and by size, and compaction, follow the settings of each topic, and no others.

    No setting is changed after the restart: the broker would then apply all of them again.
    """
    small: dict[str, Any] = {"segment_bytes": 200}
    restarted = session.one_of(*session.brokers)
    options: dict[str, dict[str, Any]] = {
        "time": {**small, "retention_ms": KEPT_MS}, "size": {**small, "retention_bytes": 600}, "all": small,
        "long": {**small, "retention_ms": HOUR_MS},
        "compact": {**small, "cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01},
    }  # fmt: skip
    topics = {name: await session.create_topic(name, assigned=[[restarted]], **each) for name, each in options.items()}
    began_ms = session.now_ms
    for topic in topics.values():
        await _fill(session, topic, 3)
    await session.fault(session.one_of("kill", "bounce"), restarted, for_ms=300)
    await session.sleep(700)
    for topic in topics.values():
        await became_complete(session, topic)
    for name in ("size", "compact", "all", "long"):
        await _fill(session, topics[name], 9)
    await session.until(partial(_is_trimmed, session, topics["size"]), True, "whether retention.bytes works", SOON_MS)
    old = partial(_old_values, session, topics["compact"])
    await session.until(old, [], "the values that a compacted topic had before the restart", SOON_MS)
    left_ms = max(0, began_ms + KEPT_MS + 500 - session.now_ms) + SOON_MS
    await session.until(partial(_is_trimmed, session, topics["time"]), True, "whether retention.ms works", left_ms)
    for name in ("all", "long"):
        values = [each.value for each in await session.read(topics[name])]
        session.equal(len(values), 12, f"the number of records of {topics[name]}, none of which expires")


async def _fill(session: Session, topic: str, count: int) -> None:
    """Append records of one key, each of which fills most of a segment."""
    for number in range(count):
        value = b"%d of %d " % (number, count)
        await session.append(topic, [record(value * 15, b"key", session.wall_ms)])


async def _is_trimmed(session: Session, topic: str) -> bool:
    return await session.offset(topic, EARLIEST) > 0


async def _old_values(session: Session, topic: str) -> list[int]:
    return [each.offset for each in await session.read(topic) if each.offset < 3]

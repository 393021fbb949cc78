"""Probes of what removes records: DeleteRecords, retention and compaction."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.node import probe
from highwater.fuzz.simulator.probes.client.requests import of_topics, request
from highwater.fuzz.simulator.probes.client.session import (
    EARLIEST,
    LATEST,
    E,
    Session,
    batches_of,
    record,
    sizes_of,
    stored,
)
from highwater.fuzz.simulator.probes.fetch import SessionModel, epoch_end
from highwater.fuzz.simulator.probes.records import HOUR_MS, PartitionModel
from highwater.reference.wire.records import Record, build_batch

TOPIC_RESOURCE: Final = 2
SET: Final = 0
COMPACTED: Final[dict[str, Any]] = {
    "cleanup_policy": "compact", "segment_bytes": 300, "min_cleanable_dirty_ratio": 0.01,
}  # fmt: skip


async def delete_records(
    session: Session, topic: str, offset: int, partition: int = 0, timeout_ms: int = 2_000
) -> tuple[int, int]:
    """Return error and low watermark of DeleteRecords."""
    part = {"partition_index": partition, "offset": offset}
    body = request("DeleteRecords", topics=of_topics([(topic, part)]), timeout_ms=timeout_ms)
    answer = await session.ask_leader(topic, partition, body, patience_ms=timeout_ms + 2_000)
    found = answer.topics[0].partitions[0]
    return int(found.error_code), int(found.low_watermark)


async def alter(
    session: Session, name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC_RESOURCE, broker_id: int = 0
) -> int:
    """Return the error of IncrementalAlterConfigs with (setting, operation, value)."""
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    body = request("IncrementalAlterConfigs", resources=[resource])
    answer = await (session.ask(broker_id, body) if broker_id else session.ask_any(body))
    return int(answer.responses[0].error_code)


async def set_topic(session: Session, topic: str, **settings: object) -> None:
    """Set settings of a topic; underscores stand for dots."""
    changes = [(name.replace("_", "."), SET, str(settings[name])) for name in settings]
    session.ok(await alter(session, topic, *changes), f"IncrementalAlterConfigs of {topic}")


@probe("ADM-6", "ADM-29", "FET-11", "LST-8")
async def trim(session: Session) -> None:
    """DeleteRecords moves the log start, only forward, and only these records vanish."""
    topic = await session.create_topic("trim", segment_bytes=session.one_of(300, 2_000))
    model = await PartitionModel(session, topic).append(14)
    for _ in range(4):
        offset = model.start + session.draw(max(1, model.end - model.start))
        session.equal(await delete_records(session, topic, offset), (E.NONE, offset), f"DeleteRecords up to {offset}")
        model.start = offset
        await model.check()
        lower = session.draw(offset + 1)
        found = await delete_records(session, topic, lower)
        session.equal(found, (E.NONE, model.start), f"DeleteRecords up to {lower}, below the log start")
        await model.check_offsets()
    error, _ = await delete_records(session, topic, model.end + 1)
    session.error(error, E.OFFSET_OUT_OF_RANGE, "DeleteRecords above the high watermark")
    epoch = (await session.known(topic)).leader_epoch
    session.equal(await delete_records(session, topic, -1), (E.NONE, model.end), "DeleteRecords of all")
    model.start = model.end
    await model.check_offsets()
    found = await epoch_end(session, await session.leader(topic), topic, epoch, epoch)
    session.equal((found.error_code, found.end_offset), (0, model.end), "the end of the epoch of the empty log")
    await model.append()
    await model.check_offsets()
    await model.check_content()


@probe("ADM-30", "FET-22")
async def trim_in_a_session(session: Session) -> None:
    """A fetch session returns a partition whose log start alone has changed, and a compacted topic keeps its start."""
    topic = await session.create_topic("start", assigned=[[1, 2, 3]] * 2)
    model = SessionModel(session, topic, 2)
    for number in (0, 0, 0, 1, 1, 1):
        await model.append(number)
    await model.fetch({0: 3, 1: 3})
    await model.fetch()
    session.equal(await delete_records(session, topic, 2, 1), (E.NONE, 2), "DeleteRecords")
    answer = await model.send()
    session.equal(list(sizes_of(answer)), [1], "the partitions in the session after DeleteRecords in partition 1")
    session.equal(answer.responses[0].partitions[0].log_start_offset, 2, "the log start in the session")
    compacted = await session.create_topic("compacted", cleanup_policy="compact")
    await session.append(compacted, [record(b"v", b"k")] * 2)
    error, _ = await delete_records(session, compacted, 1)
    session.error(error, E.POLICY_VIOLATION, "DeleteRecords of a compacted topic")
    session.equal(len(await session.read(compacted)), 2, "its records")


# -- retention -------------------------------------------------------------------------------------------------------


@probe("FET-44")
async def retention_by_size(session: Session) -> None:
    """Retention by size keeps at least retention.bytes, of each partition, at once after a change."""
    topic = await session.create_topic("size", 2, segment_bytes=500)
    models = [await PartitionModel(session, topic, number).append(24, 3) for number in (0, 1)]
    keep = 900 + session.draw(900)
    await set_topic(session, topic, retention_bytes=keep)
    for model in models:
        await session.until(partial(_starts_after, session, model.topic, model.number, 1), True, "retention by size")
        await session.sleep(700)
        model.start = await session.offset(topic, EARLIEST, model.number)
        left = sum(batch.size for batch in model.batches if batch.base_offset >= model.start)
        most = keep + 500 + max(batch.size for batch in model.batches)
        session.expect(keep <= left < most, f"retention leaves {left} bytes of retention.bytes {keep}")
        await model.check()


async def _starts_after(session: Session, topic: str, number: int, offset: int) -> bool:
    return await session.offset(topic, EARLIEST, number) >= offset


@probe("FET-44")
async def retention_by_time(session: Session) -> None:
    """A segment is deleted when its largest timestamp is too old, and no other one (KIP-33)."""
    now, old = session.wall_ms, session.wall_ms - 5 * HOUR_MS
    size = len(build_batch([record(b"x" * 40, b"key 0", now)]))
    policy = session.one_of("delete", "compact,delete")
    topic = await session.create_topic("time", 2, segment_bytes=2 * size, retention_ms=-1, cleanup_policy=policy)
    kept, starts = session.one_of((old, now), (now, old)), {}
    for number in (0, 1):
        segments = [(old, old + 5), (old + 9, old)][: 1 + session.draw(2)]
        starts[number] = 2 * len(segments)
        times = [each for segment in (*segments, kept, (old, old), (now, now)) for each in segment]
        for n, timestamp in enumerate(times):
            await session.append(topic, [record(b"x" * 40, b"key %d" % n, timestamp)], number)
    await set_topic(session, topic, retention_ms=HOUR_MS)
    for number, start in starts.items():
        reached = partial(_starts_after, session, topic, number, start)
        await session.until(reached, True, f"whether the log start is {start}")
    await session.sleep(800)
    for number, start in starts.items():
        found = await session.offset(topic, EARLIEST, number), len(await session.read(topic, start, number))
        session.equal(found, (start, 6), "the log start after retention by time, and the records left")
    await set_topic(session, topic, retention_ms=0)
    for number, start in starts.items():
        reached = partial(_starts_after, session, topic, number, start + 4)
        await session.until(reached, True, "whether retention.ms=0 deletes all closed segments")


# -- compaction ------------------------------------------------------------------------------------------------------


async def fill(session: Session, topic: str, count: int = 30, keys: int = 4) -> list[Record]:
    """Append records with few keys, among them tombstones; return them."""
    written: list[Record] = []
    for _ in range(count):
        value = None if session.draw(6) == 0 else b"value %d" % len(written)
        batch = [record(value, b"k%d" % session.draw(keys), session.wall_ms),
                 record(b"other %d" % len(written), b"k%d" % session.draw(keys), 0)][: 1 + session.draw(2)]  # fmt: skip
        first = await session.append(topic, batch)
        written += [stored(first + n, each) for n, each in enumerate(batch)]
    return written


def newest(records: list[Record]) -> list[Record]:
    """Return the last record of each key."""
    return list({each.key: each for each in records}.values())


async def is_compacted(session: Session, topic: str, written: list[Record]) -> list[Record]:
    """Check that a compacted topic has the last record of each key, and only what was written, in order (FET-36)."""
    found = await session.read(topic)
    by_offset = {each.offset: each for each in written}
    session.equal([tuple(r) for r in found], [tuple(by_offset[r.offset]) for r in found], "a record after compaction")
    session.equal([r.offset for r in found], sorted(r.offset for r in found), "the order of the offsets")
    for last in newest(written):
        session.expect(last in found, f"the last record {last} is gone")
    return found


@probe("FET-36")
async def compaction(session: Session) -> None:
    """Compaction keeps the last record of each key, in order and at its offset."""
    topic = await session.create_topic("compact", delete_retention_ms=HOUR_MS, **COMPACTED)
    written = await fill(session, topic)
    kept_all = await session.create_topic("lag", min_compaction_lag_ms=HOUR_MS, **COMPACTED)
    lagging = await fill(session, kept_all, 12)

    async def is_smaller() -> bool:
        return len(await session.read(topic)) <= len(written) - 8

    await session.until(is_smaller, True, "whether compaction removes records")
    await session.sleep(600)
    await is_compacted(session, topic, written)
    for offset in range(0, written[-1].offset, 3):
        headers = batches_of(await session.fetch(topic, offset, partition_max_bytes=1))
        # The last record of each key remains, whatever another cleaning removes meanwhile.
        later = sorted(each.offset for each in newest(written) if each.offset >= offset)
        session.expect(headers or not later, f"a Fetch at {offset} returns nothing, and {later[:1]} exists")
        if headers and later:
            session.expect(headers[0].base_offset <= later[0], f"a Fetch at {offset} skips the record at {later[0]}")
    session.equal(len(await session.read(kept_all)), len(lagging), "the records within min.compaction.lag.ms")


@probe("FET-37", "FET-45")
async def tombstones(session: Session) -> None:
    """A tombstone is removed after delete.retention.ms, and an old value after max.compaction.lag.ms."""
    late = await session.create_topic("late", delete_retention_ms=HOUR_MS, **COMPACTED)
    soon = await session.create_topic("soon", delete_retention_ms=600, **COMPACTED)
    lag = await session.create_topic(
        "lag", cleanup_policy="compact", max_compaction_lag_ms=700, min_cleanable_dirty_ratio=0.99
    )
    for topic in (late, soon, lag):
        for value in (b"old", None, *[b"filler %d" % n for n in range(12)]):
            key = b"gone" if value in {b"old", None} else b"filler"
            await session.append(topic, [record(value, key, session.wall_ms)])
    end_ms = session.now_ms + 4_000
    while session.now_ms < end_ms and await _has(session, soon, None):
        await session.append(soon, [record(b"more", b"filler", session.wall_ms)] * 3)
        await session.sleep(150)
    session.expect(not await _has(session, soon, None), "a tombstone remains after delete.retention.ms")
    session.expect(await _has(session, late, None), "a tombstone is removed before delete.retention.ms")
    await session.append(lag, [record(b"rolls the segment", b"filler", session.wall_ms)])
    await session.until(partial(_has, session, lag, b"old"), False, "whether an old value is there", 4_000)


async def _has(session: Session, topic: str, value: bytes | None) -> bool:
    return any(each.value == value and each.key == b"gone" for each in await session.read(topic))


async def offsets_of(session: Session, topic: str, number: int = 0) -> tuple[int, int]:
    """Return log end and last stable offset."""
    return await session.offset(topic, LATEST, number), await session.offset(topic, LATEST, number, 1)

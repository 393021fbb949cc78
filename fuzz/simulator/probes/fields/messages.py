"""Probes of messages of old clients, and of the markers that coordinators send."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.requests import fetch_request, of_topics, request
from highwater.fuzz.simulator.probes.client.session import LATEST, E, Session
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.log_entries import decode_entry, entries
from highwater.reference.wire.message_sets import build_message_set
from highwater.reference.wire.records import Record

CODECS: Final = (Compression.NONE, Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
MAGIC: Final = ((0, 0), (1, 0), (2, 0), (2, 1))
"""Versions of Produce, with the formats that their clients send."""
NO_TIME: Final = -1


def _drawn(session: Session, count: int, base: int = 0) -> list[Record]:
    """Return messages with drawn keys, values and times."""
    return [
        Record(
            base + number, session.wall_ms + session.draw(2_000) - 1_000, session.one_of(b"k", b"", b"key"),
            session.one_of(b"v", b"", None, b"%d " % session.draw(1 << 20) * 9), (),
        )
        for number in range(count)
    ]  # fmt: skip


def _plain(records: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [(each.offset, each.timestamp, each.key, each.value) for each in records]


@fields("PRD-14", "PRD-17", "PRD-27", "PRD-33", "PRD-34", "PRD-16", "FET-17", "FET-38")
async def messages_of_old_clients(session: Session) -> None:
    """Message sets of both old formats are stored as they were sent, checked, and returned in every format."""
    topic = await session.create_topic("old", 1)
    stored: list[Record] = []
    for version, magic in MAGIC * 2:
        sent = _drawn(session, 1 + session.draw(4))
        codec = session.one_of(*CODECS)
        content = build_message_set(sent, magic, codec)
        answer = await session.produce(topic, content, version=version)
        what = f"Produce {version} of {len(sent)} messages of magic {magic}, {codec.name}"
        session.equal((answer.error_code, answer.base_offset), (0, len(stored)), f"error and offset of {what}")
        stored += [
            each._replace(offset=len(stored) + number, timestamp=each.timestamp if magic else NO_TIME)
            for number, each in enumerate(sent)
        ]
    await session.until(partial(session.offset, topic, LATEST), len(stored), f"the end of {topic}")
    session.equal(_plain(await session.read(topic)), _plain(stored), "the messages in Fetch 12")
    for version in (0, 2, 3, 4):
        answer = await session.ask_leader(topic, 0, fetch_request(topic, {0: 0}), version)
        data = answer.responses[0].partitions[0]
        content = bytes(data.records or b"")
        found = [record for at, _ in entries(content) for record in decode_entry(content, at)[1]]
        expected = [each._replace(timestamp=NO_TIME) for each in stored] if version < 2 else stored
        session.equal(_plain(found), _plain(expected), f"the messages in Fetch {version}")
    await _refused_messages(session, topic, len(stored))


async def _refused_messages(session: Session, topic: str, end: int) -> None:
    """Messages with a wrong CRC, without the key that a topic needs, or in a version of newer clients."""
    compacted = await session.create_topic("compact", cleanup_policy="compact")
    by_broker = await session.create_topic("times", message_timestamp_type="LogAppendTime")
    fixed = await session.create_topic("fixed", message_downconversion_enable="false")
    for version, magic in MAGIC:
        good = build_message_set(_drawn(session, 2), magic)
        bad = good[:-1] + bytes((good[-1] ^ 1,))
        error = (await session.produce(topic, bad, version=version)).error_code
        session.error(error, E.CORRUPT_MESSAGE, f"Produce {version} of a message with a wrong CRC")
        keyless = build_message_set([each._replace(key=None) for each in _drawn(session, 1)], magic)
        error = (await session.produce(compacted, keyless, version=version)).error_code
        session.error(error, E.INVALID_RECORD, f"Produce {version} without a key")
        answer = await session.produce(by_broker, good, version=version)
        session.ok(answer.error_code, f"Produce {version} with LogAppendTime")
        error = (await session.produce(topic, good, version=3)).error_code
        session.error(error, (E.INVALID_RECORD, E.CORRUPT_MESSAGE), f"Produce 3 of a message of magic {magic}")
        session.ok((await session.produce(fixed, good, version=version)).error_code, f"Produce {version}")
    session.equal(await session.offset(topic, LATEST), end, "the end after refused messages")
    times = {each.timestamp for each in await session.read(by_broker)}
    near = all(abs(each - session.wall_ms) < 60_000 for each in times)
    session.expect(near and times, f"the append times of old messages are {times}")
    for version, expected in ((1, E.UNSUPPORTED_VERSION), (3, E.UNSUPPORTED_VERSION), (4, E.NONE), (12, E.NONE)):
        answer = await session.ask_leader(fixed, 0, fetch_request(fixed, {0: 0}), version)
        data = answer.responses[0].partitions[0]
        what = f"Fetch {version} of a topic with message.downconversion.enable=false"
        session.error(data.error_code, expected, what)
        session.equal(bool(data.records), expected is E.NONE, f"whether {what} returns records")


# -- markers -----------------------------------------------------------------------------------------------------------

FIRST_ID: Final = 1 << 40
"""No coordinator gives out such producer ids."""


class MarkersModel:
    """A model of one partition: epoch and coordinator epoch of each producer, and the end of the log."""

    def __init__(self, session: Session, topic: str, number: int) -> None:
        self.session, self.topic, self.number = session, topic, number
        self.known: dict[int, tuple[int, int]] = {}
        self.end = 0

    def expected(self, producer: int, epoch: int, coordinator: int) -> E:
        """Return the error of a marker, and note it if it is written (ProducerAppendInfo.appendEndTxnMarker)."""
        last_epoch, last_coordinator = self.known.get(producer, (-1, -1))
        if epoch < last_epoch:
            return E.INVALID_PRODUCER_EPOCH
        if coordinator < last_coordinator:
            return E.TRANSACTION_COORDINATOR_FENCED
        self.known[producer] = epoch, coordinator
        self.end += 1
        return E.NONE


@fields("TXN-22", "TXN-35", "TXN-37", "FLD-8", "FET-31")
async def markers_in_any_order(session: Session) -> None:
    """A marker is written unless its producer epoch or its coordinator epoch is older than that of the last one."""
    topic = await session.create_topic("markers", assigned=[[1, 2, 3]] * 2 + [[2, 3, 1]])
    models = [MarkersModel(session, topic, number) for number in range(2)]
    for _ in range(8):
        markers, expected = [], {}
        for producer in range(2):
            epoch, coordinator = session.draw(4), session.draw(4)
            numbers = [number for number in (0, 1) if session.draw(3)] or [0]
            markers.append(_marker(FIRST_ID + producer, epoch, coordinator, topic, [*numbers, 2, 9]))
            for number in numbers:
                expected[producer, number] = int(models[number].expected(producer, epoch, coordinator))
            expected[producer, 2], expected[producer, 9] = E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION
        answer = await session.ask(1, request("WriteTxnMarkers", markers=markers), 1)
        found = {
            (marker.producer_id - FIRST_ID, part.partition_index): part.error_code
            for marker in answer.markers for each in marker.topics for part in each.partitions
        }  # fmt: skip
        session.equal(found, expected, f"the errors of the markers {markers}")
    for model in models:
        for isolation in (0, 1):
            end = partial(session.offset, topic, LATEST, model.number, isolation)
            await session.until(end, model.end, f"the end of {topic}-{model.number} with isolation {isolation}")
        body = request("DescribeProducers", topics=of_topics([(topic, model.number)], partitions="partition_indexes"))
        answer = await session.ask(1, body)
        described = {
            each.producer_id - FIRST_ID: (each.producer_epoch, each.coordinator_epoch, each.current_txn_start_offset)
            for each in answer.topics[0].partitions[0].active_producers
        }
        known = {producer: (*epochs, -1) for producer, epochs in model.known.items()}
        session.equal(described, known, f"the producers of {topic}-{model.number}")


def _marker(producer: int, epoch: int, coordinator: int, topic: str, numbers: list[int]) -> dict[str, Any]:
    return {
        "producer_id": producer, "producer_epoch": epoch, "transaction_result": bool(epoch % 2),
        "coordinator_epoch": coordinator, "topics": [{"name": topic, "partition_indexes": numbers}],
    }  # fmt: skip

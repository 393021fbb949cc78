"""Produce and DeleteRecords of many partitions at once, compared with the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from highwater.conformance.cases.support.log_walks.walk import Key, Walk, answers, compare, grouped
from highwater.conformance.client.broker import BY_ID_SINCE
from highwater.conformance.client.requests import message
from highwater.conformance.models.batches import NONE, Batch, Stored
from highwater.conformance.models.log import Errors
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.offsets import DeleteRecordsRequest
from highwater.reference.wire.messages.produce import PartitionProduceResponse, ProduceRequest

TIMEOUT_MS: Final = 4_000
NO_REPLY, LEADER, ALL = 0, 1, -1
ZSTD_PRODUCE_SINCE: Final = 7
NEAR_MS: Final = 60_000
"""How far the time of a broker may be from that of the suite."""


@dataclass(frozen=True, slots=True)
class Write:
    """A part of a Produce: a batch, or bytes with the errors that the broker may return for them."""

    key: Key
    batch: Batch | None = None
    data: bytes = b""
    errors: frozenset[int] = frozenset()

    @property
    def encoded(self) -> bytes:
        return self.batch.encoded() if self.batch else self.data


def produce(
    walk: Walk, writes: Sequence[Write], *, version: int | None = None, acks: int = ALL,
    transactional_id: str | None = None,
) -> None:  # fmt: skip
    """Send a Produce with a part for each write, compare the reply, and append to the model what was accepted."""
    for broker, parts in walk.by_leader(writes):
        chosen = walk.version(ProduceRequest) if version is None else version
        what = walk.step(f"Produce v{chosen}, acks {acks}")
        topics = [
            {"name": name, "partition_data": [[p.key[1], p.encoded] for p in of_topic], **walk.identity(name)}
            for name, of_topic in grouped(parts).items()
        ]
        request = message(
            ProduceRequest, transactional_id=transactional_id, acks=acks, timeout_ms=TIMEOUT_MS, topic_data=topics
        )
        if acks == NO_REPLY:
            broker.send(request, chosen)
            for part in parts:
                _expected(walk, part, chosen)
            continue
        reply = broker.call(request, chosen, TIMEOUT_MS / 1000 + 5)
        compare(what, node_endpoints=((), reply.node_endpoints))
        found = _results(walk, reply.responses, chosen, parts)
        for part, result in answers(what, parts, found):
            _compare_write(walk, f"{what}, partition {walk.show(part.key)}", part, result, chosen)


def _results(
    walk: Walk, topics: Sequence[Any], version: int, parts: Sequence[Write]
) -> list[tuple[Key, PartitionProduceResponse]]:
    unknown = next((part.key[0] for part in parts if part.key[0] not in walk.ids), "")
    return [
        ((walk.name_of(topic, version >= BY_ID_SINCE, unknown), result.index), result)
        for topic in topics
        for result in topic.partition_responses
    ]


def _expected(walk: Walk, part: Write, version: int) -> tuple[Errors, Stored | None, bool]:
    """Return the error for a part, or the batch that is stored now or, if it was repeated, already; append it."""
    if part.key not in walk.logs:
        return walk.unknown_error(part.key, version), None, False
    if part.batch is None:
        return frozenset(map(ErrorCode, part.errors)), None, False
    if part.batch.codec is Compression.ZSTD and version < ZSTD_PRODUCE_SINCE:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, None, False
    if part.errors:
        return frozenset(map(ErrorCode, part.errors)), None, False
    appended = walk.logs[part.key].append(part.batch)
    return appended.error, appended.stored, appended.again


def _compare_write(walk: Walk, what: str, part: Write, result: PartitionProduceResponse, version: int) -> None:
    error, stored, again = _expected(walk, part, version)
    compare(what, error_code=(error, result.error_code))
    if result.error_code:
        stored = None
    start = walk.logs[part.key].start if part.key in walk.logs else NONE
    leader = (NONE, NONE)
    compare(what, current_leader=(leader, (result.current_leader.leader_id, result.current_leader.leader_epoch)))
    starts = {start} if stored else {start, NONE}
    compare(what, log_start_offset=(frozenset(starts if version >= 5 else {NONE}), result.log_start_offset))
    if stored is None:
        compare(what, base_offset=(NONE, result.base_offset), append_time=(NONE, result.log_append_time_ms))
        return
    compare(
        what, base_offset=(stored.base_offset, result.base_offset), record_errors=((), result.record_errors),
        error_message=(None, result.error_message),
    )  # fmt: skip
    _compare_time(walk, what, stored, result.log_append_time_ms, again)


def _compare_time(walk: Walk, what: str, stored: Stored, found: int, again: bool) -> None:
    """A repeated batch may be answered with its largest timestamp, whatever the type of its time."""
    if not stored.by_append_time:
        allowed = {NONE, stored.batch.largest_timestamp} if again else {NONE}
        compare(what, append_time=(frozenset(allowed), found))
        return
    if stored.append_time is None:
        stored.append_time = found
        compare(what, append_time_is_now=(True, abs(found - walk.now_ms()) < NEAR_MS))
    compare(what, append_time=(stored.append_time, found))


@dataclass(frozen=True, slots=True)
class Deletion:
    """A part of a DeleteRecords."""

    key: Key
    offset: int


def delete(walk: Walk, deletions: Sequence[Deletion], *, version: int | None = None) -> None:
    """Send a DeleteRecords with a part for each deletion, compare the reply, and move the starts of the model."""
    for broker, parts in walk.by_leader(deletions):
        chosen = walk.version(DeleteRecordsRequest) if version is None else version
        what = walk.step(f"DeleteRecords v{chosen}")
        topics = [[name, [[p.key[1], p.offset] for p in of_topic]] for name, of_topic in grouped(parts).items()]
        request = message(DeleteRecordsRequest, topics=topics, timeout_ms=TIMEOUT_MS)
        reply = broker.call(request, chosen, TIMEOUT_MS / 1000 + 5)
        found = [
            ((topic.name, result.partition_index), (result.error_code, result.low_watermark))
            for topic in reply.topics
            for result in topic.partitions
        ]
        for part, result in answers(what, parts, found):
            named = f"{what} before {part.offset}, partition {walk.show(part.key)}"
            if part.key in walk.logs:
                wanted = walk.logs[part.key].delete_before(part.offset)
            else:
                wanted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE
            compare(named, error_code_and_low_watermark=((int(wanted[0]), wanted[1]), result))

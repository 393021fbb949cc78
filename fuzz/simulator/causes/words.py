"""Put a request or response in one line: the fields that are not at their defaults, of one partition if wanted."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, Field, fields
from typing import Any, Final

from highwater.fuzz.simulator.causes.lines import Line
from highwater.fuzz.simulator.exchanges import (
    ERROR_FIELDS,
    INDEX_FIELDS,
    TOPIC_FIELDS,
    SimulatedExchange,
    index_of,
    is_struct,
    topic_of,
)
from highwater.reference.clients.subscriptions import Partition, Subscription, unpack_assignment
from highwater.reference.wire.errors import WireError
from highwater.reference.wire.records import batch_headers, decode_records

WIDTH: Final = 110
ITEMS: Final = 3
"""Items of an array that are shown; the others are counted."""
TEXT: Final = 24
"""Characters of a byte string that are shown."""
LEFT_OUT: Final = {
    "max_wait_ms", "min_bytes", "max_bytes", "partition_max_bytes", "timeout_ms", "acks", "session_id", "session_epoch",
    "throttle_time_ms", "log_append_time_ms", "log_start_offset", "last_stable_offset", "retention_time_ms",
    "session_timeout_ms", "rebalance_timeout_ms", "protocol_type", "protocol_name", "replica_id", "replica_state",
    "topic_id",
}  # fmt: skip
"""Fields that say little about an offset or a group."""
ALWAYS: Final = {"base_offset", "committed_offset", "fetch_offset", "offset", "generation_id"}
"""Fields that are shown even if they are 0."""
SHORT: Final = {
    "generation_id_or_member_epoch": "generation", "generation_id": "generation", "member_id": "member",
    "committed_offset": "offset", "fetch_offset": "offset", "producer_id": "producer", "producer_epoch": "epoch",
    "group_id": "group", "group_instance_id": "instance", "committed_leader_epoch": "leader epoch",
}  # fmt: skip


DECODED: Final[dict[str, tuple[str, Callable[[bytes], Collection[Partition]]]]] = {
    "metadata": ("owns", lambda data: Subscription.decode(data).owned),
    "assignment": ("is assigned", unpack_assignment),
}
"""What a member or a coordinator says of partitions in bytes of the consumer protocol."""
UUID: Final = re.compile(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


def line_of(exchange: SimulatedExchange, partition: str = "", left_out: Collection[str] = LEFT_OUT) -> Line:
    """Return the line about a request; of the topics only `partition`, if it is given.

    Repetitions are failures of the same kind for the same partitions, and requests of a controller in the same epoch.
    """
    key = f"{exchange.name} {sorted(exchange.partitions | exchange.groups)} {exchange.error}"
    if (controller_epoch := getattr(exchange.body, "controller_epoch", None)) is not None:
        key = f"{exchange.name} {controller_epoch} {exchange.error}"
    elif exchange.error in {"NONE", "no response"} and exchange.name != "Metadata":
        key = ""
    return Line(exchange.at_ms, f"{exchange.source} -> {exchange.target}", words_of(exchange, partition, left_out), key)


def words_of(exchange: SimulatedExchange, partition: str, left_out: Collection[str]) -> str:
    """Return what the request asks and what the response says, without the fields that are left out."""
    asked = cut(f"{exchange.name} {' '.join(_words(exchange.body, partition, left_out))}")
    if exchange.answer is None:
        return f"{asked}: no response"
    answered = cut(" ".join(_words(exchange.answer, partition, {*left_out, *ERROR_FIELDS}, sent=False)))
    return f"{asked}: {exchange.error} at {exchange.answered_ms}" + (f", {answered}" if answered else "")


def cut(text: str) -> str:
    """Return the text in at most `WIDTH` characters."""
    text = text.strip()
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _words(
    part: Any, partition: str, left_out: Collection[str], *, sent: bool = True, topic: str = ""
) -> Iterator[str]:  # fmt: skip
    for each in fields(part):
        value = getattr(part, each.name)
        if each.name in left_out or value is None or (value == _default(each) and each.name not in ALWAYS):
            continue
        if each.name == "records":
            yield _records(bytes(value), with_offsets=not sent)
        elif each.name in DECODED and isinstance(value, bytes):
            yield _decoded(each.name, value)
        elif isinstance(value, tuple) and value and is_struct(value[0]):
            yield _items(each.name, [_item(item, partition, left_out, sent=sent, topic=topic) for item in value])
        elif is_struct(value):
            yield from _words(value, partition, left_out, sent=sent, topic=topic)
        elif each.name not in TOPIC_FIELDS and each.name not in INDEX_FIELDS:
            yield f"{SHORT.get(each.name, each.name)}={_value(value)}"


def _default(each: "Field[Any]") -> Any:
    return each.default if each.default is not MISSING else ()


def _item(item: Any, partition: str, left_out: Collection[str], *, sent: bool, topic: str) -> str:
    """Return the words of an item of an array, empty if it is about another partition than the one that is asked."""
    index, own = index_of(item), topic_of(item)
    title = f"{own or topic}-{index}" if index is not None else own
    if partition and title and partition != title and not partition.startswith(f"{title}-"):
        return ""
    inner = " ".join(_words(item, partition, left_out, sent=sent, topic=own or topic))
    return inner if inner.startswith(title) else f"{title} {inner}".rstrip()


def _items(name: str, items: list[str]) -> str:
    shown = [item for item in items if item]
    more = f" and {len(shown) - ITEMS} more {name}" if len(shown) > ITEMS else ""
    return "; ".join(shown[:ITEMS]) + more


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        return repr(value[:TEXT])[1:] + ("..." if len(value) > TEXT else "")
    if isinstance(value, tuple):
        return ",".join(map(str, value[:ITEMS])) + ("..." if len(value) > ITEMS else "")
    return UUID.sub(r"\1", str(value))


def _decoded(name: str, data: bytes) -> str:
    title, decode = DECODED[name]
    try:
        partitions = sorted(decode(data)) if data else []
    except WireError:
        return f"{title} {_value(data)}"
    return f"{title} {' '.join(f'{topic}-{number}' for topic, number in partitions) or 'nothing'}"


def _records(data: bytes, *, with_offsets: bool) -> str:
    """Return how many records the batches have, their offsets in a response, their producer, and the first value."""
    headers = [header for _, header in batch_headers(data)]
    if not headers:
        return f"{len(data)} bytes" if data else "no records"
    first, count = headers[0], sum(header.record_count for header in headers)
    where = f" at {first.base_offset} to {headers[-1].last_offset}" if with_offsets else ""
    producer = f" of producer {first.producer_id} epoch {first.producer_epoch} sequence {first.base_sequence}"
    return (
        f"{count} record{'s' if count != 1 else ''}{where} from {_value(first_value(data))}"
        f"{producer if first.producer_id >= 0 else ''}"
    )


def first_value(data: bytes) -> bytes:
    """Return the value of the first record, empty if it cannot be decoded."""
    try:
        records = decode_records(data)[1]
    except WireError:
        return b""
    return next((record.value or b"" for record in records), b"")

"""Message sets, formats 0 and 1: written by Produce 0 to 2, and returned by Fetch 0 to 3 instead of batches.

Apache Kafka 4.0 has removed both (KIP-724, KIP-896). The clauses apply to brokers that advertise Fetch 3.
"""

import struct

import pytest

from highwater.conformance.cases.support.transactions import ABORT, COMMIT, Transactional, eventually_stable
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import NOW_MS, Broker, Topic, batch, produce_request, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, StaysOpen, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Disconnected, Unsupported
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.message_sets import build_message_set, decode_message, read_message_header
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.records import Record, build_batch
from highwater.reference.wire.registry import api_of

FETCH, LAST_OF_MESSAGE_SETS = 1, 3
MAX_BYTES = 1 << 20
RECORDS = "responses.partitions.records"
VALUES = [b"a", b"b", b"c"]
OFFSET_AND_SIZE = struct.Struct(">qi")


def need_message_sets(broker: Broker) -> None:
    broker.need(FetchRequest, LAST_OF_MESSAGE_SETS)


def messages(data: bytes | None) -> list[tuple[int, Record]]:
    """Return magic and record of each complete message, also inside wrappers; the last one may be incomplete."""
    found, position, data = list[tuple[int, Record]](), 0, data or b""
    while _is_whole(data, position):
        header = read_message_header(data, position)
        found += [(header.magic, record) for record in decode_message(data, position, MAX_BYTES)[1]]
        position += header.size
    return found


def read_all(leader: Broker, topic: Topic, version: int) -> list[tuple[int, Record]]:
    """Fetch up to the high watermark; a converted reply may have fewer records, as its size is that of the batches."""
    found: list[tuple[int, Record]] = []
    while True:
        position = found[-1][1].offset + 1 if found else 0
        answer = leader.fetch(topic, position, version=version)
        more = [message for message in messages(answer.records) if message[1].offset >= position]
        found += more
        if not more or found[-1][1].offset + 1 >= answer.high_watermark:
            return found


def _is_whole(data: bytes, position: int) -> bool:
    if len(data) - position < OFFSET_AND_SIZE.size:
        return False
    size: int = OFFSET_AND_SIZE.unpack_from(data, position)[1]
    return len(data) - position - OFFSET_AND_SIZE.size >= size


def message_set(magic: int, codec: Compression = Compression.NONE) -> bytes:
    records = [Record(offset, NOW_MS if magic else -1, b"k", value) for offset, value in enumerate(VALUES)]
    return build_message_set(records, magic, codec)


@clause("FET-38")
@sweep(FetchRequest, 0, LAST_OF_MESSAGE_SETS)
@defect(Reply(FetchRequest, RECORDS, b""))
def test_batches_are_read_as_message_sets(leader: Broker, topic: Topic, version: int) -> None:
    leader.need(FetchRequest, version)
    leader.produce(topic, batch(*VALUES))
    found = read_all(leader, topic, version)
    expect("offsets and values", True, [(r.offset, r.value) for _, r in found] == list(enumerate(VALUES)))
    expect("magic", True, {magic for magic, _ in found} == {1 if version >= 2 else 0})
    expect("times", True, {r.timestamp for _, r in found} == {NOW_MS if version >= 2 else -1})


@clause("FET-38", "headers")
@defect(Reply(FetchRequest, RECORDS, b""))
def test_headers_are_lost_and_the_rest_is_read(leader: Broker, topic: Topic) -> None:
    need_message_sets(leader)
    leader.produce(topic, build_batch([(NOW_MS, b"k", None, (("h", b"1"),)), (NOW_MS, None, b"v", ())]))
    found = [record for _, record in read_all(leader, topic, LAST_OF_MESSAGE_SETS)]
    expect("keys and values", True, [(r.key, r.value) for r in found] == [(b"k", None), (None, b"v")])


@clause("FET-38", "codecs")
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4], ids=lambda c: c.name.lower())
@defect(Reply(FetchRequest, RECORDS, b""))
def test_compressed_batches_are_read_as_message_sets(leader: Broker, topic: Topic, codec: Compression) -> None:
    need_message_sets(leader)
    leader.produce(topic, batch(*VALUES, compression=codec))
    found = read_all(leader, topic, LAST_OF_MESSAGE_SETS)
    expect("values", True, [record.value for _, record in found] == VALUES)


@clause("FET-47")
@sweep(FetchRequest, 0, LAST_OF_MESSAGE_SETS)
@defect(Reply(FetchRequest, "responses.partitions.error_code", 0))
def test_a_topic_may_forbid_the_conversion(cluster: Cluster, version: int) -> None:
    forbidding = cluster.create_topic(configs={"message.downconversion.enable": "false"})
    leader = cluster.leader(forbidding)
    leader.need(FetchRequest, version)
    expect("error code of Produce", 0, leader.produce(forbidding, batch(*VALUES)).error_code)
    part = leader.fetch(forbidding, 0, version=version)
    expect("error code and records", (ErrorCode.UNSUPPORTED_VERSION, b""), (part.error_code, part.records or b""))
    newer = leader.fetch(forbidding, 0, version=leader.version_of(FetchRequest, LAST_OF_MESSAGE_SETS + 1))
    expect("values in a newer version", True, [each.value for each in records_of(newer.records)] == VALUES)


@clause("FET-38", "markers")
@sweep(FetchRequest, 0, LAST_OF_MESSAGE_SETS)
@defect(Reply(FetchRequest, RECORDS, b""))
def test_markers_are_not_read_as_messages(cluster: Cluster, topic: Topic, version: int) -> None:
    leader = cluster.leader(topic)
    leader.need(FetchRequest, version)
    producer = Transactional.initialize(cluster)
    for sequence, commit in enumerate((ABORT, COMMIT)):
        producer.begin(topic)
        producer.write(topic, sequence, VALUES[sequence])
        producer.end(commit=commit)
        eventually_stable(cluster, leader, topic, 2 * sequence + 2)
    leader.produce(topic, batch(VALUES[2]))
    found = [(record.offset, record.value) for _, record in read_all(leader, topic, version)]
    expect("offsets and values", True, found == [(0, b"a"), (2, b"b"), (4, b"c")])


@clause("PRD-33")
@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.LZ4], ids=lambda c: c.name.lower())
@defect(
    Reply(FetchRequest, RECORDS, b""),
    Reply(ProduceRequest, "responses.partition_responses.error_code", ErrorCode.CORRUPT_MESSAGE),
)
def test_message_sets_are_taken(leader: Broker, topic: Topic, codec: Compression, version: int) -> None:
    need_message_sets(leader)
    written = message_set(1 if version == 2 else 0, codec)
    for base_offset in (0, len(VALUES)):
        answer = leader.produce(topic, written, version=version)
        expect("error code and base offset", (0, base_offset), (answer.error_code, answer.base_offset))
    found = read_all(leader, topic, LAST_OF_MESSAGE_SETS)
    expect("values", True, [record.value for _, record in found] == VALUES * 2)


@clause("PRD-34")
@pytest.mark.parametrize("magic", [0, 1])
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", 0))
def test_a_message_with_a_wrong_checksum_is_refused(leader: Broker, topic: Topic, magic: int) -> None:
    need_message_sets(leader)
    good = message_set(magic)
    answer = leader.produce(topic, good[:-1] + bytes([good[-1] ^ 1]), version=2 if magic else 1)
    expect("error code", ErrorCode.CORRUPT_MESSAGE, answer.error_code)
    expect("end offset", 0, leader.end_offset(topic))


@clause("PRD-35")
@pytest.mark.parametrize("version", range(3))
@defect(StaysOpen())
def test_message_sets_are_refused_where_they_cannot_be_read(leader: Broker, topic: Topic, version: int) -> None:
    leader.need(ProduceRequest, version)
    if leader.advertised[FETCH][0] <= LAST_OF_MESSAGE_SETS:
        raise Unsupported("message sets are still served")
    leader.send(produce_request(topic, message_set(1 if version == 2 else 0)), version)
    try:
        reply = leader.receive(api_of(ProduceRequest), version)
    except Disconnected:  # as Apache Kafka does
        return
    expect("error codes", [False], [part.error_code == 0 for part in only(reply.responses).partition_responses])

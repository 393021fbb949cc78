"""Kafka 0.7 in the order of kafka-0.7-design: messages, log, framing, delivery."""

from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.legacy.broker import LegacyBroker
from highwater.reference.legacy.delivery import Delivery, PositionLostError, SimpleConsumer, deliver
from highwater.reference.legacy.log import EARLIEST, LATEST, LegacyLog, LegacyLogConfig, OutOfRangeError
from highwater.reference.legacy.messages import MAX_NESTING, Message, entries, message_set, payloads, read_message
from highwater.reference.legacy.requests import (
    INVALID_FETCH_SIZE,
    NO_ERROR,
    OFFSET_OUT_OF_RANGE,
    WRONG_PARTITION,
    Fetch,
    OffsetsBefore,
    Produce,
    decode_multi_send,
    decode_offsets,
    decode_request,
    decode_send,
    encode_request,
)
from highwater.reference.wire.compression import Compression, compress
from highwater.reference.wire.errors import CompressionError, DecodeError

some_payloads = st.lists(st.binary(max_size=60), min_size=1, max_size=12)
codecs = st.sampled_from([Compression.NONE, Compression.GZIP, Compression.SNAPPY])


# -- "Message Format", "On-disk format of a message" -----------------------------------------------


def test_a_message_is_length_magic_crc_payload() -> None:
    assert Message(b"abc", magic=0).encode() == (8).to_bytes(4) + b"\0" + crc32(b"abc").to_bytes(4) + b"abc"
    assert Message(b"abc").encode() == (9).to_bytes(4) + b"\1\0" + crc32(b"abc").to_bytes(4) + b"abc"


@given(some_payloads, codecs, st.sampled_from([0, 1]))
@settings(deadline=None)
def test_a_message_set_round_trips(contents: list[bytes], codec: Compression, magic: int) -> None:
    data = message_set(contents, codec, magic)
    assert [entry.message.payload for entry in payloads(data)] == contents
    assert [entry.next_position for entry in entries(data)][-1] == len(data)


@given(some_payloads, codecs, st.data())
@settings(deadline=None)
def test_a_truncated_message_is_skipped_and_a_damaged_one_refused(
    contents: list[bytes], codec: Compression, draw: st.DataObject
) -> None:
    data = message_set(contents, codec)
    last = list(entries(data))[-1]
    start = len(data) - len(last.message.encode())
    assert len(list(entries(data[: draw.draw(st.integers(start, len(data) - 1))]))) == len(list(entries(data))) - 1
    damaged = bytearray(data)
    damaged[draw.draw(st.integers(start + 6, len(data) - 1))] ^= 0x10
    with pytest.raises(DecodeError):
        list(entries(bytes(damaged)))


def test_nesting_of_message_sets_is_bounded() -> None:
    """ "End-to-end Batch Compression": a set within a message, and so on."""
    data = message_set([b"inner"])
    for _ in range(MAX_NESTING):
        data = Message(compress(Compression.GZIP, data), Compression.GZIP).encode()
    assert [entry.message.payload for entry in payloads(data)] == [b"inner"]
    with pytest.raises(CompressionError, match="nested more than 4 deep"):
        list(payloads(Message(compress(Compression.GZIP, data), Compression.GZIP).encode()))
    with pytest.raises(CompressionError):
        list(payloads(message_set([bytes(10_000)], Compression.GZIP), max_bytes=1_000))


# -- "Log", "Writes", "Reads" ----------------------------------------------------------------------

SMALL = LegacyLogConfig(file_bytes=100, flush_messages=1)


def flush(log: LegacyLog, fs: SimulatedDisk, now_ms: int = 0) -> None:
    for path in log.flush_due(now_ms):
        fs.flush(path)
    log.flushed(now_ms)


def filled(fs: SimulatedDisk, count: int = 20) -> LegacyLog:
    log = LegacyLog(fs, "my_topic", 0, SMALL)
    for number in range(count):
        log.append(message_set([b"message %02d" % number]), 1, now_ms=1_000 * number)
        flush(log, fs)
    return log


def test_files_are_named_by_the_offset_of_their_first_message() -> None:
    fs = SimulatedDisk()
    filled(fs)
    assert fs.names("my_topic_0") == [f"{offset:011d}.kafka" for offset in (0, 100, 200, 300)]


@given(st.lists(st.tuples(some_payloads, codecs), min_size=1, max_size=12))
@settings(deadline=None)
def test_an_offset_is_a_byte_position_in_the_partition(
    sets: list[tuple[list[bytes], Compression]],
) -> None:
    fs = SimulatedDisk()
    log, stream = LegacyLog(fs, "t", 0, SMALL), b""
    for contents, codec in sets:
        data = message_set(contents, codec)
        assert log.append(data, len(contents), 0) == len(stream)
        stream += data
        flush(log, fs)
    offset = 0
    for entry in entries(stream):
        found = read_message(log.read(offset, 1 << 20), 0)
        assert found is not None
        assert found.message == entry.message
        offset = entry.next_position
    assert log.end == offset == len(stream)


def test_offsets_outside_of_the_log_are_refused() -> None:
    log = filled(SimulatedDisk())
    for offset in (-1, log.end + 1):
        with pytest.raises(OutOfRangeError, match=f"offset {offset} is not in 0 to 400"):
            log.read(offset, 100)
    assert log.read(log.end, 100) == b""


def test_a_flush_is_due_after_m_messages_or_s_milliseconds() -> None:
    log = LegacyLog(SimulatedDisk(), "t", 0, LegacyLogConfig(flush_messages=3, flush_ms=1_000))
    log.append(message_set([b"a", b"b"]), 2, 0)
    assert log.flush_due(999) == ()
    assert log.read(0, 100) == b"", "unflushed messages are not visible"
    assert log.flush_due(1_000) == ("t_0/00000000000.kafka",)
    log.append(message_set([b"c"]), 1, 0)
    assert log.flush_due(0) == ("t_0/00000000000.kafka",)
    log.flushed(0)
    assert len(list(entries(log.read(0, 100)))) == 3
    assert log.flush_due(10_000) == (), "no message was written since the last flush"


@pytest.mark.parametrize(
    ("time_ms", "count", "expected"),
    [
        (LATEST, 10, [400, 300, 200, 100, 0]),
        (LATEST, 2, [400, 300]),
        (EARLIEST, 10, [0]),
        (9_500, 10, [100, 0]),
        (0, 10, []),
    ],
)
def test_offsets_before_a_time_are_in_descending_order(time_ms: int, count: int, expected: list[int]) -> None:
    """ "Low-level API": getOffsetsBefore."""
    assert filled(SimulatedDisk()).offsets_before(time_ms, count) == expected


# -- "Deletes", "Guarantees" -----------------------------------------------------------------------


def test_whole_files_are_deleted_by_age_and_by_size() -> None:
    log = filled(SimulatedDisk())
    log.delete_old(20_000, retention_ms=12_000)
    assert log.starts == [100, 200, 300]
    log.delete_excess(200)
    assert log.starts == [200, 300]
    with pytest.raises(OutOfRangeError):
        log.read(100, 100)
    log.delete_old(1 << 40, retention_ms=0)
    assert log.starts == [300], "the active file is not deleted"


@given(st.integers(0, 99), st.sampled_from(["lost block", "nonsense block", "zeros", "flipped bit"]))
@settings(deadline=None)
def test_recovery_truncates_the_newest_file_after_its_last_valid_message(at: int, kind: str) -> None:
    fs = SimulatedDisk()
    filled(fs)
    path = "my_topic_0/00000000300.kafka"
    data = bytearray(fs.read(path, 0, 1 << 20))
    good = at // 20 * 20
    if kind == "lost block":
        del data[at:]
    elif kind == "flipped bit":
        data[at] ^= 0x80
        if at % 20 == 5:  # unused bits of attributes are not checked
            good = 100
    else:
        data += bytes(at + 1) if kind == "zeros" else b"\x7f" * (at + 1)
        good = 100
    fs.write(path, bytes(data))
    log = LegacyLog(fs, "my_topic", 0, SMALL)
    assert log.end == 300 + good
    assert [e.message.payload for e in entries(log.read(0, 1 << 20))] == [b"message %02d" % n for n in range(5)]


# -- "Network Layer", "Reads": framing -------------------------------------------------------------


class Wire:
    """A broker that decodes request frames and encodes responses."""

    def __init__(self, **config: int) -> None:
        self.fs = SimulatedDisk()
        self.broker = LegacyBroker(self.fs, LegacyLogConfig(**{"flush_messages": 1, **config}), partitions=2)

    def exchange(self, frame: bytes) -> bytes | None:
        reply = self.broker.handle(frame, 0)
        for log in self.broker.logs.values():
            flush(log, self.fs)
        return reply

    def ask(self, *requests: Produce | Fetch | OffsetsBefore, multi: bool = False) -> bytes | None:
        encoded = encode_request(requests if multi else requests[0])  # type: ignore[arg-type]
        assert int.from_bytes(encoded[:4]) == len(encoded) - 4
        return self.exchange(encoded[4:])


def test_produce_has_no_reply_and_fetch_returns_the_messages() -> None:
    wire = Wire()
    data = message_set([b"one", b"two"])
    assert wire.ask(Produce("t", 0, data)) is None
    reply = wire.ask(Fetch("t", 0, 0, 1_000))
    assert reply == (2 + len(data)).to_bytes(4) + b"\0\0" + data


def test_multi_produce_and_multi_fetch_carry_several_requests() -> None:
    wire = Wire()
    sets = {0: message_set([b"zero"]), 1: message_set([b"one"], Compression.SNAPPY)}
    assert wire.ask(Produce("t", 0, sets[0]), Produce("t", 1, sets[1]), multi=True) is None
    reply = wire.ask(Fetch("t", 1, 0, 1_000), Fetch("t", 0, 0, 1_000), Fetch("t", 0, 99, 9), multi=True)
    assert reply is not None
    assert int.from_bytes(reply[:4]) == len(reply) - 4
    assert decode_multi_send(reply) == [(NO_ERROR, sets[1]), (NO_ERROR, sets[0]), (OFFSET_OUT_OF_RANGE, b"")]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Fetch("t", 0, 5, 100), OFFSET_OUT_OF_RANGE),
        (Fetch("t", 2, 0, 100), WRONG_PARTITION),
        (Fetch("t", -1, 0, 100), WRONG_PARTITION),
        (Fetch("t", 0, 0, 0), INVALID_FETCH_SIZE),
        (OffsetsBefore("t", 7, LATEST, 1), WRONG_PARTITION),
    ],
)
def test_an_invalid_request_is_answered_with_an_error_code(request_: Fetch | OffsetsBefore, error: int) -> None:
    assert decode_send(Wire().ask(request_) or b"") == (error, b"")


def test_messages_are_validated_before_they_are_appended() -> None:
    wire = Wire()
    good = message_set([b"good"])
    for bad in (b"", good[:-1], good[:-1] + b"!", Message(b"no set", Compression.GZIP).encode()):
        wire.ask(Produce("t", 0, bad))
    assert decode_send(wire.ask(Fetch("t", 0, 0, 1_000)) or b"") == (NO_ERROR, b"")


def test_the_offsets_request_returns_file_offsets() -> None:
    wire = Wire(file_bytes=10)
    for _ in range(3):
        wire.ask(Produce("t", 0, message_set([b"x" * 10])))
    error, data = decode_send(wire.ask(OffsetsBefore("t", 0, LATEST, 3)) or b"")
    assert (error, decode_offsets(data)) == (NO_ERROR, [60, 40, 20])


@given(st.binary(max_size=60))
def test_hostile_frames_raise_only_decode_errors(frame: bytes) -> None:
    try:
        decode_request(frame)
    except DecodeError:
        return
    assert len(frame) >= 2


# -- "Message delivery semantics" ------------------------------------------------------------------


class Stopped(Exception):
    """The consumer's process dies here."""


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("crash", range(12))
@pytest.mark.parametrize("delivery", list(Delivery))
def test_the_order_of_processing_and_storing_decides_delivery_after_a_crash(
    delivery: Delivery, crash: int, codec: Compression
) -> None:
    wire = Wire()
    sent = [b"%d" % number for number in range(6)]
    for first in (0, 2, 4):
        wire.ask(Produce("t", 0, message_set(sent[first : first + 2], codec)))
    processed: list[bytes] = []
    stored, steps = 0, 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == crash + 1:
            raise Stopped

    def process(found: list[bytes]) -> None:
        step()
        processed.extend(found)

    def store(position: int) -> None:
        nonlocal stored
        step()
        stored = position

    def both(found: list[bytes], position: int) -> None:
        nonlocal stored
        step()
        processed.extend(found)
        stored = position

    for _ in range(2):
        consumer = SimpleConsumer(wire.exchange, "t", 0, stored)
        try:
            deliver(consumer, delivery, process, store, both)
        except Stopped:
            continue
    lost, twice = set(sent) - set(processed), {each for each in sent if processed.count(each) > 1}
    assert delivery is Delivery.AT_MOST_ONCE or not lost
    assert delivery is Delivery.AT_LEAST_ONCE or not twice
    crashed_between = steps > crash and crash % 2 == 1
    if delivery is Delivery.AT_MOST_ONCE and crashed_between:
        assert lost, "the position was stored before the messages were processed"
    if delivery is Delivery.AT_LEAST_ONCE and crashed_between:
        assert twice, "the messages were processed before the position was stored"


def test_the_fetch_size_doubles_until_a_large_message_fits() -> None:
    wire = Wire()
    wire.ask(Produce("t", 0, message_set([b"x" * 5_000])))
    assert SimpleConsumer(wire.exchange, "t", 0, 0).poll() == [([b"x" * 5_000], 5_010)]
    with pytest.raises(CompressionError, match="a message of more than 4096 bytes at offset 0"):
        SimpleConsumer(wire.exchange, "t", 0, 0, max_bytes=4_096).poll()


def test_a_missing_offset_raises_and_an_old_offset_can_be_read_again() -> None:
    wire = Wire()
    wire.ask(Produce("t", 0, message_set([b"a", b"b"])))
    consumer = SimpleConsumer(wire.exchange, "t", 0, 0)
    first = consumer.poll()
    assert consumer.poll() == []
    consumer.position = 0  # "A consumer can deliberately rewind"
    assert consumer.poll() == first
    with pytest.raises(PositionLostError, match="t-0 has no offset 1000"):
        SimpleConsumer(wire.exchange, "t", 0, 1_000).poll()

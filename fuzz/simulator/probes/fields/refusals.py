"""Probes of batches that no client may write: they are refused, use no sequence number and end no transaction."""

from functools import partial
from typing import Final

from highwater.fuzz.simulator.probes.client.session import LATEST, READ_COMMITTED, E, Session, batches_of, record
from highwater.fuzz.simulator.probes.client.transactional import Transactional, TransactionLog, finish, write
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.parts import shuffled
from highwater.fuzz.simulator.probes.records import IdempotentModel, producer_id
from highwater.fuzz.simulator.probes.transactions import FENCED
from highwater.reference.storage.producer_state import Marker, marker_record
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.invalid_batches import ATTRIBUTES_AT, invalid_batches, with_bytes
from highwater.reference.wire.records import build_batch

CODECS: Final = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
MAGIC_AT: Final = 16
GOOD: Final = build_batch([record(b"v", b"k")])
INVALID: Final = (E.INVALID_RECORD,)
VERSIONS: Final = (3, 5, 7, 8, 9)
OF_CLIENT: Final = (E.INVALID_RECORD, E.CORRUPT_MESSAGE, E.UNSUPPORTED_FOR_MESSAGE_FORMAT)
"""Errors of a batch in an older format, depending on what its bytes mean there."""


def _with_wrong_crc(batch: bytes) -> bytes:
    return batch[:-1] + bytes((batch[-1] ^ 1,))


def _single_faults() -> dict[str, tuple[bytes, tuple[E, ...]]]:
    """Return batches with one fault each, beside those of `invalid_batches`, and the errors that they may get."""
    numbered = partial(build_batch, [record(b"v")])
    return {
        "a wrong CRC": (_with_wrong_crc(GOOD), (E.CORRUPT_MESSAGE,)),
        "two batches": (GOOD + GOOD, INVALID),
        "magic 1": (with_bytes(GOOD, MAGIC_AT, b"\x01"), OF_CLIENT),
        "a producer id without a sequence": (numbered(producer_id=77, producer_epoch=0), INVALID),
        "a transaction without a producer id": (
            numbered(transactional=True),
            (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,),
        ),
    }


@fields("PRD-8", "PRD-9", "PRD-10", "PRD-11", "PRD-12", "PRD-22", "PRD-23", "PRD-38", "IDM-7", "IDM-12")
async def batches_with_one_fault(session: Session) -> None:
    """A batch with any one fault is refused, alone and between others, and the sequence goes on without it."""
    topic = await session.create_topic("faults", 2)
    model = IdempotentModel(session, topic, await producer_id(session))
    wrong = {each.name: (each.batch, each.errors) for each in invalid_batches(session.wall_ms, CODECS)}
    wrong |= _single_faults()
    end = 0
    for name in shuffled(session, list(wrong)):
        batch, errors = wrong[name]
        version = session.one_of(*VERSIONS)
        answer = await session.produce(topic, batch, version=version)
        session.error(answer.error_code, errors, f"Produce {version} of a batch with {name}")
        session.equal(answer.base_offset, -1, f"the offset of a batch with {name}")
        if session.draw(3) == 0:
            await model.append(1)
            end += 1
    session.equal(await session.offset(topic, LATEST), end, "the end after batches that were refused")
    await _codecs_by_version(session, topic)
    await _what_the_leader_writes(session, topic)
    answer = await session.produce("__consumer_offsets", GOOD)
    session.error(answer.error_code, E.INVALID_TOPIC_EXCEPTION, "Produce to an internal topic")
    await _used_sequences(session, topic, model)


async def _used_sequences(session: Session, topic: str, model: IdempotentModel) -> None:
    """The sequence numbers of a batch that was refused are those of the next one, in each epoch."""
    for _ in range(2):
        for corrupt in (_with_wrong_crc, partial(with_bytes, position=ATTRIBUTES_AT, new=b"\x00\x20")):
            batch = corrupt(model.batch(model.next_sequence, 2))
            answer = await session.produce(topic, batch)
            session.error(answer.error_code, (E.CORRUPT_MESSAGE, E.INVALID_RECORD), "a batch with a fault")
            await model.refused(model.next_sequence + 2, 1, E.OUT_OF_ORDER_SEQUENCE_NUMBER, "the batch after it")
            await model.append(2)
        model.bump()


async def _codecs_by_version(session: Session, topic: str) -> None:
    """A zstd batch needs Produce 7 (KIP-110); an unknown codec is refused in every version."""
    for codec, versions in ((4, (3, 5, 6)), (5, VERSIONS), (7, VERSIONS)):
        for version in versions:
            batch = with_bytes(GOOD, ATTRIBUTES_AT, codec.to_bytes(2, "big"))
            answer = await session.produce(topic, batch, 1, version)
            expected = (E.UNSUPPORTED_COMPRESSION_TYPE, E.UNKNOWN_SERVER_ERROR)[: 1 if codec == 4 else 2]
            session.error(answer.error_code, expected, f"Produce {version} of codec {codec}")
    session.equal(await session.offset(topic, LATEST, 1), 0, "the end after batches of refused codecs")


async def _what_the_leader_writes(session: Session, topic: str) -> None:
    """The leader writes offset and leader epoch into the batch, whatever the client wrote there (PRD-23)."""
    epoch = (await session.metadata(topic)).partitions[1].leader_epoch
    for sent in (0, epoch + 7):
        batch = build_batch([record(b"v")], partition_leader_epoch=sent)
        answer = await session.produce(topic, batch, 1)
        session.ok(answer.error_code, f"a batch with the leader epoch {sent}")
        (header, *_) = batches_of(await session.fetch(topic, answer.base_offset, 1))
        found = header.base_offset, header.partition_leader_epoch
        session.equal(found, (answer.base_offset, epoch), "offset and leader epoch of a stored batch")


# -- transactions ------------------------------------------------------------------------------------------------------


@fields("PRD-11", "TXN-7", "TXN-12", "TXN-22", "IDM-12")
async def markers_of_clients(session: Session) -> None:
    """A client ends no transaction by a marker of its own; what it may not write leaves the transaction open."""
    log = TransactionLog(session, await session.create_topic("marker"))
    for v2 in (False, True):
        producer = await Transactional(session, f"v{v2}", v2=v2).begin()
        await write(producer, [log], b"open", 2)
        for committed in (True, False):
            producer.key, value = marker_record(Marker(committed, 0))
            for more in ({}, {"base_sequence": -1}, {"transactional": False}):
                answer = await producer.produce(log.topic, 0, [value], control=True, **more)
                session.error(answer.error_code, INVALID, f"a marker of a client, with {more}")
            producer.key = b"key"
            await log.check()
        answer = await session.produce(log.topic, _batch_of(producer, log), transactional_id=None)
        session.error(answer.error_code, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a batch without a transactional id")
        await write(producer, [log], b"more", 1)
        await log.check()
        await finish(producer, [log], commit=bool(session.draw(2)))
        await log.check()


def _batch_of(producer: Transactional, log: TransactionLog) -> bytes:
    return build_batch(
        [record(b"v", b"key", producer.session.wall_ms)], producer_id=producer.producer, producer_epoch=producer.epoch,
        base_sequence=producer.sequences[log.topic, 0], transactional=True,
    )  # fmt: skip


@fields("TXN-1", "TXN-2", "TXN-3", "TXN-9", "TXN-25", "IDM-2", "IDM-5")
async def batches_of_former_epochs(session: Session) -> None:
    """After a marker with a newer epoch no batch of the former one is accepted: repeated, next, first or plain."""
    topic = await session.create_topic("former", 4)
    for number, how in enumerate(("InitProducerId", "a timeout", "commit", "abort")):
        log = TransactionLog(session, topic, number)
        v2 = how in {"commit", "abort"}
        producer = await Transactional(
            session, how[:4], v2=v2, timeout_ms=400 if how == "a timeout" else 60_000
        ).begin()
        await write(producer, [log], b"first", 2)
        await write(producer, [log], b"second", 1)
        epoch, written = producer.epoch, list(producer.written)
        if how == "InitProducerId":
            await producer.begin()
        elif v2:
            await producer.ended(commit=how == "commit")
        log.marked(producer, written, commit=how == "commit")
        stable_end = partial(session.offset, topic, LATEST, number, READ_COMMITTED)
        await session.until(stable_end, log.end, f"the stable offset after {how}", 3_000)
        for sequence, count, transactional in ((2, 1, True), (0, 2, True), (3, 1, True), (0, 1, True), (3, 1, False)):
            answer = await producer.produce(
                topic,
                number,
                [b"late"] * count,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
            what = f"a batch of the epoch before {how}: sequence {sequence}, transactional={transactional}"
            allowed: tuple[E, ...] = FENCED if transactional else (*FENCED, E.INVALID_TXN_STATE)
            session.error(answer.error_code, allowed, what)
        await log.check()
        await _goes_on(session, producer, log)


async def _goes_on(session: Session, producer: Transactional, log: TransactionLog) -> None:
    """The next epoch begins with sequence 0, and its transaction commits."""
    if producer.timeout_ms < 1_000:
        producer.timeout_ms = 60_000
        await producer.begin()
    await write(producer, [log], b"next", 1)
    await finish(producer, [log], commit=True)
    await log.check()

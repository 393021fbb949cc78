"""Probes of the first batches of a transaction: their sequence numbers, and the end of the transaction before."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.alone import LAG_MS, alone, became_complete
from highwater.fuzz.simulator.probes.client.requests import produce_request
from highwater.fuzz.simulator.probes.client.session import READ_COMMITTED, TRANSACTION, E, Session, record
from highwater.fuzz.simulator.probes.client.transactional import V2_PRODUCE, Transactional
from highwater.fuzz.simulator.probes.failovers import is_stable
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.parts import shuffled
from highwater.fuzz.simulator.probes.records import producer_id
from highwater.reference.procedures import Pending
from highwater.reference.wire.records import build_batch

RETRY_MS: Final = 100  # add.partitions.to.txn.retry.backoff.max.ms
QUICK_MS: Final = 4
"""With so short delays of the network a marker that is replicated 40 ms later is so before a Produce gives up."""
LATE: Final = (5, 1, 2)
"""Sequence numbers with which a new producer may begin only outside of transaction version 2."""


# -- sequence numbers --------------------------------------------------------------------------------------------------


@fields("IDM-2", "IDM-5", "IDM-8", "TXN-2", "TXN-5", "TXN-25")
async def first_sequences(session: Session) -> None:
    """The first sequence number of a producer in a partition is 0 under transaction version 2, and else any (KIP-890).

    After a newer epoch it is 0 for every producer that the partition knows.
    """
    topic = await session.create_topic("first", 6)
    for v2 in shuffled(session, [True, False]):
        producer = await Transactional(session, f"v{1 + v2}", v2=v2).begin()
        accepted: dict[int, list[bytes]] = {number: [] for number in range(3)}
        for turn, commits in enumerate((True, False, True)):
            for number in shuffled(session, list(accepted)):
                written = await _begins(producer, topic, number, known=turn > 0)
                accepted[number] += written if commits else []
            await producer.ended(commit=commits)
            if not v2:
                await producer.begin()  # only another epoch begins with sequence 0 again
        for number, values in accepted.items():
            await session.until(partial(is_stable, session, topic, number), True, "whether all transactions ended")
            found = [each.value for each in await session.read(topic, 0, number, isolation=READ_COMMITTED)]
            mine = [value for value in found if value and value.startswith(producer.name.encode())]
            session.equal(mine, values, f"the committed values of {producer.name} in {topic}-{number}")
    for version in (9, V2_PRODUCE):
        number, plain = version % 3 + 3, await producer_id(session)
        for sequence, error in ((7, E.NONE), (9, E.OUT_OF_ORDER_SEQUENCE_NUMBER), (8, E.NONE)):
            batch = build_batch([record(b"v", b"k")], producer_id=plain, producer_epoch=0, base_sequence=sequence)
            answer = await session.produce(topic, batch, number, version)
            session.error(answer.error_code, error, f"Produce {version} of sequence {sequence} without a transaction")


async def _begins(producer: Transactional, topic: str, number: int, *, known: bool) -> list[bytes]:
    """Write to a partition of a new transaction, and return the values that are accepted."""
    session = producer.session
    await producer.added((topic, number))
    refuses = producer.v2 or known
    label = b"%s %d" % (producer.name.encode(), producer.epoch)
    written: list[bytes] = []
    for sequence in LATE[: 1 + session.draw(3)] if refuses else (session.one_of(*LATE),):
        answer = await producer.produce(topic, number, [label], base_sequence=sequence)
        expected = E.OUT_OF_ORDER_SEQUENCE_NUMBER if refuses else E.NONE
        what = f"a first batch with sequence {sequence} of a producer (known: {known}, version 2: {producer.v2})"
        session.error(answer.error_code, expected, what)
        if not refuses:
            producer.sequences[topic, number] = sequence + 1
            written.append(label)
    for suffix in (b"x", b"y"):
        await producer.write(topic, number, label + suffix)
        written.append(label + suffix)
    return written


# -- the transaction before --------------------------------------------------------------------------------------------


def _begin_produce(producer: Transactional, leader: int, topic: str, sequence: int) -> Pending[Any]:
    """Send a batch of a transaction, which the leader adds to it, to partition 1."""
    batch = build_batch(
        [record(b"%d" % sequence, producer.key)], producer_id=producer.producer, producer_epoch=producer.epoch,
        base_sequence=sequence, transactional=True,
    )  # fmt: skip
    body = produce_request(topic, {1: batch}, transactional_id=producer.name)
    return producer.session.send(leader, body, V2_PRODUCE)


@alone("TXN-5", "TXN-22", "TXN-32", "TXN-33", "IDM-2")
async def first_batches_before_the_markers(session: Session) -> None:
    """The first batches of a transaction wait a while for the markers of the one before, and stay in order (KIP-890).

    The markers are late because a follower of one partition does not fetch.
    """
    producer = await Transactional(session, v2=True).begin()
    coordinator = await session.coordinator(producer.name, TRANSACTION)
    leader, follower = [each for each in session.brokers if each != coordinator][:: session.one_of(1, -1)]
    topic = await session.create_topic("markers", assigned=[[leader, follower], [leader, coordinator]])
    for in_time in shuffled(session, [True, False, False]):
        for number in (0, 1):
            await producer.write(topic, number, b"v")
        await session.sleep(300)
        await session.fault("clog", follower, for_ms=LAG_MS - 150, of=str(leader), direction="both")
        until_ms = session.now_ms + LAG_MS - 150
        await producer.ended(commit=bool(session.draw(2)))
        if in_time:
            await session.sleep(max(0, until_ms - 40 - session.now_ms))
        began_ms = session.now_ms
        waiting = [_begin_produce(producer, leader, topic, sequence) for sequence in (0, 1)]
        errors = [(await each).responses[0].partition_responses[0].error_code for each in waiting]
        session.expect(errors[0] == E.NONE or errors[1] != E.NONE, f"the errors of batches in order are {errors}")
        if in_time and session.cluster.settings.spread_ms <= QUICK_MS:
            session.equal(errors, [0, 0], "the errors of first batches shortly before the markers are replicated")
        elif session.now_ms < until_ms:
            session.equal(errors, [E.CONCURRENT_TRANSACTIONS] * 2, "the errors of first batches before the markers")
            took_ms = session.now_ms - began_ms
            session.expect(took_ms >= RETRY_MS, f"a first batch waits {took_ms} ms for the markers before it")
        await became_complete(session, topic, 2)
        await session.until(partial(is_stable, session, topic), True, "whether the transaction before has ended")
        for sequence, error in enumerate(errors):
            if error != E.NONE:
                answer = await producer.produce(topic, 1, [b"%d" % sequence], base_sequence=sequence)
                session.ok(answer.error_code, f"the repeated batch {sequence}")
        await producer.ended(commit=True)
        await session.until(partial(is_stable, session, topic, 1), True, "whether the transaction has ended")
        found = [each.value for each in await session.read(topic, 0, 1, isolation=READ_COMMITTED)]
        session.equal(found[-2:], [b"0", b"1"], "the records of a transaction whose first batches were repeated")

"""Probes of transactions: what read_committed returns, fencing, time-outs, offsets in transactions."""

from collections.abc import Collection
from functools import partial
from typing import Final

from highwater.fuzz.simulator.probes.client.members import Group, stable
from highwater.fuzz.simulator.probes.client.node import probe
from highwater.fuzz.simulator.probes.client.requests import of_topics, request
from highwater.fuzz.simulator.probes.client.session import LATEST, READ_COMMITTED, E, Session, record
from highwater.fuzz.simulator.probes.client.transactional import (
    TIMEOUT_MS,
    Key,
    Offsets,
    Transactional,
    TransactionLog,
    finish,
    write,
)
from highwater.fuzz.simulator.probes.offsets import committed
from highwater.fuzz.simulator.probes.records import HOUR_MS
from highwater.fuzz.simulator.probes.trimming import COMPACTED, delete_records

FENCED: Final = (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)


# -- what readers see ------------------------------------------------------------------------------------------------


@probe("TXN-5", "TXN-6", "TXN-7", "TXN-22", "TXN-23", "TXN-29")
async def mixed_transactions(session: Session) -> None:
    """Several producers commit, abort and leave open transactions in two partitions."""
    topic = await session.create_topic("mixed", 2, segment_bytes=session.one_of(250, 4_096))
    logs = [TransactionLog(session, topic, number) for number in (0, 1)]
    producers = [await Transactional(session, f"t{n}", v2=bool(session.draw(2))).begin() for n in range(3)]
    for step in range(9):
        producer = session.one_of(*producers)
        if producer.written and session.draw(2):
            await finish(producer, logs, commit=bool(session.draw(2)))
        else:
            await write(producer, logs, b"%d" % step)
    first = session.draw(3)
    for number in range(3):  # so that several transactions are open, and end in another order than they began
        await write(producers[(first + number) % 3], logs, b"open")
    for number in range(3):
        for log in logs:
            await log.check()
        await finish(producers[(first + 2 * number + 1) % 3], logs, commit=bool(session.draw(2)))
    for log in logs:
        await log.check()


@probe("TXN-6", "FET-11")
async def trimmed_transactions(session: Session) -> None:
    """What DeleteRecords leaves of an aborted transaction stays invisible."""
    log = TransactionLog(session, await session.create_topic("trimtxn"))
    producers = [await Transactional(session, f"t{n}").begin() for n in range(2)]
    for commit in (False, True):
        for producer in producers:
            await write(producer, [log], b"a", 4)
        for producer in producers:
            await finish(producer, [log], commit=commit)
    for _ in range(2):
        log.start += 1 + session.draw(4)
        found = await delete_records(session, log.topic, log.start)
        session.equal(found, (E.NONE, log.start), "DeleteRecords")
        await log.check()


@probe("FET-36", "TXN-5")
async def compacted_transactions(session: Session) -> None:
    """Compaction keeps the last committed value of each key, whatever other transactions write."""
    topic = await session.create_topic("compact-txn", delete_retention_ms=HOUR_MS, **COMPACTED)
    first, second, third = [await Transactional(session, f"c{n}").begin() for n in range(3)]
    for producer in (first, second, third):
        await producer.added((topic, 0))
    expected: dict[bytes | None, bytes | None] = {b"key": b"keep"}
    await first.write(topic, 0, b"keep")
    await first.ended(commit=True)
    await second.write(topic, 0, b"aborted")
    await first.added((topic, 0))
    for key in (b"between", b"other"):
        first.key = key
        await first.write(topic, 0, b"committed")
        expected[key] = b"committed"
    await second.ended(commit=False)
    await first.ended(commit=True)
    await _compacted_to(session, topic, expected)
    await third.write(topic, 0, b"open")
    await _compacted_to(session, topic, expected)
    await third.ended(commit=False)
    await _compacted_to(session, topic, expected)


async def _compacted_to(session: Session, topic: str, expected: dict[bytes | None, bytes | None]) -> None:
    """Fill segments, let compaction run, and compare the last value of each key that read_committed returns."""
    for n in range(8):
        await session.append(topic, [record(b"%d" % n * 20, b"filler", session.wall_ms)])
    await session.sleep(900)
    found = await session.read(topic, isolation=READ_COMMITTED)
    last = {each.key: each.value for each in found if each.key != b"filler"}
    session.equal(last, expected, "the last committed value of each key after compaction")
    session.expect(not any(each.value == b"aborted" for each in found), "read_committed returns an aborted value")


# -- producers -------------------------------------------------------------------------------------------------------


@probe("TXN-1", "TXN-2", "TXN-25")
async def fencing(session: Session) -> None:
    """A new instance fences the old one, and aborts its transaction (KIP-360)."""
    topic = await session.create_topic("fenced", 2)
    log = TransactionLog(session, topic)
    old, zombie = await Transactional(session).begin(), Transactional(session)
    await write(old, [log], b"old", 2)
    zombie.producer, zombie.epoch, zombie.sequences = old.producer, old.epoch, dict(old.sequences)
    written = list(old.written)
    await old.begin()
    session.equal(old.producer, zombie.producer, "the producer id of the next instance")
    session.expect(old.epoch > zombie.epoch, f"the epoch of the next instance is {old.epoch}, after {zombie.epoch}")
    log.marked(old, written, commit=False)
    await log.check()
    await _is_fenced(zombie, (topic, 0), (topic, 1))
    answer = await zombie.init(zombie.producer, max(0, zombie.epoch - 1))
    session.error(answer.error_code, FENCED, "InitProducerId with an older epoch")
    await write(old, [log], b"new", 1)
    await finish(old, [log], commit=True)
    await log.check()
    await _bumped(session, old)


async def _is_fenced(zombie: Transactional, known: Key, other: Key, more: Collection[E] = ()) -> None:
    """A former instance can neither write, add partitions or offsets, nor end the transaction."""
    session = zombie.session
    answer = await zombie.produce(*known, [b"zombie"])
    session.error(answer.error_code, (*FENCED, *more), "a batch of a fenced producer")
    session.error((await zombie.add(other))[other], FENCED, "AddPartitionsToTxn of a fenced producer")
    session.error(await zombie.add_offsets("some-group"), FENCED, "AddOffsetsToTxn of a fenced producer")
    session.error((await zombie.end(commit=True)).error_code, FENCED, "EndTxn of a fenced producer")


async def _bumped(session: Session, producer: Transactional) -> None:
    """InitProducerId with the current epoch raises it by one; the repeated request returns the same (KIP-360)."""
    name, before = producer.producer, producer.epoch
    for what in ("InitProducerId with the current epoch", "the repeated InitProducerId"):
        answer = await producer.init(name, before)
        session.equal((answer.error_code, answer.producer_epoch), (0, before + 1), f"error and epoch of {what}")
    for _ in range(2):
        await producer.init(name, producer.epoch)
    found = await producer.init(name, before)
    session.error(found.error_code, FENCED, "InitProducerId with an epoch of long ago")
    wrong = await producer.init(name + 1_000, producer.epoch)
    session.error(wrong.error_code, (E.INVALID_PRODUCER_ID_MAPPING, *FENCED), "InitProducerId with another producer id")


@probe("TXN-9", "TXN-11", "TXN-13")
async def ends_of_transactions(session: Session) -> None:
    """EndTxn repeated, with the other outcome, and without a transaction."""
    log = TransactionLog(session, await session.create_topic("ends"))
    producer = await Transactional(session).begin()
    session.error((await producer.end(commit=True)).error_code, E.INVALID_TXN_STATE, "EndTxn without a transaction")
    for commit in (True, False):
        await write(producer, [log], b"commit" if commit else b"abort", 1)
        sequence = producer.sequences[log.topic, 0]
        plain = await producer.produce(log.topic, 0, [b"plain"], transactional=False, base_sequence=sequence)
        session.error(plain.error_code, E.INVALID_TXN_STATE, "a plain batch of a producer with an open transaction")
        await finish(producer, [log], commit=commit)
        for again, expected in ((commit, E.NONE), (not commit, E.INVALID_TXN_STATE)):
            error = (await producer.end(commit=again)).error_code
            session.error(error, expected, f"EndTxn with committed={again} after committed={commit}")
        await log.check()
    stranger = await producer.end(commit=True, producer_id=producer.producer + 1_000)
    session.error(stranger.error_code, E.INVALID_PRODUCER_ID_MAPPING, "EndTxn with another producer id")


@probe("TXN-9", "TXN-14", "TXN-15", "TXN-27")
async def ends_as_in_kip_890(session: Session) -> None:
    """Under transaction version 2 EndTxn raises the epoch, and a repeated one returns the same."""
    topic = await session.create_topic("ends2")
    log = TransactionLog(session, topic)
    producer = await Transactional(session, v2=True).begin()
    for step, commit in enumerate((True, False, True, False)):
        before = producer.producer, producer.epoch
        if step < 3:  # an abort succeeds without a transaction, too: the producer may not know whether it began
            await write(producer, [log], b"v2", 2)
        await finish(producer, [log], commit=commit)
        after = before[0], before[1] + 1
        session.equal((producer.producer, producer.epoch), after, "producer and epoch after EndTxn")
        again = await producer.end(commit=commit, producer_epoch=before[1])
        session.equal((again.error_code, again.producer_epoch), (0, after[1]), "the answer to the repeated EndTxn")
        stale = await producer.produce(topic, 0, [b"late"], producer_epoch=before[1], base_sequence=2)
        session.error(stale.error_code, FENCED, "a batch with the epoch before EndTxn")
        await log.check()


@probe("TXN-4", "TXN-17", "TXN-19", "TXN-30")
async def partitions_of_transactions(session: Session) -> None:
    """A batch to a partition that was not added is rejected, in every transaction."""
    topic = await session.create_topic("member", 3)
    producer = await Transactional(session).begin()
    refused = (E.INVALID_TXN_STATE, E.INVALID_PRODUCER_ID_MAPPING)
    await producer.added((topic, 0))
    for number in (1, 2):
        answer = await producer.produce(topic, number, [b"stranger"])
        session.error(answer.error_code, refused, f"a batch to partition {number}, which was not added")
    await producer.added((topic, 0), (topic, 1))
    for number in (0, 1):
        await producer.write(topic, number, b"v")
    state = (await producer.ask("DescribeTransactions", transactional_ids=[producer.name])).transaction_states[0]
    parts = {number for each in state.topics if each.topic == topic for number in each.partitions}
    found = state.transaction_state, state.producer_id, state.producer_epoch, state.transaction_timeout_ms, parts
    expected = "Ongoing", producer.producer, producer.epoch, TIMEOUT_MS, {0, 1}
    session.equal(found, expected, "what DescribeTransactions returns")
    missing = await producer.add((topic, 2), (topic, 9))
    wanted = {(topic, 2): E.OPERATION_NOT_ATTEMPTED, (topic, 9): E.UNKNOWN_TOPIC_OR_PARTITION}
    session.equal(missing, wanted, "the errors of AddPartitionsToTxn with a partition that does not exist")
    await producer.ended(commit=True)
    await producer.added((topic, 1))
    answer = await producer.produce(topic, 0, [b"next"])
    session.error(answer.error_code, refused, "a batch to a partition of the transaction before")
    await producer.write(topic, 1, b"w")
    await producer.ended(commit=True)
    for number, count in ((0, 1), (1, 2), (2, 0)):  # there is one marker for each transaction in a partition
        end = partial(session.offset, topic, LATEST, number)
        await session.until(end, 2 * count, f"the end of partition {number} after its markers", 2_500)
        visible = len(await session.read(topic, 0, number, isolation=READ_COMMITTED))
        session.equal((visible, await end()), (count, 2 * count), f"committed records and end of partition {number}")


@probe("TXN-3", "TXN-8")
async def transaction_timeouts(session: Session) -> None:
    """A transaction that is too long is aborted and its producer fenced, however often it adds partitions."""
    topic = await session.create_topic("slow", 6)
    log = TransactionLog(session, topic)
    producer = await Transactional(session, timeout_ms=1_500).begin()
    began_ms, epoch = session.now_ms, producer.epoch
    await write(producer, [log], b"slow", 1)
    number = 0
    while session.now_ms < began_ms + 1_000:
        await session.sleep(120)
        number = number % 4 + 1
        await producer.added((topic, number))
    stable_end = partial(session.offset, topic, LATEST, 0, READ_COMMITTED)
    await session.until(stable_end, 2, "the last stable offset after a timeout", began_ms + 2_100 - session.now_ms)
    session.expect(session.now_ms - began_ms >= 1_500, "a transaction is aborted before its timeout")
    log.marked(producer, producer.written, commit=False)
    await log.check()
    await _is_fenced(producer, (topic, 0), (topic, 5), [E.INVALID_TXN_STATE])
    again = await producer.init(producer.producer, epoch)
    session.error(again.error_code, FENCED, "InitProducerId of a producer whose transaction timed out")
    await producer.begin()
    session.expect(producer.epoch > epoch, "the epoch after a transaction timed out")
    too_long = await Transactional(session, "long", timeout_ms=1 << 30).init()
    session.error(too_long.error_code, E.INVALID_TRANSACTION_TIMEOUT, "a timeout of twelve days")


@probe("TXN-10", "TXN-20", "OFF-7")
async def offsets_in_transactions(session: Session) -> None:
    """Offsets of a transaction become valid when it commits, and never if it aborts, in each group."""
    topic = await session.create_topic("offsets", 4)
    producer = await Transactional(session, v2=bool(session.draw(2))).begin()
    group = await Group.found(session)
    # One more than __consumer_offsets has partitions, so that two have the same one.
    others = [await Group.found(session, f"other-{n}") for n in range(4)]
    member = group.member(topic)
    await stable(group, member)
    expected: Offsets = {(topic, n): -1 for n in range(4)}
    simple: Offsets = {(topic, 0): -1}
    for step, commit in enumerate((True, False, True)):
        parts: list[Offsets] = [{(topic, 0): 10 + step, (topic, 1): 5}, {(topic, 2): 7 + step}]
        for offsets in parts:
            await producer.committed_offsets(group, offsets, member)
        for other in others:
            await producer.committed_offsets(other, {(topic, 0): step})
        pending = {key for offsets in parts for key in offsets}
        unstable = dict.fromkeys(pending, (-1, E.UNSTABLE_OFFSET_COMMIT))
        wanted = {key: (offset, E.NONE) for key, offset in expected.items()}
        found = await committed(group, expected, stable=True)
        session.equal(found, wanted | unstable, "the stable offsets during a transaction")
        session.equal(await committed(group, expected), wanted, "the offsets during a transaction")
        for change in (1, -1):
            errors = await producer.commit_offsets(group, parts[0], member, generation_id=member.generation + change)
            session.equal(errors, {E.ILLEGAL_GENERATION}, f"the errors of a commit {change} generations later")
        await producer.ended(commit=commit)
        if commit:
            expected |= parts[0] | parts[1]
            simple = {(topic, 0): step}
        for each, offsets in ((group, expected), *((other, simple) for other in others)):
            applied = partial(committed, each, offsets, stable=True)
            wanted = {key: (offset, E.NONE) for key, offset in offsets.items()}
            await session.until(applied, wanted, f"the offsets of {each.name}", 2_500)
        session.ok(await member.heartbeat(), "a heartbeat beside transactions")


@probe("TXN-16", "TXN-18", "IDM-14")
async def listed_transactions(session: Session) -> None:
    """DescribeProducers and ListTransactions show the open transaction, and not afterwards."""
    topic = await session.create_topic("listed")
    producer, start = await Transactional(session).begin(), session.draw(2)
    if start:
        await session.values(topic, b"before")
    await producer.added((topic, 0))
    await producer.write(topic, 0, b"v", b"w")
    body = request("DescribeProducers", topics=of_topics([(topic, 0)], partitions="partition_indexes"))
    for open_start, state in ((start, "Ongoing"), (-1, "CompleteCommit")):
        if open_start < 0:
            await producer.ended(commit=True)
            await session.sleep(200)
        answer = await session.ask(await session.leader(topic), body)
        active = answer.topics[0].partitions[0].active_producers
        found = [(p.producer_id, p.producer_epoch, p.last_sequence, p.current_txn_start_offset) for p in active]
        expected = [(producer.producer, producer.epoch, 1, open_start)]
        session.equal(found, expected, "what DescribeProducers returns")
        answer = await producer.ask("ListTransactions")
        states = {t.transaction_state for t in answer.transaction_states if t.transactional_id == producer.name}
        session.equal(states, {state}, "the state in ListTransactions")

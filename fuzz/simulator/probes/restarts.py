"""Probes whose second half runs after each broker has restarted: what was answered before is still true."""

from functools import partial
from typing import Final

from highwater.fuzz.simulator.probes.client.members import Group, beat, rebalancing, stable
from highwater.fuzz.simulator.probes.client.node import Needs, probe
from highwater.fuzz.simulator.probes.client.session import E, Session, batches_of
from highwater.fuzz.simulator.probes.client.transactional import Transactional, TransactionLog, finish, write
from highwater.fuzz.simulator.probes.fetch import epoch_end, reassign
from highwater.fuzz.simulator.probes.offsets import committed, committed_ok, expect_offsets
from highwater.fuzz.simulator.probes.records import HOUR_MS, OLD_EPOCH, IdempotentModel, PartitionModel, producer_id
from highwater.fuzz.simulator.probes.topics import are_replicas, delete, described, exists, holders
from highwater.fuzz.simulator.probes.trimming import COMPACTED, delete_records, fill, is_compacted, set_topic

LONG_SESSION_MS: Final = 60_000
after_restart = partial(probe, needs=Needs.RESTART)


def _replicas(session: Session) -> int:
    """Draw the number of replicas: with one, nothing that a broker forgets comes back from another."""
    return (1, 3)[session.draw(2)]


@after_restart("FET-16", "ADM-6", "REP-8", "REP-24")
async def kept_records(session: Session) -> None:
    """Records, log starts and the ends of leader epochs survive."""
    replicas = _replicas(session)
    topic = await session.create_topic("kept", 3, replicas, segment_bytes=session.one_of(300, 900, 4_096))
    models = [await PartitionModel(session, topic, number).append(14) for number in range(3)]
    for model in models[:2]:
        model.start = 1 + session.draw(model.end - 1)
        found = await delete_records(session, topic, model.start, model.number)
        session.equal(found, (0, model.start), "DeleteRecords")
    epoch = (await session.known(topic)).leader_epoch
    await session.rolling_restart()
    await session.healthy(topic, 3)
    for model in models:
        await model.check()
    now = (await session.known(topic)).leader_epoch
    # The only replica may be the controller itself: the next one does not know that it has restarted.
    rises = now > epoch or replicas == 1
    session.expect(rises and now >= epoch, f"the leader epoch is {now} after a restart of the leader of epoch {epoch}")
    found = await epoch_end(session, await session.leader(topic), topic, epoch, now)
    session.equal((found.error_code, found.end_offset), (0, models[0].end), "the end of the leader epoch before")
    for model in models:
        await (await model.append()).check()


@after_restart("FET-20", "FET-35")
async def kept_index(session: Session) -> None:
    """A fetch at each offset of closed segments returns the batch that contains it."""
    topic = await session.create_topic(
        "index", 1, _replicas(session), segment_bytes=2_500, index_interval_bytes=session.one_of(1, 90, 200)
    )
    model = await PartitionModel(session, topic).append(60, 2)
    await session.rolling_restart()
    await session.healthy(topic)
    for batch in model.batches:
        for offset in {batch.base_offset, batch.end - 1}:
            headers = batches_of(await session.fetch(topic, offset, partition_max_bytes=1))
            session.equal(headers[0].base_offset, batch.base_offset, f"the first batch of a Fetch at {offset}")
    await model.check()


@after_restart("IDM-5", "IDM-8")
async def kept_producers(session: Session) -> None:
    """The state of idempotent producers survives a restart and a change of leader."""
    topic = await session.create_topic("kept-idem", 1, _replicas(session), segment_bytes=session.one_of(400, 4_096))
    models = [IdempotentModel(session, topic, await producer_id(session)) for _ in range(2)]
    for model in models:
        if session.draw(2):
            model.bump()
        await model.append(*[1 + session.draw(4) for _ in range(6)])
    await session.values(topic, *[b"%d" % n * 40 for n in range(10)])  # so that only snapshots have the batches
    await session.rolling_restart()
    await session.healthy(topic)
    before = len(await session.read(topic))
    for model in models:
        await model.repeat(1)  # a snapshot of the producer state has only the last batch of each producer
        await model.refused(model.next_sequence + 1, 1, E.OUT_OF_ORDER_SEQUENCE_NUMBER, "a batch that skips a sequence")
        await model.append(2)
        if model.epoch:
            await model.refused(0, 1, OLD_EPOCH, "a batch of an older epoch", epoch=model.epoch - 1)
    session.equal(len(await session.read(topic)), before + 4, "the number of records")


@after_restart("TXN-6", "TXN-7", "TXN-28")
async def kept_transactions(session: Session) -> None:
    """Open, committed and aborted transactions survive; open ones can be ended."""
    topic = await session.create_topic("kept-txn", 2, _replicas(session), segment_bytes=session.one_of(200, 500, 4_096))
    logs = [TransactionLog(session, topic, number) for number in (0, 1)]
    first, second, third = [await Transactional(session, f"t{n}", v2=n == 1).begin() for n in range(3)]
    await write(first, logs[:1], b"open at 0", 2)
    for step in range(8):
        await write(second, logs, b"second %d" % step)
        await finish(second, logs, commit=session.draw(3) == 0)
    await write(third, logs[1:], b"open", 1)
    for log in logs:
        await log.check()
    await session.rolling_restart()
    await session.healthy(topic, 2)
    for log in logs:
        await log.check()
    await write(second, logs, b"after", 2)
    await write(third, logs[1:], b"more", 1)
    for producer in (second, third, first):
        await finish(producer, logs, commit=bool(session.draw(2)))
    for log in logs:
        await log.check()


@after_restart("OFF-1", "OFF-7", "OFF-11", "GRP-50")
async def kept_offsets(session: Session) -> None:
    """Committed offsets survive, deleted ones do not return, pending ones stay pending."""
    topic = await session.create_topic("kept-off", 4)
    group, gone = await Group.found(session, "stays"), await Group.found(session, "gone")
    expected = {(topic, 0): 4, (topic, 1): 11, (topic, 2): 12}
    for each in (group, gone):
        await committed_ok(each, expected | {(topic, 0): 10})
    await committed_ok(group, {(topic, 0): 4})
    session.ok(await gone.delete(), "DeleteGroups")
    aborting, committing = [await Transactional(session, name, v2=bool(session.draw(2))).begin() for name in ("a", "c")]
    for producer, number in ((aborting, 1), (committing, 3)):
        await producer.committed_offsets(group, {(topic, number): 77})
    await session.rolling_restart()
    for each in (group, gone):
        await each.find()
    await expect_offsets(group, expected)
    await expect_offsets(gone, {})
    found = await committed(group, [(topic, 1), (topic, 2), (topic, 3)], stable=True)
    pending = (-1, E.UNSTABLE_OFFSET_COMMIT)
    session.equal(found, {(topic, 1): pending, (topic, 2): (12, 0), (topic, 3): pending}, "the stable offsets")
    await aborting.ended(commit=False)
    await committing.ended(commit=True)
    wanted = {(topic, 1): (11, 0), (topic, 2): (12, 0), (topic, 3): (77, 0)}
    await session.until(partial(committed, group, wanted, stable=True), wanted, "the offsets after the transactions")


@after_restart("TXN-10", "OFF-11")
async def ended_offsets(session: Session) -> None:
    """Offsets of transactions that ended before the restart are those that were committed."""
    topic = await session.create_topic("ended-off", 3)
    group = await Group.found(session)
    producer = await Transactional(session, v2=bool(session.draw(2))).begin()
    for number, committing in ((0, True), (1, False), (0, False), (2, True)):
        await producer.committed_offsets(group, {(topic, number): 20 + number + 100 * (not committing)})
        await producer.ended(commit=committing)
    wanted = {(topic, 0): (20, 0), (topic, 1): (-1, 0), (topic, 2): (22, 0)}
    applied = partial(committed, group, wanted, stable=True)
    await session.until(applied, wanted, "the offsets")
    await session.rolling_restart()
    await group.find()
    await session.until(applied, wanted, "the offsets after a restart", 2_000)


@after_restart("GRP-14", "GRP-27", "GRP-28")
async def kept_group(session: Session) -> None:
    """A group keeps its members, generation and assignments; a member that is silent is removed."""
    group, silent = await Group.found(session), await Group.found(session, "silent")
    members = [group.member("a", session_ms=LONG_SESSION_MS) for _ in range(2)]
    members.append(group.member("a", session_ms=LONG_SESSION_MS, instance="static"))
    await stable(group, *members)
    given = await stable(group, *members)
    lasting = silent.member("a", session_ms=LONG_SESSION_MS)
    dying = silent.member("a", session_ms=7_500, instance="dies")
    await stable(silent, lasting, dying)
    await session.rolling_restart()
    await group.find()
    described = {m.member_id: m.member_assignment for m in (await group.describe()).members}
    session.equal(described, given, "the assignments in DescribeGroups after a restart")
    await beat(members)
    for member in members:
        await member.synced(given[member.id])
    before = members[0].generation
    await stable(group, *members)
    session.equal(members[0].generation, before + 1, "the generation after a rebalance after a restart")
    await silent.find()
    end_ms = session.now_ms + 7_500
    while session.now_ms < end_ms and await lasting.heartbeat() == E.NONE:
        await session.sleep(250)
    await rebalancing([lasting])
    await stable(silent, lasting)


@after_restart("GRP-10", "GRP-11")
async def empty_group(session: Session) -> None:
    """The generations of a group that was empty at the restart continue."""
    group = await Group.found(session)
    topic = await session.create_topic("gen")
    first, second = group.member(topic), group.member(topic)
    await stable(group, first, second)
    await committed_ok(group, {(topic, 0): 3}, first)
    await group.leave(first, second)
    await session.rolling_restart()
    await group.find()
    member = group.member(topic)
    await stable(group, member)
    session.expect(
        member.generation > first.generation, f"the generation is {member.generation} after {first.generation}"
    )
    error = await first.heartbeat(member_id=member.id)
    session.error(error, E.ILLEGAL_GENERATION, "a heartbeat of a former generation")
    await expect_offsets(group, {(topic, 0): 3})


@after_restart("ADM-16", "ADM-20", "ADM-34")
async def kept_settings(session: Session) -> None:
    """Settings and replicas of topics survive, deleted topics do not return."""
    topic = await session.create_topic("kept-set", assigned=[[1, 2]], retention_ms=987_654)
    gone = await session.create_topic("kept-gone", 2)
    await session.values(gone, b"v")
    await set_topic(session, topic, max_message_bytes=4321)
    model = await PartitionModel(session, topic).append(4)
    session.ok(await reassign(session, topic, [3, 2]), "a reassignment")
    await delete(session, gone)
    await are_replicas(session, topic, [3, 2])
    await session.rolling_restart()
    await session.healthy(topic)
    await are_replicas(session, topic, [3, 2])
    for broker_id in session.brokers:
        found = await described(session, topic, "retention.ms", "max.message.bytes", broker_id=broker_id)
        session.equal(found, ["987654", "4321"], "the settings after a restart")
    session.expect(not await exists(session, gone), "a deleted topic returns after a restart")
    session.equal(await holders(session, gone), set(), "the brokers with data of a deleted topic")
    await (await model.append()).check()
    await session.create_topic("kept-gone", 2)
    session.equal(await session.read(gone), [], "the records of a topic that was created again")


@after_restart("FET-36")
async def kept_compaction(session: Session) -> None:
    """A compacted log keeps the last record of each key, and what is written after the restart."""
    topic = await session.create_topic("kept-compact", delete_retention_ms=HOUR_MS, **COMPACTED)
    written = await fill(session, topic, 20)
    await session.sleep(500)
    await session.rolling_restart()
    await session.healthy(topic)
    await is_compacted(session, topic, written)
    more = await fill(session, topic, 6)
    await session.sleep(300)
    await is_compacted(session, topic, [*written, *more])

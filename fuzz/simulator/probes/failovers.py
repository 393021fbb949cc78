"""Probes in which a coordinator fails, clocks advance, or replicas lag: offsets, groups and transactions."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.cluster import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from highwater.fuzz.simulator.probes.alone import LAG_MS, alone, became_complete, error_of
from highwater.fuzz.simulator.probes.client.members import Group, Member, beat, stable
from highwater.fuzz.simulator.probes.client.requests import produce_request, request
from highwater.fuzz.simulator.probes.client.session import LATEST, READ_COMMITTED, TRANSACTION, E, Session, record
from highwater.fuzz.simulator.probes.client.transactional import BUSY, Transactional, TransactionLog, finish, write
from highwater.fuzz.simulator.probes.offsets import (
    all_committed,
    commit_request,
    committed,
    committed_ok,
)
from highwater.fuzz.simulator.probes.trimming import set_topic
from highwater.reference.wire.records import build_batch

MINUTE_MS: Final = 60_000


# -- groups and offsets ----------------------------------------------------------------------------------------------


@alone("OFF-11", "REP-15")
async def unreplicated_commit(session: Session) -> None:
    """OffsetFetch returns no offset before its commit is replicated."""
    topic = await session.create_topic("off")
    group = await Group.found(session)
    await committed_ok(group, {(topic, 0): 5})
    await session.sleep(300)
    others = [each for each in session.brokers if each != group.coordinator]
    await session.fault("pause", *others, for_ms=500)
    from_ms = session.now_ms
    pending = session.send(group.coordinator, commit_request(group, {(topic, 0): 9}), patience_ms=4_000)
    while session.now_ms < from_ms + 420 and not pending.done:
        found = await committed(group, [(topic, 0)])
        session.equal(found, {(topic, 0): (5, 0)}, "the offset before its commit is replicated")
        await session.sleep(40)
    await pending
    await session.sleep(2_500)


@alone("OFF-19", "OFF-20")
async def expiring_offsets(session: Session) -> None:
    """Offsets expire ten minutes after their group became empty, those that members read never."""
    one, two, third = [await session.create_topic(name) for name in ("one", "two", "third")]
    simple, active, former = [await Group.found(session, name) for name in ("simple", "active", "former")]
    members, reader = [active.member(one), active.member(two)], former.member(one)
    await stable(active, *members)
    await stable(former, reader)
    every = {(one, 0): 1, (two, 0): 2, (third, 0): 3}
    for group, by in ((simple, None), (active, members[0]), (former, reader)):
        await committed_ok(group, every, by)
    await _pass(session, 8, members)
    await _offsets(session, {simple: set(every), active: set(every), former: set(every)}, "after 8 minutes")
    await former.leave(reader)
    await _pass(session, 4, members)
    read = {(one, 0), (two, 0)}
    await _offsets(session, {simple: set(), active: read}, "after 12 minutes")
    left = set(await all_committed(former))
    session.expect((one, 0) in left, "an offset of a group that became empty 4 minutes ago has expired")
    await committed_ok(simple, {(two, 0): 8})
    await session.fault("kill", active.coordinator, for_ms=1_500)
    session.equal(await _first_offsets(session, active), read, "the first offsets that the next coordinator returns")
    await session.sleep(3_200)
    await _fail_over(session, simple, active, former)
    await _offsets(session, {simple: {(two, 0)}, active: read, former: left}, "after another coordinator took over")
    await _pass(session, 7, members)
    await _offsets(session, {simple: {(two, 0)}, active: read, former: set()}, "after 19 minutes")


async def _pass(session: Session, minutes: int, members: list[Member]) -> None:
    """Set all clocks forward, and let the members send heartbeats before and after."""
    await beat(members)
    await session.fault("clock", "all", by_ms=minutes * MINUTE_MS, back=0)
    await session.sleep(700)
    await beat(members)


async def _offsets(session: Session, expected: dict[Group, set[tuple[str, int]]], when: str) -> None:
    for group, keys in expected.items():
        session.equal(set(await all_committed(group)), keys, f"the partitions with an offset in {group.name} {when}")


async def _first_offsets(session: Session, group: Group) -> set[tuple[str, int]]:
    """Return the partitions of the first successful OffsetFetch after the coordinator has stopped."""
    body = request("OffsetFetch", group_id=group.name, topics=None)
    for number in range(600):
        answer = await session.send(session.brokers[number % len(session.brokers)], body, patience_ms=400)
        if answer is not None and answer.error_code == E.NONE:
            return {(topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions}
        await session.sleep(5)
    return set()


async def _fail_over(session: Session, *groups: Group) -> None:
    """Stop each coordinator in turn for so long that another broker takes over."""
    for broker_id in sorted({group.coordinator for group in groups}):
        await session.fault("kill", broker_id, for_ms=1_500)
        await session.sleep(3_200)
    for group in groups:
        await group.find()


# -- transactions ----------------------------------------------------------------------------------------------------


@alone("TXN-7")
async def old_transaction(session: Session) -> None:
    """An open transaction holds the last stable offset beyond producer.id.expiration.ms."""
    topic = await session.create_topic("aged")
    log = TransactionLog(session, topic)
    producer = await Transactional(session, timeout_ms=15 * MINUTE_MS).begin()
    await session.values(topic, b"plain")
    log.records += await session.read(topic)
    log.end = 1
    await write(producer, [log], b"open", 2)
    await session.fault("clock", "all", by_ms=8 * MINUTE_MS, back=0)
    await session.sleep(900)
    await log.check()
    await finish(producer, [log], commit=bool(session.draw(2)))
    await log.check()


async def is_stable(session: Session, topic: str, number: int = 0) -> bool:
    """Return whether no transaction of a partition is open."""
    ends = [await session.offset(topic, LATEST, number, isolation) for isolation in (READ_COMMITTED, 0)]
    return ends[0] == ends[1]


@alone("TXN-22", "TXN-28", "TXN-31")
async def interrupted_ends(session: Session) -> None:
    """A transaction whose end meets a failure of coordinator or leader ends completely."""
    topic = await session.create_topic("cutend", assigned=[[1, 2, 3], [2, 3, 1]])
    producer = await Transactional(session, v2=bool(session.draw(2))).begin()
    for step in range(3):
        await producer.added((topic, 0), (topic, 1))
        for number in (0, 1):
            await producer.write(topic, number, b"%d" % step)
        coordinator = await session.coordinator(producer.name, TRANSACTION)
        target = session.one_of(coordinator, await session.leader(topic, session.draw(2)))
        ending = _begin_end(session, coordinator, producer, commits=bool(session.draw(2)))
        await session.sleep(session.draw(35))
        await session.fault("kill", target, for_ms=session.one_of(60, 400, 1_500))
        await ending
        await session.sleep(1_500)

        async def is_usable() -> bool:
            return (await producer.init()).error_code not in BUSY

        await session.until(is_usable, True, "whether InitProducerId succeeds after an interrupted EndTxn")
        for number in (0, 1):
            await session.until(partial(is_stable, session, topic, number), True, f"whether {topic}-{number} is stable")
        visible = [{r.value for r in await session.read(topic, 0, n, isolation=READ_COMMITTED)} for n in (0, 1)]
        session.equal(visible[0], visible[1], "the committed records of both partitions")
        await became_complete(session, topic, 2)


def _begin_end(session: Session, coordinator: int, producer: Transactional, *, commits: bool = True) -> Any:
    body = request(
        "EndTxn", transactional_id=producer.name, producer_id=producer.producer, producer_epoch=producer.epoch,
        committed=commits,
    )  # fmt: skip
    return session.send(coordinator, body, 5 if producer.v2 else 3, 1_500)


async def _others(session: Session, producer: Transactional) -> tuple[int, list[int]]:
    """Return the coordinator of a producer, and the other brokers."""
    coordinator = await session.coordinator(producer.name, TRANSACTION)
    return coordinator, [each for each in session.brokers if each != coordinator]


@alone("TXN-32", "TXN-33")
async def unreplicated_markers(session: Session) -> None:
    """Before all markers are written and replicated, neither the stable offset nor the producer goes on."""
    producer = await Transactional(session).begin()
    coordinator, (leader, follower) = await _others(session, producer)
    topic = await session.create_topic("marker", assigned=[[leader, follower], [leader, coordinator]])
    await producer.added((topic, 0), (topic, 1))
    for number in (0, 1):
        await producer.write(topic, number, b"v")
    await session.sleep(300)
    await session.fault("cut", follower, for_ms=LAG_MS - 250, of=str(leader), direction="both")
    until_ms, ending = session.now_ms + LAG_MS - 350, _begin_end(session, coordinator, producer)
    early = build_batch(
        [record(b"early")], producer_id=producer.producer, producer_epoch=producer.epoch,
        base_sequence=producer.sequences[topic, 1], transactional=True,
    )  # fmt: skip
    session.ok((await ending).error_code, "EndTxn")
    while session.now_ms < until_ms:
        stable_end = await session.offset(topic, LATEST, 0, READ_COMMITTED)
        body = produce_request(topic, {1: early}, acks=1, transactional_id=producer.name)
        error = await error_of(session.send(leader, body))
        if session.now_ms < until_ms:
            session.equal(stable_end, 0, "the last stable offset before the marker is replicated")
            session.expect(error != E.NONE, "a batch is stored before all markers of the last transaction")
        await session.sleep(40)
    for number in (0, 1):
        await session.until(partial(is_stable, session, topic, number), True, f"whether {topic}-{number} is stable")
        await producer.added((topic, number))
        await producer.write(topic, number, b"next")
    session.ok((await producer.end(commit=True)).error_code, "EndTxn of the next transaction")


@alone("TXN-22", "TXN-32", "PRD-19")
async def markers_below_min_isr(session: Session) -> None:
    """A marker that a partition refuses, because it has too few replicas in sync, is written when it has enough."""
    producer = await Transactional(session, v2=bool(session.draw(2))).begin()
    coordinator, others = await _others(session, producer)
    # A leader that is cut off from the controller cannot shrink the ISR.
    leader, follower = sorted(others, key=lambda each: each != session.cluster.controller())
    topic = await session.create_topic("short", assigned=[[leader, follower]], min_insync_replicas=2)
    await producer.added((topic, 0))
    await producer.write(topic, 0, b"v")
    await session.fault("cut", follower, for_ms=4 * LAG_MS, of=str(leader), direction="both")
    await session.produce(topic, build_batch([record(b"w")]), acks=1)  # a follower that lacks nothing stays in the ISR
    await session.until(partial(session.isr, topic, leader), {leader}, "the ISR while the follower is cut off", 3_000)
    session.ok((await _begin_end(session, coordinator, producer)).error_code, "EndTxn")
    await session.sleep(200)
    stable_end = await session.offset(topic, LATEST, 0, READ_COMMITTED)
    session.equal(stable_end, 0, "the last stable offset while the marker cannot be written")
    await became_complete(session, topic)
    await session.until(partial(is_stable, session, topic), True, f"whether {topic} is stable")
    read = [each.value for each in await session.read(topic, isolation=READ_COMMITTED)]
    session.equal(read, [b"v", b"w"], "the records of a transaction whose marker was late")


@alone("TXN-10", "OFF-11", "OFF-14")
async def unreplicated_offsets(session: Session) -> None:
    """Offsets of a transaction are valid, and stable, only when its marker is replicated."""
    topic = await session.create_topic("pending")
    producer = await Transactional(session, v2=bool(session.draw(2))).begin()
    coordinator = await session.coordinator(producer.name, TRANSACTION)
    groups = [await Group.found(session, f"group{n}") for n in range(6)]
    group = next((each for each in groups if each.coordinator != coordinator), None)
    if group is None:
        return  # one broker has all partitions of both topics: nothing separates the marker from the transaction
    place = (topic, 0)
    await committed_ok(group, {place: 5})
    for commits in (True, False):
        before = (await committed(group, [place]))[place][0]
        await producer.committed_offsets(group, {place: before + 4})
        await session.sleep(300)
        follower = next(each for each in session.brokers if each not in {coordinator, group.coordinator})
        await session.fault("cut", follower, for_ms=LAG_MS - 100, of=str(group.coordinator), direction="both")
        until_ms = session.now_ms + LAG_MS - 200
        session.ok((await producer.end(commit=commits)).error_code, "EndTxn")
        while session.now_ms < until_ms:
            found = [(await committed(group, [place], stable=stable))[place] for stable in (False, True)]
            if session.now_ms < until_ms:
                expected = [(before, 0), (-1, E.UNSTABLE_OFFSET_COMMIT)]
                session.equal(found, expected, "the offset, and the stable one, before the marker is replicated")
            await session.sleep(40)
        after = {place: (before + 4 * commits, 0)}
        ended = partial(committed, group, [place], stable=True)
        await session.until(ended, after, "the offset after the marker is replicated", 4_000)
        await became_complete(session, OFFSETS_TOPIC, 3)


@alone("REP-25", "TXN-22", "TXN-23")
async def refused_end(session: Session) -> None:
    """An outcome that the coordinator cannot write has not happened: EndTxn succeeds once its log accepts it.

    The log refuses it while it lacks an in-sync replica. No broker stops: a new leader epoch would let the coordinator
    read its log again.
    """
    producer = await Transactional(session, v2=bool(session.draw(2))).begin()
    coordinator, others = await _others(session, producer)
    # The coordinator has the only replica, so that the cut concerns no batch: a leader asks it about a transaction.
    topic = await session.create_topic("refused", assigned=[[coordinator]], min_insync_replicas=1)
    log = TransactionLog(session, topic)
    lagging = next(each for each in others if each != session.cluster.controller())
    await session.fault("cut", lagging, for_ms=3_000, of=str(coordinator), direction="both")
    await write(producer, [log], b"v")  # the coordinator's log goes on without the follower
    await set_topic(session, TRANSACTIONS_TOPIC, min_insync_replicas=3)
    await session.sleep(300)
    commits = bool(session.draw(2))
    answer = await _begin_end(session, coordinator, producer, commits=commits)
    session.error(answer.error_code, E.COORDINATOR_NOT_AVAILABLE, "EndTxn while the log of the coordinator refuses it")
    await became_complete(session, TRANSACTIONS_TOPIC, 2)
    await set_topic(session, TRANSACTIONS_TOPIC, min_insync_replicas=2)
    session.equal(await session.coordinator(producer.name, TRANSACTION), coordinator, "the coordinator")
    await log.check()
    await finish(producer, [log], commit=commits)
    await log.check()

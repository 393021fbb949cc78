"""Probes that request faults of their own: brokers that stop, pause, are cut off or change their clock.

Each runs alone, so that no other probe meets its faults.
"""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.node import Needs, probe
from highwater.fuzz.simulator.probes.client.requests import (
    fetch_request,
    list_request,
    of_topics,
    parts_of,
    produce_request,
    request,
)
from highwater.fuzz.simulator.probes.client.session import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    E,
    Session,
    record,
)
from highwater.fuzz.simulator.probes.client.transactional import Transactional, TransactionLog, finish, write
from highwater.fuzz.simulator.probes.fetch import elect, move_leader
from highwater.fuzz.simulator.probes.records import IdempotentModel, PartitionModel, producer_id
from highwater.fuzz.simulator.probes.topics import UNCLEAN
from highwater.fuzz.simulator.probes.trimming import delete_records, set_topic
from highwater.reference.drivers.simulation.world import WALL_CLOCK_START_MS
from highwater.reference.procedures import Pending
from highwater.reference.wire.records import build_batch

BATCH: Final = build_batch([record(b"v", b"k"), record(b"w", b"k")])
LAG_MS: Final = 600  # replica.lag.time.max.ms of every simulated broker
CUT_MS: Final = 1_900
ON_ONE: Final = [[1, 2, 3]]
alone = partial(probe, needs=Needs.ALONE)


def begin_produce(
    session: Session, topic: str, batch: bytes = BATCH, timeout_ms: int = 1_000, *,
    broker_id: int = 1, partition: int = 0, **fields: Any,
) -> Any:  # fmt: skip
    """Send a batch to a broker; fields of the request may follow."""
    body = produce_request(topic, {partition: batch}, timeout_ms=timeout_ms, **fields)
    return session.send(broker_id, body, patience_ms=timeout_ms + 2_500)


async def error_of(pending: Pending[Any]) -> int:
    """Return the error of a Produce with one batch."""
    return int((await pending).responses[0].partition_responses[0].error_code)


async def became_complete(session: Session, topic: str, partitions: int = 1) -> None:
    """Wait until all faults are over and every replica is in sync."""
    await session.healthy(topic, partitions, 9_000)


# -- replication -----------------------------------------------------------------------------------------------------


@alone("PRD-18", "PRD-21", "REP-2", "REP-3", "REP-19", "REP-25")
async def stopped_follower(session: Session) -> None:
    """acks=all waits for the ISR and for min.insync.replicas, acks=1 for neither."""
    topic = await session.create_topic("follower", assigned=ON_ONE * 3)
    idle = await session.create_topic("idle", assigned=ON_ONE)
    producer = IdempotentModel(session, topic, await producer_id(session))
    await producer.append(2)
    end = await session.offset(topic, LATEST)
    await session.fault("kill", 3, for_ms=6_500)
    await _uncommitted(session, topic, producer, end)
    for name in (topic, idle):
        await session.until(partial(session.isr, name, 1), {1, 2}, f"the ISR of {name} without a follower", 4_000)

    async def errors(acks: int) -> list[int]:
        return [(await session.produce(topic, BATCH, number, acks=acks)).error_code for number in range(3)]

    for limit, expected in ((2, E.NONE), (3, E.NOT_ENOUGH_REPLICAS), (2, E.NONE)):
        await set_topic(session, topic, min_insync_replicas=limit)
        await session.until(partial(errors, -1), [expected] * 3, f"acks=all with min.insync.replicas {limit}")
        session.equal(await errors(1), [E.NONE] * 3, f"acks=1 with min.insync.replicas {limit}")
    await became_complete(session, topic, 3)


async def _uncommitted(session: Session, topic: str, producer: IdempotentModel, end: int) -> None:
    """A batch that a follower lacks is not acknowledged, nor is its repetition; both time out as requested."""
    batch, killed_ms = producer.batch(producer.next_sequence, 2), session.now_ms
    for what in ("a batch", "a repeated batch"):
        began_ms = session.now_ms
        if began_ms > killed_ms + LAG_MS - 200:
            return  # the follower may leave the ISR before the time-out
        error = await error_of(begin_produce(session, topic, batch, 150))
        took_ms = session.now_ms - began_ms
        session.expect(150 <= took_ms < 300, f"{what} with a timeout of 150 ms is answered after {took_ms} ms")
        session.error(error, E.REQUEST_TIMED_OUT, f"{what} that a stopped follower lacks")
    data = await session.fetch(topic, end)
    passes = data.high_watermark > end and session.now_ms < killed_ms + LAG_MS
    session.expect(not passes, "the high watermark passes a member")


@alone("REP-21", "REP-25")
async def cut_follower(session: Session) -> None:
    """A follower that is alive but cut off leaves the ISR each time, and returns without others leaving."""
    topic = await session.create_topic("cut", assigned=ON_ONE)
    for lagging in (3, 2, 3):
        await session.fault("cut", lagging, for_ms=CUT_MS, of="1", direction="both")
        began_ms = session.now_ms
        session.ok(await error_of(begin_produce(session, topic, BATCH, 3_500)), "acks=all without a cut off follower")
        if lagging != session.cluster.controller():  # else the leader may be unable to change the ISR
            session.expect(session.now_ms - began_ms < CUT_MS, "acks=all waits until the follower returns")
        others = {1, 2, 3} - {lagging}

        async def isr(others: set[int] = others, returns_ms: int = began_ms + CUT_MS) -> set[int]:
            found = await session.isr(topic, 1)
            session.expect(others <= found, f"the ISR is {found} while a replica other than {others} returns")
            return found if session.now_ms > returns_ms else set()  # before, the broker may know an old ISR

        await session.until(isr, {1, 2, 3}, "the ISR after the follower returned", 6_000)
        await session.healthy(topic)


@alone("REP-25")
async def slow_follower(session: Session) -> None:
    """A follower that keeps up under load stays in the ISR, though it is always one fetch behind."""
    topic = await session.create_topic("slow", assigned=ON_ONE)
    await session.fault("delay", 3, for_ms=2_600, of="1", ms=45, spread_ms=5)
    end_ms = session.now_ms + 2_200
    while session.now_ms < end_ms:
        sent = [begin_produce(session, topic, BATCH, 2_000) for _ in range(3)]
        await session.sleep(15)
        if session.draw(6) == 0:
            session.equal(await session.isr(topic, 1), {1, 2, 3}, "the ISR under load")
    for each in sent:
        await each
    session.equal(await session.isr(topic, 1), {1, 2, 3}, "the ISR after the load")
    await session.sleep(600)
    await session.healthy(topic)


@alone("LST-4", "REP-24", "REP-25")
async def dead_leader(session: Session) -> None:
    """After an election the ISR lacks the dead leader, and the log end does not fall."""
    for lives in range(2):
        topic = await session.create_topic(f"dead{lives}", assigned=ON_ONE)
        await PartitionModel(session, topic).append(3)
        await session.values(topic, b"last")
        end = await session.offset(topic, LATEST)
        for _ in range(3):
            session.ok(await error_of(begin_produce(session, topic)), "acks=all")
        end += 6
        await session.fault("kill", 1, for_ms=2_200)
        await _end_stays(session, topic, end)

        async def isr(topic: str = topic) -> set[int]:
            """Return the ISR that broker 2 knows of a new leader, or all brokers while it knows the old one."""
            part = await session.known(topic, 2)
            return set(part.isr_nodes) if part.leader_id in {2, 3} else {1, 2, 3}

        await session.until(isr, {2, 3}, "the ISR after the leader died", 500)
        session.ok((await session.produce(topic, BATCH)).error_code, "acks=all after the election")
        await became_complete(session, topic)
        session.equal(len(await session.read(topic)), end + 2, f"the number of records after election {lives}")


async def _end_stays(session: Session, topic: str, end: int) -> None:
    """Until a new leader answers, no answer of ListOffsets is below an end that was acknowledged (KIP-207)."""
    limit_ms = session.now_ms + 4_000
    while session.now_ms < limit_ms:
        waiting = [session.send(broker_id, list_request(topic, LATEST), patience_ms=400) for broker_id in (2, 3)]
        for pending in waiting:
            answer = await pending
            found = answer.topics[0].partitions[0] if answer is not None else None
            if found is not None and found.error_code == E.NONE:
                session.equal(found.offset, end, "the log end in ListOffsets after an election")
                return
        await session.sleep(3)
    session.expect(False, "no leader answers ListOffsets after the old one died")


@alone("LST-4", "REP-24", "FET-3")
async def new_leader_behind(session: Session) -> None:
    """A new leader whose high watermark lags returns the log start and what is below it, and no end (KIP-207).

    A consumer that has read beyond that high watermark waits for it: its position is no error.
    """
    second = session.cluster.controller()
    leader, lagging = [each for each in session.brokers if each != second]
    topic = await session.create_topic("behind", assigned=[[leader, second, lagging]])
    await session.append(topic, [record(b"early"), record(b"early")])
    await session.sleep(400)  # all replicas learn of the high watermark
    await session.fault("cut", lagging, for_ms=1_500, of="brokers", direction="both")
    late = build_batch([record(b"late", None, WALL_CLOCK_START_MS + 1)])
    await session.ask(leader, produce_request(topic, {0: late}, acks=1))
    await session.sleep(60)
    await session.fault("bounce", leader, for_ms=700)
    await session.until(partial(session.leader_at, topic, second), second, f"the leader of {topic}", 2_000)
    until_ms = session.now_ms + LAG_MS - 250
    while session.now_ms < until_ms:
        for timestamp, expected in (
            (EARLIEST, 0), (WALL_CLOCK_START_MS, 0), (LATEST, -1), (MAX_TIMESTAMP, -1), (WALL_CLOCK_START_MS + 1, -1),
        ):  # fmt: skip
            version = 4 + session.draw(4) if timestamp != MAX_TIMESTAMP else 7
            answer = await session.ask(second, list_request(topic, timestamp), version)
            found = answer.topics[0].partitions[0]
            if session.now_ms < until_ms and found.error_code != E.NOT_LEADER_OR_FOLLOWER:
                missing = E.OFFSET_NOT_AVAILABLE if version > 4 else E.LEADER_NOT_AVAILABLE
                what = f"error and offset of ListOffsets({timestamp}) {version} of a leader that lags"
                session.equal((found.error_code, found.offset), (missing if expected < 0 else 0, expected), what)
        fetched = (await session.ask(second, fetch_request(topic, {0: 3}))).responses[0].partitions[0]
        if session.now_ms < until_ms and fetched.error_code != E.NOT_LEADER_OR_FOLLOWER:
            what = "error and records of a Fetch between the high watermark and the end of the log"
            session.equal((fetched.error_code, bytes(fetched.records or b"")), (E.NONE, b""), what)
        await session.sleep(40)
    await became_complete(session, topic)
    session.equal(await session.offset(topic, LATEST), 3, "the end of the log after the election")


@alone("CTL-14", "REP-24", "MD-19", "ADM-32")
async def shutdown_of_a_leader(session: Session) -> None:
    """When a leader stops, the first assigned replica that is in sync leads, and its own replica is offline."""
    await _succeeded(session, "bounce")


@alone("CTL-14", "REP-24", "MD-19")
async def death_of_a_leader(session: Session) -> None:
    """When a leader dies, the first assigned replica that is in sync leads, and its own replica is offline."""
    await _succeeded(session, "kill")


async def _succeeded(session: Session, end: str) -> None:
    """End a leader in this way, after its ISR has shrunk and grown: it is not in the order of the assignment then."""
    leader, second, third = session.one_of([1, 3, 2], [2, 3, 1], [3, 2, 1])
    topic = await session.create_topic("stops", assigned=[[leader, second, third]])
    model = await PartitionModel(session, topic).append(2)
    await session.fault("kill", session.one_of(second, third), for_ms=1_600)  # the ISR shrinks and grows
    await session.sleep(1_700)
    await became_complete(session, topic)
    await session.fault(end, leader, for_ms=2_600)
    others = [second, third]

    async def seen() -> set[tuple[int, frozenset[int], tuple[int, ...]]]:
        parts = [await session.known(topic, each) for each in others]
        return {(part.leader_id, frozenset(part.isr_nodes), tuple(part.offline_replicas)) for part in parts}

    expected = {(second, frozenset(others), (leader,))}
    await session.until(seen, expected, "leader, ISR and offline replicas while a leader is stopped", 2_200)
    body = request("DescribeTopicPartitions", topics=[{"name": topic}])
    offline = [(await session.ask(each, body)).topics[0].partitions[0].offline_replicas for each in others]
    session.equal([tuple(each) for each in offline], [(leader,)] * 2, "the offline replicas of a stopped leader")
    await became_complete(session, topic)
    await (await model.append()).check()


@alone("REP-12", "REP-23", "REP-24", "FET-35")
async def lost_tails(session: Session) -> None:
    """A leader that loses unflushed records while it restarts has all acknowledged ones again before it leads."""
    victim = session.one_of(*session.brokers)
    replicas = sorted(session.brokers, key=lambda each: each != victim)
    topic = await session.create_topic("tails", assigned=[replicas] * 3, segment_bytes=1 << 20)
    written: list[bytes] = []
    for stops_cleanly in (False, True):
        if stops_cleanly:
            await session.fault("bounce", victim, for_ms=300)
            await session.sleep(2_000)
            await became_complete(session, topic, 3)
        await move_leader(session, topic, replicas, 3)
        for _ in range(3):
            value = b"%d " % session.draw(1 << 20) * 400  # a batch of several pages, of which a crash loses some
            batch = build_batch([record(value)])
            waiting = [begin_produce(session, topic, batch, broker_id=victim, partition=n) for n in range(3)]
            for pending in waiting:
                session.ok(await error_of(pending), "acks=all")
            written.append(value)
        await session.fault("kill", victim, for_ms=100, lose=session.one_of("torn", "torn", "unflushed"))
        await session.sleep(200)
        await became_complete(session, topic, 3)
        for order in (replicas[1:] + replicas[:1], replicas):
            await move_leader(session, topic, order, 3)
            for number in range(3):
                found = [each.value for each in await session.read(topic, 0, number)]
                session.equal(found, written, f"the records of {topic}-{number} after broker {victim} lost its tail")


@alone("ADM-6", "REP-7", "REP-23")
async def trimmed_with_a_paused_follower(session: Session) -> None:
    """DeleteRecords waits for the followers; deleted records do not return with the next leader (KIP-107)."""
    topic = await session.create_topic("trimmed", assigned=ON_ONE * 3)
    model = await PartitionModel(session, topic).append(6)
    for number in (1, 2):
        await session.values(topic, b"a", b"b", b"c", partition=number)
    await session.sleep(300)
    await session.fault("pause", 2, for_ms=500)
    began_ms = session.now_ms
    parts = [(topic, {"partition_index": number, "offset": 2}) for number in range(3)]
    answer = await session.ask(1, request("DeleteRecords", topics=of_topics(parts), timeout_ms=200))
    errors = {part.error_code for part in parts_of(answer).values()}
    session.equal(errors, {E.REQUEST_TIMED_OUT}, "the errors of DeleteRecords while a follower is paused")
    session.expect(session.now_ms - began_ms < 380, "DeleteRecords of three partitions does not respect its timeout")
    await session.sleep(900)
    model.start = 2 + session.draw(model.end - 2)
    found = await delete_records(session, topic, model.start)
    session.equal(found, (E.NONE, model.start), "DeleteRecords of an idle partition")
    for replicas in ([2, 3, 1], [3, 1, 2]):
        await move_leader(session, topic, replicas, 3)
        session.equal(await session.offset(topic, EARLIEST), model.start, "the log start of the next leader")
        await model.check()


@alone("REP-4", "REP-23", "ADM-6", "TXN-7", "TXN-29")
async def trimmed_without_a_follower(session: Session) -> None:
    """A follower whose log ends before the log start of its leader has all records from there on."""
    topic = await session.create_topic("behind", assigned=ON_ONE * 2)
    model, log = await PartitionModel(session, topic).append(2), TransactionLog(session, topic, 1)
    producer, other = [await Transactional(session, f"t{n}").begin() for n in range(2)]
    await write(producer, [log], b"deleted", 2)
    await session.sleep(200)
    await session.fault("kill", 3, for_ms=2_600)
    await session.until(partial(session.isr, topic, 1), {1, 2}, "the ISR without a follower", 2_500)
    await finish(producer, [log], commit=False)
    await write(other, [log], b"v", 3)
    log.start = log.end - 1  # the log starts after the marker that the stopped follower lacks
    session.equal(await delete_records(session, topic, log.start, 1), (E.NONE, log.start), "DeleteRecords")
    await finish(other, [log], commit=True)
    first = model.end
    await model.append(6)
    model.start = first + 1 + session.draw(model.end - first - 1)
    found = await delete_records(session, topic, model.start)
    session.equal(found, (E.NONE, model.start), "DeleteRecords beyond the end of a stopped follower")
    await became_complete(session, topic, 2)
    await move_leader(session, topic, [3, 1, 2], 2)
    await model.check()
    await log.check()


@alone("REP-11", "REP-26")
async def unclean_election(session: Session) -> None:
    """A replica out of sync is elected only where the topic allows it, also if it allows it later."""
    may, not_, later = [
        await session.create_topic(
            name, assigned=[[1, 2]], min_insync_replicas=1, unclean_leader_election_enable=str(name == "may").lower()
        )
        for name in ("may", "not", "later")
    ]
    for topic in (may, not_, later):
        await session.values(topic, b"both")
    await session.fault("kill", 2, for_ms=2_600)
    for topic in (may, not_, later):
        await session.until(partial(session.isr, topic, 1), {1}, f"the ISR of {topic} without broker 2", 2_400)
        await session.values(topic, b"only one")
    await session.fault("kill", 1, for_ms=7_000)
    await session.until(partial(session.leader_at, may, 3), 2, f"the leader of {may}")
    session.equal(
        await session.isr(may, 3), {2}, "the ISR after an unclean election, whose leader may have lost records"
    )
    for topic in (not_, later):
        session.expect(await session.leader_at(topic, 3) != 2, f"broker 2 leads {topic}, which forbids it")
    await set_topic(session, later, unclean_leader_election_enable="true")
    await session.until(partial(session.leader_at, later, 3), 2, f"the leader of {later}", 2_000)
    session.equal(await session.isr(later, 3), {2}, "the ISR after an unclean election that is allowed later")
    for topic in (may, not_, later):
        await became_complete(session, topic)
    found = [r.value for r in await session.read(not_)]
    session.equal(found, [b"both", b"only one"], "the records without unclean election")
    session.equal(await elect(session, not_, UNCLEAN), E.ELECTION_NOT_NEEDED, "an unclean election beside a leader")


@alone("IDM-8", "PRD-18", "REP-7", "REP-23", "REP-24")
async def former_leader(session: Session) -> None:
    """A former leader has the records of the next one, and acknowledges none that it had to remove."""
    topic = await session.create_topic("trunc", assigned=ON_ONE)
    model = IdempotentModel(session, topic, await producer_id(session))
    await model.append(1)
    await session.sleep(300)
    await session.fault("cut", 1, for_ms=2_600, of="brokers")
    await begin_produce(session, topic, model.batch(1, 1), 200, acks=1)
    waiting = begin_produce(session, topic, build_batch([record(b"unreplicated")]), 12_000)
    await session.fault("expire", 1)
    end_ms = session.now_ms + 4_000
    while (leader := await session.leader_at(topic, 2)) not in {2, 3}:
        session.expect(session.now_ms < end_ms, "no other broker leads")
        await session.sleep(50)
    values = [b"x", b"y"][: session.draw(3)]  # so that both logs may have the same end
    for value in values:
        answer = await session.ask(leader, produce_request(topic, {0: build_batch([record(value)])}, acks=1))
        session.ok(answer.responses[0].partition_responses[0].error_code, "acks=1 by the next leader")
    await session.sleep(3_500)
    session.expect(waiting.done, "a Produce that waits is not answered when its leader becomes a follower")
    session.error(await error_of(waiting), (E.NOT_LEADER_OR_FOLLOWER, E.REQUEST_TIMED_OUT), "a Produce that waits")
    await became_complete(session, topic)
    before = [each.value for each in await session.read(topic)]
    session.equal(before, [b"0 0", *values], "the records of the next leader")
    await move_leader(session, topic, [1, 2, 3])
    session.equal([each.value for each in await session.read(topic)], before, "the records of a former leader")
    answer = await session.produce(topic, model.batch(1, 1))
    session.ok(answer.error_code, "the repeated batch")
    session.equal(len(await session.read(topic)), len(before) + 1, "the number of records")

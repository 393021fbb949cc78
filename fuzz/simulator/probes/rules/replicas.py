"""Probes of replicas that lag: what is removed, what waits, which of them readers are sent to."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.alone import LAG_MS, ON_ONE, alone, became_complete, begin_produce
from highwater.fuzz.simulator.probes.client.requests import fetch_request, list_request, of_topics, parts_of, request
from highwater.fuzz.simulator.probes.client.session import EARLIEST, LATEST, E, Session, record
from highwater.fuzz.simulator.probes.fetch import elect, epoch_end, move_leader, reassign
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.records import HOUR_MS
from highwater.fuzz.simulator.probes.topics import PREFERRED
from highwater.fuzz.simulator.probes.trimming import COMPACTED, delete_records, set_topic
from highwater.reference.wire.records import build_batch

CHECKED_MS: Final = 1_500
"""Retention and compaction have run several times after so long."""
IN_TURN_MS: Final = 60
"""Longer than a Fetch of a follower and its answer take, by which the leader learns what the follower has."""
LEADER_OF_RACK_B: Final = 2  # the racks are those of `swarm`: brokers 1 and 3 are in rack a


# -- what is removed ---------------------------------------------------------------------------------------------------


async def _uncommitted(session: Session, topic: str, values: list[bytes], time_ms: int) -> None:
    """Append a record of each value and of a few keys, which no follower needs to have."""
    for number, value in enumerate(values):
        batch = build_batch([record(value * 20, b"k%d" % (number % 3), time_ms)])
        answer = await begin_produce(session, topic, batch, acks=1)
        session.ok(answer.responses[0].partition_responses[0].error_code, "acks=1 without a follower")


@alone("FET-36", "FET-44", "FET-37", "ADM-6", "REP-23", "REP-25")
async def removal_below_the_high_watermark(session: Session) -> None:
    """Neither compaction, nor retention, nor DeleteRecords removes, or removes because of, what is not committed.

    min.insync.replicas is larger than the ISR, so that the high watermark stays where it is.
    """
    old_ms, now_ms = session.wall_ms - 2 * HOUR_MS, session.wall_ms
    options: dict[str, dict[str, Any]] = {
        "compact": {**COMPACTED, "delete_retention_ms": 1}, "time": {"segment_bytes": 300, "retention_ms": HOUR_MS},
        "size": {"segment_bytes": 300, "retention_bytes": 700},
    }  # fmt: skip
    topics = {name: await session.create_topic(name, assigned=ON_ONE, **options[name]) for name in options}
    for topic in topics.values():
        for number in range(3):
            await session.append(topic, [record(b"old %d" % number, b"k%d" % number, now_ms)])
    before = {topic: await session.read(topic) for topic in topics.values()}
    await session.sleep(300)
    for topic in topics.values():
        await set_topic(session, topic, min_insync_replicas=3)
    await session.fault("kill", 3, for_ms=4_500)
    for topic in topics.values():
        await session.until(partial(session.isr, topic, 1), {1, 2}, f"the ISR of {topic} without a follower", 2_500)
        newer = [b"new %d" % n if n % 2 else b"newer" for n in range(12)]
        await _uncommitted(session, topic, newer, now_ms if topic == topics["compact"] else old_ms)
    await session.sleep(CHECKED_MS)
    for topic in topics.values():
        start, end = await session.offset(topic, EARLIEST), await session.offset(topic, LATEST)
        session.equal(end, 3, f"the high watermark of {topic} while its ISR is too small")
        session.expect(start <= end, f"the log of {topic} starts at {start}, after its high watermark {end}")
        found = [tuple(each) for each in await session.read(topic, start)]
        session.equal(found, [tuple(r) for r in before[topic] if r.offset >= start], f"the records of {topic}")
    session.equal(await session.offset(topics["compact"], EARLIEST), 0, "the log start of a compacted topic")
    error, _ = await delete_records(session, topics["size"], 4)
    session.error(error, E.OFFSET_OUT_OF_RANGE, "DeleteRecords beyond the high watermark")
    session.equal(await delete_records(session, topics["size"], -1), (E.NONE, 3), "DeleteRecords of what is committed")
    for topic in topics.values():
        await became_complete(session, topic)
        await session.until(partial(session.offset, topic, LATEST), 15, f"the high watermark of {topic} later", 3_000)


# -- DeleteRecords that waits ------------------------------------------------------------------------------------------


@alone("ADM-6", "REP-7", "PRD-39")
async def deletions_of_records_that_wait(session: Session) -> None:
    """DeleteRecords that waits for a follower gets NOT_LEADER_OR_FOLLOWER where another broker leads meanwhile.

    It succeeds where the follower returns in time, and times out elsewhere.
    """
    lagging = next(each for each in session.brokers if each != session.cluster.controller())
    leader, second = [each for each in session.brokers if each != lagging][:: session.one_of(1, -1)]
    moves, stays = [await session.create_topic(assigned=[[leader, second, lagging]]) for _ in range(2)]
    for topic in (moves, stays):
        await session.values(topic, b"a", b"b", b"c")
    session.ok(await reassign(session, moves, [second, leader, lagging]), "a reassignment to another order")
    await session.sleep(500)
    await session.healthy(moves)
    cut_ms = session.one_of(1_200, 2_400)
    await session.fault("cut", lagging, for_ms=cut_ms, of="brokers", direction="both")
    parts = [(topic, {"partition_index": 0, "offset": 2}) for topic in (moves, stays)]
    body = request("DeleteRecords", topics=of_topics(parts), timeout_ms=1_900)
    pending = session.send(leader, body, patience_ms=5_000)
    await session.sleep(150)
    session.expect(not pending.done, "DeleteRecords does not wait for a follower that is cut off")
    session.ok(await elect(session, moves, PREFERRED), "a preferred election")
    await session.until(partial(session.leader_at, moves, leader), second, "the leader after it", 1_000)
    found = {topic: part for (topic, _), part in parts_of(await pending).items()}
    answers = {topic: (part.error_code, part.low_watermark) for topic, part in found.items()}
    session.equal(answers[moves], (E.NOT_LEADER_OR_FOLLOWER, -1), "DeleteRecords at a broker that leads no longer")
    if cut_ms < 1_500:
        session.equal(answers[stays], (E.NONE, 2), "DeleteRecords of a partition whose follower returns")
    else:
        session.error(answers[stays][0], E.REQUEST_TIMED_OUT, "DeleteRecords of a partition whose follower is away")
    for topic in (moves, stays):
        await became_complete(session, topic)
        session.look_again()
        start = await session.offset(topic, EARLIEST)
        session.expect(start in {0, 2} if topic == moves else start == 2, f"the log of {topic} starts at {start}")


# -- readers -----------------------------------------------------------------------------------------------------------


async def _preferred(session: Session, topic: str, rack: str, offset: int) -> int:
    answer = await session.ask(LEADER_OF_RACK_B, fetch_request(topic, {0: offset}, rack_id=rack, max_wait_ms=0))
    data = answer.responses[0].partitions[0]
    session.ok(data.error_code, f"a Fetch at {offset} from rack {rack!r}")
    return int(data.preferred_read_replica)


@alone("FET-33", "FET-41", "FET-42", "FET-43")
async def replicas_of_one_rack(session: Session) -> None:
    """Of the replicas in the rack of a reader the one with the largest log end is preferred, if it has the offset."""
    topic = await session.create_topic("near", assigned=[[LEADER_OF_RACK_B, 1, 3]])
    await session.values(topic, b"first")
    end = 1
    for lagging in (1, 3, 1)[session.draw(2) :]:
        await session.healthy(topic)
        await session.sleep(300)
        session.expect(await _preferred(session, topic, "a", end) in {1, 3}, "no replica of the rack is preferred")
        session.equal(await _preferred(session, topic, "b", end), -1, "the preferred replica for the leader's rack")
        await session.fault("cut", lagging, for_ms=LAG_MS - 150, of=str(LEADER_OF_RACK_B), direction="both")
        until_ms = session.now_ms + LAG_MS - 200
        batch = build_batch([record(b"v")])
        await begin_produce(session, topic, batch, acks=1, broker_id=LEADER_OF_RACK_B)
        await session.sleep(2 * IN_TURN_MS)
        for offset in (0, end, end + 1):
            found = await _preferred(session, topic, "a", offset)
            if session.now_ms < until_ms:
                session.equal(found, 4 - lagging, f"the preferred replica at {offset} while {lagging} lacks a record")
        end += 1


@fields("FET-13", "FET-8", "FET-33", "LST-5", "LST-14", "REP-8")
async def leader_epochs_of_every_replica(session: Session) -> None:
    """Leader and followers compare the leader epoch of a request alike, in each version that has one."""
    topic = await session.create_topic("epochs", assigned=[[1, 2, 3]])
    await session.values(topic, b"v", b"w")
    await move_leader(session, topic, [2, 1, 3])
    current = (await session.known(topic)).leader_epoch
    await session.sleep(350)  # the followers learn of the high watermark
    refused = {current - 1: E.FENCED_LEADER_EPOCH, current + 1: E.UNKNOWN_LEADER_EPOCH, 1 << 30: E.UNKNOWN_LEADER_EPOCH}
    for epoch, error in {**refused, -1: E.NONE, current: E.NONE}.items():
        for broker_id in session.brokers:
            # What only a leader serves a follower may refuse because of either.
            of_leader = {error} if broker_id == 2 else {error, E.NOT_LEADER_OR_FOLLOWER} - {E.NONE}
            for version in (9, 10, 11, 12):
                body = fetch_request(topic, {0: 0}, {"current_leader_epoch": epoch}, max_wait_ms=0)
                answer = (await session.ask(broker_id, body, version)).responses[0].partitions[0]
                what = f"Fetch {version} at broker {broker_id} with leader epoch {epoch} of {current}"
                session.error(answer.error_code, error if version >= 11 else of_leader, what)
            listed = await session.ask(broker_id, list_request(topic, LATEST, epoch=epoch))
            ended = await epoch_end(session, broker_id, topic, current, epoch)
            what = f"ListOffsets and OffsetForLeaderEpoch at broker {broker_id} with leader epoch {epoch} of {current}"
            for found in (listed.topics[0].partitions[0].error_code, ended.error_code):
                session.error(found, of_leader, what)


@fields("FET-15", "FET-33", "FET-41", "FET-11")
async def readers_below_the_log_start(session: Session) -> None:
    """The leader refuses an offset below its log start itself, and sends no reader to a replica for it (KIP-392)."""
    topic = await session.create_topic("below", assigned=ON_ONE)
    await session.values(topic, b"gone", b"stays")
    await session.sleep(600)

    async def from_rack_b(offset: int) -> tuple[int, int]:
        answer = await session.ask(1, fetch_request(topic, {0: offset}, rack_id="b"))
        part = answer.responses[0].partitions[0]
        return int(part.error_code), int(part.preferred_read_replica)

    session.equal(await from_rack_b(0), (E.NONE, LEADER_OF_RACK_B), "error and preferred replica for rack b")
    session.equal(await delete_records(session, topic, 1), (E.NONE, 1), "DeleteRecords")
    session.equal(await from_rack_b(0), (E.OFFSET_OUT_OF_RANGE, -1), "error and preferred replica below the log start")
    await session.until(partial(from_rack_b, 1), (E.NONE, LEADER_OF_RACK_B), "error and preferred replica at the start")

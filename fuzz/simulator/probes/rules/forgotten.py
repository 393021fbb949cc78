"""Probes of what a broker must not forget: producers of deleted records, leaders of groups, what was not stored."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.cluster import OFFSETS_TOPIC
from highwater.fuzz.simulator.probes.alone import alone, became_complete
from highwater.fuzz.simulator.probes.client.members import Group, Member, beat, leader_of, rejoin, stable, sync_all
from highwater.fuzz.simulator.probes.client.requests import of_topics, request
from highwater.fuzz.simulator.probes.client.session import E, Session, record
from highwater.fuzz.simulator.probes.client.transactional import Transactional, TransactionLog, finish, write
from highwater.fuzz.simulator.probes.fetch import reassign
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.offsets import committed_ok
from highwater.fuzz.simulator.probes.records import IdempotentModel, producer_id
from highwater.fuzz.simulator.probes.restarts import LONG_SESSION_MS, after_restart
from highwater.fuzz.simulator.probes.topics import ongoing
from highwater.fuzz.simulator.probes.trimming import delete_records, set_topic

SOON_MS: Final = 300
"""A JoinGroup that waits for no other member is answered before."""


# -- producers ---------------------------------------------------------------------------------------------------------


@fields("IDM-2", "IDM-5", "IDM-13", "ADM-6")
async def producers_of_deleted_records(session: Session) -> None:
    """A partition knows an idempotent producer also when all its records are deleted (KAFKA-7190)."""
    topic = await session.create_topic("deleted", segment_bytes=session.one_of(200, 4_096))
    model = IdempotentModel(session, topic, await producer_id(session))
    await model.append(*[1 + session.draw(3) for _ in range(6)])
    end = await session.append(topic, [record(b"of no producer")]) + 1
    session.equal(await delete_records(session, topic, end), (E.NONE, end), "DeleteRecords of all")
    await model.repeat(1, 3)
    await model.refused(model.next_sequence + 1, 1, E.OUT_OF_ORDER_SEQUENCE_NUMBER, "a batch that skips a sequence")
    await model.append(2)
    session.equal(len(await session.read(topic, end)), 2, "the number of records after all were deleted")


async def _coordinator_epochs(session: Session, topic: str) -> dict[int, int]:
    """Return the coordinator epoch of each producer in DescribeProducers."""
    body = request("DescribeProducers", topics=of_topics([(topic, 0)], partitions="partition_indexes"))
    part = (await session.ask_leader(topic, 0, body)).topics[0].partitions[0]
    session.ok(part.error_code, f"DescribeProducers of {topic}")
    return {each.producer_id: each.coordinator_epoch for each in part.active_producers}


@after_restart("TXN-28", "TXN-31")
async def kept_coordinator_epochs(session: Session) -> None:
    """The coordinator epoch of the last marker of a producer survives: markers of former coordinators are refused."""
    topic = await session.create_topic("markers", 1, 1, segment_bytes=300)
    log = TransactionLog(session, topic)
    producer = await Transactional(session).begin()
    for commits in (True, False):
        await write(producer, [log], b"v")
        await finish(producer, [log], commit=commits)
    await session.values(topic, *[b"%d" % n * 60 for n in range(8)])  # so that only snapshots have the markers
    before = await _coordinator_epochs(session, topic)
    session.expect(
        before.get(producer.producer, -1) >= 0, f"a producer with a marker has no coordinator epoch: {before}"
    )
    await session.rolling_restart()
    await session.healthy(topic)
    session.equal(await _coordinator_epochs(session, topic), before, "the coordinator epochs after a restart")


# -- groups ------------------------------------------------------------------------------------------------------------


@after_restart("GRP-14", "GRP-35", "GRP-61")
async def kept_leader_of_a_group(session: Session) -> None:
    """The next coordinator knows which member leads, also if that has restarted: another one begins no rebalance."""
    group = await Group.found(session, "led")
    make = partial(group.member, "a", session_ms=LONG_SESSION_MS, rebalance_ms=LONG_SESSION_MS)
    members = [make(instance=name) for name in ("one", "two", "three")]
    given = await stable(group, *members)
    old = leader_of(members)
    new: Member = make(instance=old.instance)
    await new.end_join(new.begin_join())  # a static member that restarts with the same protocols
    await new.synced(given[old.id])
    others = [each for each in members if each is not old]
    await session.rolling_restart()
    await group.find()
    for member in others:
        pending = member.begin_join()
        await session.sleep(SOON_MS)
        session.expect(
            pending.done, "JoinGroup of a follower with the same protocols begins a rebalance after a restart"
        )
        answer: Any = await pending
        found = (answer.error_code, answer.generation_id, answer.leader)
        session.equal(
            found, (E.NONE, member.generation, new.id), "error, generation and leader of a follower's JoinGroup"
        )
    await beat([new, *others])


@alone("GRP-16", "GRP-26", "GRP-43", "REP-25")
async def assignments_that_cannot_be_stored(session: Session) -> None:
    """Members whose assignments the log of the coordinator refuses must join again, and then the group continues."""
    topic = await session.create_topic("assigned")
    group = await Group.found(session)
    members = [group.member(topic, session_ms=LONG_SESSION_MS, rebalance_ms=LONG_SESSION_MS) for _ in range(2)]
    await stable(group, *members)
    lagging = next(each for each in session.brokers if each not in {group.coordinator, session.cluster.controller()})
    await session.fault("cut", lagging, for_ms=3_500, of=str(group.coordinator), direction="both")
    await committed_ok(group, {(topic, 0): 6}, members[0])  # the log goes on without the follower
    await set_topic(session, OFFSETS_TOPIC, min_insync_replicas=3)
    await session.sleep(300)
    await rejoin(*sorted(members, key=lambda each: not each.leads))
    leader = leader_of(members)
    waiting = [each.begin_sync({each.id: b"v"} if each is leader else None) for each in members]
    for pending in waiting:
        refused = (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.REBALANCE_IN_PROGRESS)
        session.error((await pending).error_code, refused, "SyncGroup whose assignments cannot be stored")
    if await session.coordinator(group.name) == group.coordinator:
        await beat(members, E.REBALANCE_IN_PROGRESS)
    await set_topic(session, OFFSETS_TOPIC, min_insync_replicas=2)
    await became_complete(session, OFFSETS_TOPIC, 3)
    if await session.coordinator(group.name) != group.coordinator:
        return
    await rejoin(*sorted(members, key=lambda each: not each.leads))
    await sync_all(members)
    await group.state("Stable")


# -- topics ------------------------------------------------------------------------------------------------------------


@alone("ADM-34", "ADM-36", "CTL-9")
async def partitions_beside_a_reassignment(session: Session) -> None:
    """A topic of which a partition is being reassigned is not extended, also if replicas are only added (KIP-455)."""
    controller = session.cluster.controller()
    leader, target = [each for each in session.brokers if each != controller]
    topic = await session.create_topic("extended", assigned=[[leader]], min_insync_replicas=1)
    await session.values(topic, b"v")
    await session.fault("cut", target, for_ms=1_500, of=str(leader), direction="both")
    session.ok(await reassign(session, topic, [leader, target]), "a reassignment that adds a replica")
    body = request("CreatePartitions", topics=[{"name": topic, "count": 3, "assignments": None}], timeout_ms=500)
    if await ongoing(session, topic):
        error = (await session.ask_any(body)).results[0].error_code
        session.error(error, E.REASSIGNMENT_IN_PROGRESS, "CreatePartitions during a reassignment")
        session.equal(len((await session.metadata(topic)).partitions), 1, "the number of partitions after that")
    await session.until(partial(ongoing, session, topic), False, f"whether {topic} is being reassigned", 6_000)
    session.ok((await session.ask_any(body)).results[0].error_code, "CreatePartitions after a reassignment")
    await session.healthy(topic, 3)

"""Probes of topics and records around an outage of one broker: before it stops, while it is away, and afterwards."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.node import Needs, probe
from highwater.fuzz.simulator.probes.client.requests import errors_of, fetch_request, of_topics, request
from highwater.fuzz.simulator.probes.client.session import EARLIEST, LATEST, E, Session, record
from highwater.fuzz.simulator.probes.fetch import elect, reassign
from highwater.fuzz.simulator.probes.fields.moves import settled
from highwater.fuzz.simulator.probes.records import HOUR_MS, IdempotentModel, PartitionModel, producer_id
from highwater.fuzz.simulator.probes.remembered import described_producers
from highwater.fuzz.simulator.probes.topics import PREFERRED, UNCLEAN, described, exists, holders, ongoing
from highwater.fuzz.simulator.probes.trimming import delete_records, set_topic
from highwater.reference.wire.records import build_batch

around_outage = partial(probe, needs=Needs.OUTAGE)
SOON_MS: Final = 2_500
ENDS_WITHIN_MS: Final = 6_000
BATCH: Final = build_batch([record(b"v")])


async def _delete(session: Session, topic: str) -> int:
    """Return the error of DeleteTopics, which may wait for a broker that is away."""
    answer = await session.ask_any(request("DeleteTopics", topic_names=[topic], timeout_ms=300))
    return int(answer.responses[0].error_code)


async def _created(session: Session, topic: str, assigned: list[list[int]]) -> int:
    """Return the error of CreateTopics."""
    return int((await session.request_topic(topic, assigned=assigned)).error_code)


# -- changes -----------------------------------------------------------------------------------------------------------


@around_outage("ADM-4", "ADM-20", "ADM-1", "CTL-7", "CTL-8")
async def topics_of_an_outage(session: Session) -> None:
    """What is deleted and created while a broker is away is so for it, too: names are free, logs are gone or there."""
    away, (one, two) = session.victim, session.others
    assigned = [[away, one, two], [one, away, two]]
    gone, again, late = [await session.create_topic(name, assigned=assigned) for name in ("gone", "again", "late")]
    ids = {name: bytes((await session.metadata(name)).topic_id) for name in (gone, again)}
    for topic in (gone, again, late):
        for number in (0, 1):
            await session.values(topic, b"old", partition=number)
    await session.notice()
    await session.stopped()
    for topic in (gone, again):
        session.error(await _delete(session, topic), (E.NONE, E.REQUEST_TIMED_OUT), f"DeleteTopics of {topic}")
    made = await session.create_topic("made", 2, 2, retention_ms=1_234_567)
    placed = {tuple(sorted(part.replica_nodes)) for part in (await session.metadata(made)).partitions}
    session.equal(placed, {tuple(sorted(session.others))}, "the replicas of a topic that was created during an outage")
    for name, fields, error in (
        ("wide", {"replicas": 3}, E.INVALID_REPLICATION_FACTOR),
        ("dead", {"assigned": [[away, one]]}, E.INVALID_REPLICA_ASSIGNMENT),
    ):
        found = await session.request_topic(f"{session.name}-{name}", **fields)
        session.error(found.error_code, error, f"CreateTopics with {fields} while broker {away} is away")
    await session.returned()
    for topic in (gone, again):
        await session.until(partial(exists, session, topic), False, f"whether {topic} exists", ENDS_WITHIN_MS)
        await session.until(
            partial(holders, session, topic), set(), f"the brokers with data of {topic}", ENDS_WITHIN_MS
        )
    for topic in (gone, again):  # the name is free when the controller has forgotten the deletion
        await session.until(partial(_created, session, topic, assigned), E.NONE, f"CreateTopics of {topic}", SOON_MS)
        await session.healthy(topic, 2)
    now = bytes((await session.metadata(again)).topic_id)
    session.expect(now != ids[again], "a topic that was created again has the id of the deleted one")
    for topic, expected in ((gone, []), (again, []), (late, [b"old"])):
        for number in (0, 1):
            found_values = [each.value for each in await session.read(topic, 0, number)]
            session.equal(found_values, expected, f"the records of {topic}-{number} after an outage")
    for broker_id in session.brokers:
        found_settings = await described(session, made, "retention.ms", broker_id=broker_id)
        session.equal(found_settings, ["1234567"], f"a setting of a topic of the outage at broker {broker_id}")
    await _delete(session, late)
    await session.until(partial(exists, session, late), False, f"whether {late} exists", ENDS_WITHIN_MS)


def _succeeded(answer: Any) -> bool:
    return answer is not None and not errors_of(answer) - {0}


@around_outage("ADM-1", "ADM-20", "ADM-34", "ADM-36", "CTL-6", "CTL-7", "CTL-9")
async def interrupted_changes(session: Session) -> None:
    """What was answered before a broker stopped takes effect; what was not is done completely, or not at all."""
    away, (one, two) = session.victim, session.others
    moved = [await session.create_topic(f"moved{n}", assigned=[[one]]) for n in range(5)]
    led = [await session.create_topic(f"led{n}", assigned=[[one, two]]) for n in range(2)]
    old = [await session.create_topic(f"old{n}", assigned=[[two, one]]) for n in range(3)]
    for topic in (*moved, *led):
        await session.values(topic, b"v", b"w")
    controller = session.cluster.controller()
    await session.notice()
    began_ms, sent = session.now_ms, []
    for step in range(5):
        target = [two] if step % 2 else [one, two]
        parts = of_topics([(moved[step], {"partition_index": 0, "replicas": target})])
        sent.append((moved[step], session.send(controller, request("AlterPartitionReassignments", topics=parts))))
        if step < len(led):
            parts = of_topics([(led[step], {"partition_index": 0, "replicas": [two, one]})])
            sent.append((led[step], session.send(controller, request("AlterPartitionReassignments", topics=parts))))
        if step < len(old):
            body = request("DeleteTopics", topic_names=[old[step]], timeout_ms=1_000)
            sent.append((old[step], session.send(controller, body)))
        await session.sleep(max(0, began_ms + 30 * (step + 1) - session.now_ms))
    await session.stopped()
    answered = {topic: _succeeded(await pending) for topic, pending in sent}
    targets: dict[str, tuple[int, ...]] = {topic: (two,) if n % 2 else (one, two) for n, topic in enumerate(moved)}
    targets |= dict.fromkeys(led, (two, one))
    before: dict[str, tuple[int, ...]] = {**dict.fromkeys(moved, (one,)), **dict.fromkeys(led, (one, two))}
    for topic, wanted in targets.items():
        await session.until(partial(ongoing, session, topic), False, f"whether {topic} is being moved", ENDS_WITHIN_MS)
        allowed = {wanted} if answered[topic] else {wanted, before[topic]}
        (replicas,) = {tuple(part.replica_nodes) for part in (await session.metadata(topic)).partitions}
        session.expect(replicas in allowed, f"the replicas of {topic} are {replicas}, not {allowed}")
        found = [each.value for each in await session.read(topic)]
        session.equal(found, [b"v", b"w"], f"the records of {topic} after an interrupted reassignment")
    await session.returned()
    for topic in old:
        if answered[topic]:
            await session.until(partial(exists, session, topic), False, f"whether {topic} exists", ENDS_WITHIN_MS)
    for topic in targets:
        await session.healthy(topic)
        leader, _ = await settled(session, topic)
        session.expect(leader != away, f"broker {away}, which is no replica, leads {topic}")


@around_outage("ADM-34", "ADM-35", "ADM-36", "ADM-32", "CTL-5", "CTL-9")
async def moves_of_an_outage(session: Session) -> None:
    """During an outage a partition moves away from the broker and not to it; what it had left is deleted later."""
    away, (one, two) = session.victim, session.others
    leaves = await session.create_topic("leaves", assigned=[[away, one]])
    stays = await session.create_topic("stays", assigned=[[away, one, two]])
    only = await session.create_topic("only", assigned=[[away]], min_insync_replicas=1)
    models = {topic: await PartitionModel(session, topic).append(3) for topic in (leaves, stays, only)}
    await session.notice()
    await session.stopped()
    found = await reassign(session, stays, [one, away, two])
    session.error(found, (E.NONE, E.INVALID_REPLICA_ASSIGNMENT), "a reassignment that only changes the order")
    for target in ([away], [two, away]):
        error = await reassign(session, leaves, target)
        session.error(error, E.INVALID_REPLICA_ASSIGNMENT, f"a reassignment to {target} while {away} is away")
        session.equal(await ongoing(session, leaves), False, "whether a refused reassignment is listed")
    session.ok(await reassign(session, leaves, [two, one]), "a reassignment away from a broker that is away")
    await session.until(partial(_replicas, session, leaves), (two, one), "the replicas of a moved partition", SOON_MS)
    for topic, kind, error in (
        (stays, PREFERRED, E.PREFERRED_LEADER_NOT_AVAILABLE), (stays, UNCLEAN, E.ELECTION_NOT_NEEDED),
        (only, UNCLEAN, E.ELIGIBLE_LEADERS_NOT_AVAILABLE), (only, PREFERRED, E.PREFERRED_LEADER_NOT_AVAILABLE),
    ):  # fmt: skip
        if topic == stays and found == E.NONE and kind == PREFERRED:
            continue
        session.error(await elect(session, topic, kind), error, f"an election of type {kind} in {topic}")
    for topic in (leaves, stays):
        await models[topic].append(2)
    await session.returned()
    for topic, model in models.items():
        await session.healthy(topic)
        await model.check_content()
    await session.until(partial(holders, session, leaves), {one, two}, f"the brokers with data of {leaves}", SOON_MS)
    session.equal(await session.leader(only), away, f"the leader of {only}")
    await models[only].append()
    leader, epoch = await settled(session, stays)
    if found == E.INVALID_REPLICA_ASSIGNMENT:
        session.expect(leader != away, "a broker leads again without an election")
        session.ok(await elect(session, stays, PREFERRED), "a preferred election after the outage")
        leads = partial(session.leader_at, stays, one)
        await session.until(leads, away, "the leader after a preferred election", SOON_MS)
        session.expect((await settled(session, stays))[1] > epoch, f"an election does not begin an epoch after {epoch}")


async def _replicas(session: Session, topic: str) -> tuple[int, ...]:
    return tuple((await session.known(topic)).replica_nodes)


# -- descriptions ------------------------------------------------------------------------------------------------------


@around_outage("MD-5", "MD-6", "MD-12", "MD-13", "MD-19", "ADM-38", "ADM-40", "ADM-16")
async def descriptions_of_an_outage(session: Session) -> None:
    """Every broker describes the others as they are: who is there, leads, is in sync and offline."""
    away, (one, two) = session.victim, session.others
    placed = [[away, one], [one, away], [two, one]]
    topic = await session.create_topic("seen", assigned=placed, min_insync_replicas=1, max_message_bytes=5_000)
    only = await session.create_topic("only", assigned=[[away]], min_insync_replicas=1, max_message_bytes=5_000)
    racks = dict(zip(session.brokers, session.cluster.settings.racks, strict=True))
    before = [part.leader_epoch for part in (await _parts(session, topic, one))]
    await session.notice()
    await session.stopped()
    await set_topic(session, only, max_message_bytes=6_000)
    here = [(one, {one}, {away}), (one, {one}, {away}), (two, {one, two}, set[int]())]
    for broker_id in session.others:
        brokers, controller = await _brokers(session, broker_id)
        session.equal(brokers, {each: racks[each] for each in session.others}, "the brokers during an outage")
        session.expect(controller in session.others, f"the controller during an outage is {controller}")
        await _seen(session, topic, broker_id, here, placed)
        await _seen(session, only, broker_id, [(-1, {away}, {away})], [[away]])
        data = (await session.ask(broker_id, fetch_request(only, {0: 0}))).responses[0].partitions[0]
        session.error(data.error_code, (E.NOT_LEADER_OR_FOLLOWER, E.LEADER_NOT_AVAILABLE), "Fetch without a leader")
    await session.returned()
    await session.healthy(topic, 3)
    await session.healthy(only)
    for broker_id in session.brokers:
        brokers, _ = await _brokers(session, broker_id)
        session.equal(brokers, racks, f"the brokers after an outage at broker {broker_id}")
        after = [(one, {away, one}, set[int]()), (one, {away, one}, set[int]()), (two, {one, two}, set[int]())]
        await _seen(session, topic, broker_id, after, placed)
        await _seen(session, only, broker_id, [(away, {away}, set())], [[away]])
        epoch = (await _parts(session, topic, broker_id))[0].leader_epoch
        session.expect(epoch > before[0], "the leader epoch after its leader was away is the old one")
        found = await described(session, only, "max.message.bytes", broker_id=broker_id)
        session.equal(found, ["6000"], f"a setting that was changed during the outage at broker {broker_id}")
    answer = await session.produce(only, build_batch([record(b"x" * 5_500)]))
    session.ok(answer.error_code, "a batch of the size that was allowed while its leader was away")


Seen = list[tuple[int, set[int], set[int]]]


async def _seen(session: Session, topic: str, broker_id: int, expected: Seen, placed: list[list[int]]) -> None:
    """Compare leader, ISR and offline replicas in Metadata and DescribeTopicPartitions, and the replicas."""
    page = await session.ask(broker_id, request("DescribeTopicPartitions", topics=[{"name": topic}]))
    for parts in (await _parts(session, topic, broker_id), page.topics[0].partitions):
        found = [(part.leader_id, set(part.isr_nodes), set(part.offline_replicas)) for part in parts]
        session.equal(found, expected, f"leader, ISR and offline replicas of {topic} at broker {broker_id}")
        session.equal([list(part.replica_nodes) for part in parts], placed, f"the replicas of {topic}")
        errors = [int(E.LEADER_NOT_AVAILABLE) if leader < 0 else 0 for leader, *_ in expected]
        session.equal([part.error_code for part in parts], errors, f"the errors of the partitions of {topic}")


async def _parts(session: Session, topic: str, broker_id: int) -> list[Any]:
    parts = (await session.metadata(topic, broker_id)).partitions
    return sorted(parts, key=lambda each: int(each.partition_index))


async def _brokers(session: Session, broker_id: int) -> tuple[dict[int, str], int]:
    """Return the brokers with their racks, and the controller, if Metadata and DescribeCluster are the same."""
    known = await session.ask(broker_id, request("Metadata", topics=[]))
    cluster = await session.ask(broker_id, request("DescribeCluster"))
    found = {each.node_id: each.rack for each in known.brokers}
    session.equal({each.broker_id: each.rack for each in cluster.brokers}, found, "the brokers in DescribeCluster")
    session.equal(cluster.controller_id, known.controller_id, "the controller in DescribeCluster")
    return found, int(known.controller_id)


@around_outage("FET-33", "FET-41", "FET-42", "FET-43", "REP-25")
async def racks_of_an_outage(session: Session) -> None:
    """A consumer is sent to the replica in its rack exactly while that is in sync."""
    away = session.victim
    racks = dict(zip(session.brokers, session.cluster.settings.racks, strict=True))
    leader = next(each for each in session.others if racks[each] != racks[away])
    (third,) = [each for each in session.others if each != leader]
    topic = await session.create_topic("racks", assigned=[[leader, away]], min_insync_replicas=1)
    await session.values(topic, b"v", b"w")
    await session.sleep(600)
    await _sent(session, topic, racks[away], leader, 0, away)
    await session.notice()
    await session.stopped()
    for offset in (0, 1, 2):
        await _sent(session, topic, racks[away], leader, offset, -1)
        await _sent(session, topic, "nowhere", leader, offset, -1)
    await session.values(topic, b"x")
    await session.returned()
    await session.healthy(topic)
    await session.sleep(600)
    for offset in (0, 2):
        await _sent(session, topic, racks[away], leader, offset, away)
    answer = await session.ask(away, fetch_request(topic, {0: 0}, rack_id=racks[away]))
    session.ok(answer.responses[0].partitions[0].error_code, "a Fetch at the follower after the outage")
    answer = await session.ask(third, fetch_request(topic, {0: 0}, rack_id=racks[away]))
    session.error(
        answer.responses[0].partitions[0].error_code, E.NOT_LEADER_OR_FOLLOWER, "a Fetch at a broker without a replica"
    )


async def _sent(session: Session, topic: str, rack: str, leader: int, offset: int, expected: int) -> None:
    answer = await session.ask(leader, fetch_request(topic, {0: offset}, rack_id=rack, max_wait_ms=0))
    data = answer.responses[0].partitions[0]
    session.ok(data.error_code, f"a Fetch at {offset} from rack {rack!r}")
    session.equal(data.preferred_read_replica, expected, f"the preferred replica at {offset} for rack {rack!r}")


# -- records -----------------------------------------------------------------------------------------------------------


@around_outage("IDM-2", "IDM-5", "IDM-8", "PRD-39", "REP-24", "LST-1", "IDM-14")
async def producers_of_an_outage(session: Session) -> None:
    """Each leader in turn repeats no batch, skips no sequence, and describes the same producers."""
    away, (one, two) = session.victim, session.others
    topic = await session.create_topic("idem", assigned=[[away, one, two]], segment_bytes=session.one_of(300, 4_096))
    models = [IdempotentModel(session, topic, await producer_id(session)) for _ in range(2)]
    for model in models:
        await model.append(1, 2, 1)
    models[1].bump()
    await models[1].append(2)
    await session.notice()
    session.send(away, _produce(topic, models[0].batch(models[0].next_sequence, 1)), 9, 9_000)
    await session.stopped()
    for model in models:
        await model.repeat(1)
        await model.refused(model.next_sequence + 5, 1, E.OUT_OF_ORDER_SEQUENCE_NUMBER, "a batch that skips sequences")
    await models[0].append(1)  # it may be the one that was sent before
    await models[1].append(2)
    await models[1].refused(9, 1, (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED), "an older epoch", epoch=0)
    written = [each.value for each in await session.read(topic)]
    session.equal(len(written), 4 + 1 + 4 + 2 + 2, "the number of records, each batch of which was sent once or twice")
    before = await described_producers(session, topic)
    await session.returned()
    await session.healthy(topic)
    session.equal([each.value for each in await session.read(topic)], written, "the records after an outage")
    session.ok(await elect(session, topic, PREFERRED), "a preferred election after the outage")
    await session.until(partial(session.leader_at, topic, one), away, "the leader after the election", SOON_MS)
    session.look_again()
    session.equal(await described_producers(session, topic), before, "the producers that the former leader describes")
    for model in models:
        await model.repeat(1)
        await model.append(1)


def _produce(topic: str, batch: bytes) -> Any:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    return request("Produce", acks=-1, timeout_ms=6_000, topic_data=data)


@around_outage("ADM-6", "FET-44", "LST-8", "REP-4", "REP-23", "FET-16")
async def log_starts_of_an_outage(session: Session) -> None:
    """What is deleted while a broker is away does not return with it, neither by DeleteRecords nor by retention."""
    away, (one, two) = session.victim, session.others
    topics = [
        await session.create_topic(name, assigned=[[away, one, two]], segment_bytes=300) for name in ("cut", "old")
    ]
    cut, old = [await PartitionModel(session, topic).append(6) for topic in topics]
    await session.notice()
    await session.stopped()
    await cut.append(4)
    cut.start = cut.end - 1 - session.draw(3)
    session.equal(await delete_records(session, cut.topic, cut.start), (E.NONE, cut.start), "DeleteRecords")
    await set_topic(session, old.topic, retention_bytes=300, retention_ms=HOUR_MS)
    first = old.start

    async def has_expired() -> bool:
        return await session.offset(old.topic, EARLIEST) > first

    await session.until(has_expired, True, "whether retention deletes records during an outage", SOON_MS)
    await session.sleep(400)
    old.start = await session.offset(old.topic, EARLIEST)
    await session.returned()
    for model in (cut, old):
        await session.healthy(model.topic)
        session.ok(await elect(session, model.topic, PREFERRED), "a preferred election after the outage")
        await session.until(partial(session.leader_at, model.topic, one), away, "the leader after it", SOON_MS)
        session.look_again()
        session.expect(await session.offset(model.topic, EARLIEST) >= model.start, "deleted records have returned")
        session.equal(await session.offset(model.topic, LATEST), model.end, "the log end after an outage")
    await cut.check()

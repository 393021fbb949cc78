"""Probes of Fetch: limits and waits over several partitions, old versions, sessions that move, followers."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.requests import fetch_request, request
from highwater.fuzz.simulator.probes.client.session import READ_COMMITTED, E, Session, delivered, sizes_of
from highwater.fuzz.simulator.probes.client.transactional import Transactional, TransactionLog, finish, write
from highwater.fuzz.simulator.probes.fetch import IN_RACK_B, SessionModel
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.parts import shuffled
from highwater.fuzz.simulator.probes.records import PartitionModel
from highwater.fuzz.simulator.probes.topics import delete
from highwater.reference.wire.log_entries import decode_entry, entries

ON_ONE: Final = [[1, 2, 3]]
TIMES_SINCE: Final = 2
WAIT_MS: Final = 1_200
SOON_MS: Final = 150
VERIFIER: Final = -2
"""Replica id of ReplicaVerificationTool, which reads every replica to its end (FetchRequest.DEBUGGING_CONSUMER_ID)."""


async def _at_once(session: Session, body: Any, what: str, version: int = -1) -> Any:
    """Return the answer to a Fetch that has nothing to wait for."""
    began_ms = session.now_ms
    answer = await session.ask(1, body, version)
    took_ms = session.now_ms - began_ms
    session.expect(took_ms < SOON_MS, f"{what} is answered after {took_ms} ms")
    return answer


@fields("FET-2", "FET-3", "FET-27", "FET-29", "FET-30")
async def fetches_of_several_partitions(session: Session) -> None:
    """min_bytes counts all partitions, errors and nothing are answered at once, and the first batch is whole."""
    topic = await session.create_topic("several", assigned=ON_ONE * 4)
    models = [await PartitionModel(session, topic, number).append(2) for number in range(4)]
    sizes = [sum(batch.size for batch in model.batches) for model in models]
    ends = {model.number: model.end for model in models}
    waits: dict[str, Any] = {"max_wait_ms": WAIT_MS}
    for chosen in ((0, 1), (2, 3, 0), (1, 2, 3, 0), (3,)):
        total = sum(sizes[number] for number in chosen)
        wanted = dict.fromkeys(chosen, 0) | {n: ends[n] for n in range(4) if n not in chosen}
        answer = await _at_once(
            session,
            fetch_request(topic, wanted, min_bytes=total, **waits),
            f"a Fetch with min_bytes {total} in {chosen}",
        )
        session.equal(sum(sizes_of(answer).values()), total, f"the bytes of a Fetch of {chosen}")
    epoch = (await session.known(topic)).leader_epoch
    for of_one, error in (
        ({"fetch_offset": ends[2] + 9}, E.OFFSET_OUT_OF_RANGE), ({"fetch_offset": -1}, E.OFFSET_OUT_OF_RANGE),
        ({"fetch_offset": ends[2], "current_leader_epoch": epoch + 1}, E.UNKNOWN_LEADER_EPOCH),
        ({"partition": 44, "fetch_offset": 0}, E.UNKNOWN_TOPIC_OR_PARTITION),
    ):  # fmt: skip
        asked: list[dict[str, Any]] = [{"partition": n, "fetch_offset": ends[n]} for n in (0, 1)]
        asked.insert(session.draw(3), {"partition": 2, **of_one})
        parts = [{"partition_max_bytes": 1_000, **each} for each in asked]
        body = request("Fetch", topics=[{"topic": topic, "partitions": parts}], max_bytes=9_999, min_bytes=1, **waits)
        answer = await _at_once(session, body, f"a Fetch with {error.name} in one partition")
        errors = {part.error_code for part in answer.responses[0].partitions} - {0}
        session.equal(errors, {error}, f"the errors of a Fetch with {of_one}")
    await _at_once(session, fetch_request(topic, {}, min_bytes=1, **waits), "a Fetch without partitions")
    for first in range(4):  # the first partition that has records returns a whole batch, whatever precedes it
        order = [(first + n) % 4 for n in range(4)]
        wanted = {number: 0 if number == first else ends[number] for number in reversed(order)}
        body = fetch_request(topic, wanted, {"partition_max_bytes": 1}, min_bytes=1, **waits)
        sizes_found = sizes_of(await _at_once(session, body, "a Fetch with partition_max_bytes 1"))
        expected = models[first].batches[0].size
        session.equal(sizes_found[first], expected, f"the bytes of partition {first} with partition_max_bytes 1")


@fields("FET-17", "FET-38", "TXN-5")
async def old_versions(session: Session) -> None:
    """Every version of Fetch returns the records of transactions, and no marker to clients that know none."""
    log = TransactionLog(session, await session.create_topic("old"))
    producer = await Transactional(session).begin()
    for commit in (True, False, True):
        await write(producer, [log], b"v", 2)
        await finish(producer, [log], commit=commit)
    await log.check()
    for version in range(13):
        values: list[tuple[Any, ...]] = []
        position = 0
        while position < log.end:
            body = fetch_request(log.topic, {0: position})
            answer = await session.ask_leader(log.topic, 0, body, version)
            data = answer.responses[0].partitions[0]
            session.ok(data.error_code, f"Fetch {version} at {position}")
            content = bytes(data.records or b"")
            before = position
            if version < 4:
                found = [r for at, _ in entries(content) for r in decode_entry(content, at)[1]]
                found = [each for each in found if each.offset >= position]
                position = max([position, *(each.offset + 1 for each in found)])
            else:
                found, position = delivered(data, position, read_committed=False)
            values += [(each.offset, _time_in(version, each.timestamp), each.key, each.value) for each in found]
            if position == before:
                break
        expected = [(each.offset, _time_in(version, each.timestamp), each.key, each.value) for each in log.records]
        session.equal(values, expected, f"offsets, times, keys and values of Fetch {version}")


def _time_in(version: int, timestamp: int) -> int:
    """Return the time of a record in a version of Fetch: messages of magic 0 have none (KIP-32)."""
    return timestamp if version >= TIMES_SINCE else -1


@fields("FET-6", "FET-33", "TXN-7")
async def readers_of_followers(session: Session) -> None:
    """A follower returns no record to read_committed that the leader hides, and lists the same aborted transactions."""
    log = TransactionLog(session, await session.create_topic("follow", assigned=ON_ONE))
    first, second = [await Transactional(session, f"t{n}").begin() for n in range(2)]
    for step in range(4):
        await write(first, [log], b"first", 2)
        if step % 2:
            await write(second, [log], b"second", 1)
        await session.sleep(350)  # the follower learns of the high watermark
        await _read_at_follower(session, log)
        await finish(first, [log], commit=bool(session.draw(2)))
        if second.written and session.draw(2):
            await finish(second, [log], commit=False)
    await session.sleep(350)
    await _read_at_follower(session, log)


async def _read_at_follower(session: Session, log: TransactionLog) -> None:
    await log.check()
    for isolation in (0, READ_COMMITTED):
        body = fetch_request(log.topic, {0: 0}, rack_id="b", isolation_level=isolation)
        data = (await session.ask(IN_RACK_B, body)).responses[0].partitions[0]
        session.ok(data.error_code, "Fetch at a follower")
        found, _ = delivered(data, 0, read_committed=bool(isolation))
        visible = [r for r in log.records if not isolation or (r.offset < log.stable and r.offset not in log.aborted)]
        expected = [(each.offset, each.value) for each in visible]
        what = f"the records of a follower with isolation level {isolation}"
        session.equal([(each.offset, each.value) for each in found], expected, what)
    for version in (10, 12):
        body = fetch_request(log.topic, {0: 0}, replica_id=VERIFIER)
        data = (await session.ask(IN_RACK_B, body, version)).responses[0].partitions[0]
        session.ok(data.error_code, f"Fetch {version} at a follower, by the tool that compares replicas")
        offsets = [each.offset for each in delivered(data, 0, read_committed=False)[0]]
        expected_offsets = [each.offset for each in log.records]
        session.equal(offsets, expected_offsets, "the offsets of a follower for the tool that compares replicas")


@fields("FET-15", "FET-33", "FET-41", "FET-42", "FET-43")
async def racks_of_readers(session: Session) -> None:
    """A reader is sent to a replica in its rack that has the offset, unless the leader is in that rack."""
    racks = dict(zip(session.brokers, session.cluster.settings.racks, strict=True))
    topic = await session.create_topic("racks", assigned=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    pairs = await session.create_topic("pairs", assigned=[[1, 3], [2, 1], [3, 2]])
    for name in (topic, pairs):
        for number in range(3):
            await session.values(name, b"v", b"w", partition=number)
    await session.sleep(600)  # the leaders learn how far the followers are
    for name in (topic, pairs):
        for part in (await session.metadata(name)).partitions:
            for rack in ("a", "b", "", "nowhere"):
                leads = rack in {"", racks[part.leader_id]}
                allowed = set() if leads else {each for each in part.replica_nodes if racks[each] == rack}
                for offset in (0, 2):
                    body = fetch_request(name, {part.partition_index: offset}, rack_id=rack)
                    data = (await session.ask(part.leader_id, body, session.one_of(11, 12))).responses[0].partitions[0]
                    session.ok(data.error_code, f"Fetch at {offset} from rack {rack!r}")
                    what = f"the preferred replica of {part.replica_nodes}, led by {part.leader_id}, for rack {rack!r}"
                    found = data.preferred_read_replica
                    session.expect(found in (allowed or {-1}), f"{what} is {found}, not one of {allowed}")
                    session.equal(
                        bool(data.records), not allowed and offset == 0, f"whether there are records beside {what}"
                    )


# -- sessions ----------------------------------------------------------------------------------------------------------


@fields("FET-22", "FET-24", "FET-27")
async def moving_sessions(session: Session) -> None:
    """A session serves each partition with its newest offset and limit, forward and backward."""
    topic = await session.create_topic("moving", assigned=ON_ONE * 3)
    model = SessionModel(session, topic, 3)
    for number in (0, 1, 2) * 4:
        await model.append(number)
    await model.fetch(dict(model.offsets))
    await model.fetch(dict(model.ends))
    for _ in range(6):
        await model.fetch()
        back = {session.draw(3) for _ in range(1 + session.draw(2))}
        await model.fetch({number: session.draw(model.ends[number]) for number in back})
        await model.fetch({number: model.ends[number] for number in back})
    await _limits(session, model, topic)


async def _limits(session: Session, model: SessionModel, topic: str) -> None:
    """Name a partition with other limits: the newest one applies, also to the requests that do not name it."""
    one = sizes_of(await session.ask(1, fetch_request(topic, {0: 0}, {"partition_max_bytes": 1})))[0]
    for limit, expected in ((1, one), (2 * one, 2 * one), (1 << 20, 4 * one), (3 * one, 3 * one)):
        body = fetch_request(
            topic, {0: 0}, {"partition_max_bytes": limit}, session_id=model.id, session_epoch=model.epoch
        )
        for again in (body, fetch_request(topic, {}, session_id=model.id)):
            answer = await session.ask(1, _with_epoch(again, model.epoch))
            session.ok(answer.error_code, "an incremental Fetch")
            model.epoch += 1
            session.equal(
                sizes_of(answer).get(0), expected, f"the bytes in a session after partition_max_bytes {limit}"
            )


def _with_epoch(body: Any, epoch: int) -> Any:
    return replace(body, session_epoch=epoch)


class TopicsSession(SessionModel):
    """A model of a session with partitions of several topics."""

    def __init__(self, session: Session, places: Sequence[tuple[str, int]]) -> None:
        super().__init__(session, "", len(places))
        self._places = places

    def place(self, number: int) -> tuple[str, int]:
        return self._places[number]


@fields("FET-22", "FET-24")
async def sessions_of_several_topics(session: Session) -> None:
    """One request of a session adds, moves and forgets partitions of several topics."""
    topics = [await session.create_topic(name, assigned=ON_ONE * 3) for name in ("x", "y", "z")]
    places = [(topic, number) for topic in topics for number in range(3)]
    model = TopicsSession(session, places)
    await model.fetch(dict(model.offsets))
    for step in range(8):
        forgotten = [n for n in model.offsets if session.draw(3) == 0 or step == 7]
        for number in range(len(places)):
            if session.draw(3) == 0:
                await model.append(number)
        left = [n for n in model.offsets if n not in forgotten]
        moved = {n: session.draw(model.ends[n] + 1) for n in left if session.draw(2)}
        added = {n: model.ends[n] for n in range(len(places)) if n not in model.offsets and session.draw(2)}
        await model.fetch({n: moved.get(n, added.get(n, 0)) for n in shuffled(session, [*moved, *added])}, forgotten)
        await model.fetch()


@fields("FET-22", "ADM-20")
async def sessions_of_deleted_topics(session: Session) -> None:
    """A session that had a partition before its topic was deleted and created again notices its new records."""
    topic = await session.create_topic("again", assigned=ON_ONE)
    other = await session.create_topic("other", assigned=ON_ONE)
    await session.values(other, b"v")
    asked = [{"topic": name, "partitions": [{"partition": 0, "partition_max_bytes": 9_999}]} for name in (topic, other)]
    answer = await session.ask(1, request("Fetch", max_bytes=9_999, topics=asked, session_epoch=0))
    epoch, session_id = 1, answer.session_id
    await delete(session, topic)
    await session.create_topic("again", assigned=ON_ONE)
    asked = [{"topic": other, "partitions": [{"partition": 0, "fetch_offset": 1, "partition_max_bytes": 9_999}]}]
    for count in range(3):
        if count:
            asked = [
                {"topic": topic, "partitions": [{"partition": 0, "fetch_offset": count, "partition_max_bytes": 9_999}]}
            ]
        body = partial(request, "Fetch", max_bytes=9_999, session_id=session_id, min_bytes=1)
        await session.ask(1, body(topics=asked, session_epoch=epoch, max_wait_ms=0))
        pending = session.send(1, body(session_epoch=epoch + 1, max_wait_ms=WAIT_MS))
        epoch += 2
        await session.sleep(60)
        await session.values(topic, b"new %d" % count)
        sent_ms = session.now_ms
        answer = await pending
        session.ok(answer.error_code, "a Fetch in a session")
        took_ms = session.now_ms - sent_ms
        session.expect(
            took_ms < SOON_MS, f"a session notices record {count} of a topic created again after {took_ms} ms"
        )

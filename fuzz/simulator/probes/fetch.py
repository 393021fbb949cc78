"""Probes of Fetch and OffsetForLeaderEpoch: waits, leader epochs, sessions, racks."""

from collections.abc import Sequence
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.node import Needs, probe
from highwater.fuzz.simulator.probes.client.requests import (
    BIG,
    fetch_request,
    list_request,
    of_topics,
    produce_request,
    request,
)
from highwater.fuzz.simulator.probes.client.session import EARLIEST, LATEST, E, Session, record, sizes_of
from highwater.reference.wire.records import build_batch

ON_ONE: Final = [[1, 2, 3]]
TOLERANCE_MS: Final = 150
"""More than two messages and the work between them take."""
IN_RACK_B: Final = 2  # the racks are those of `swarm`


@probe("FET-1", "FET-2", "FET-28", "FET-29", "FET-30")
async def waits(session: Session) -> None:
    """A fetch waits for min_bytes, at most max_wait_ms, on every partition."""
    topic = await session.create_topic("waits", assigned=ON_ONE * 3)
    for min_bytes, number in ((1, 0), (1, 1), (1, 2), (120, 1)):
        body = fetch_request(topic, await _ends(session, topic, 3), max_wait_ms=2_000, min_bytes=min_bytes)
        began_ms, pending = session.now_ms, session.send(1, body)
        await session.sleep(200)
        await session.values(topic, b"v" * 150, partition=number)
        sent_ms, sizes = session.now_ms, sizes_of(await pending)
        took_ms = session.now_ms - sent_ms
        session.expect(took_ms < TOLERANCE_MS, f"a Fetch waits {took_ms} ms after the records")
        session.expect(session.now_ms - began_ms >= 200, "a Fetch does not wait for min_bytes")
        session.expect(sizes.get(number), f"the Fetch returns {sizes}, not partition {number}")
    ends = await _ends(session, topic, 3)
    for wait_ms, min_bytes, more, expected_ms in (
        (400, 1, {}, 400),
        (0, 1, {}, 0),
        (400, 0, {}, 0),
        (900, 1, {9: 0}, 0),
    ):
        began_ms = session.now_ms
        await session.ask(1, fetch_request(topic, ends | more, max_wait_ms=wait_ms, min_bytes=min_bytes))
        took_ms = session.now_ms - began_ms
        what = f"a Fetch with min_bytes {min_bytes}, max_wait_ms {wait_ms} and {more or 'no'} unknown partition"
        session.expect(expected_ms <= took_ms < expected_ms + TOLERANCE_MS, f"{what} takes {took_ms} ms")


async def _ends(session: Session, topic: str, count: int) -> dict[int, int]:
    return {n: await session.offset(topic, LATEST, n) for n in range(count)}


@probe("FET-1", "FET-28")
async def wait_with_a_trickle_of_records(session: Session) -> None:
    """Few records neither prolong nor end a wait for min_bytes."""
    topic = await session.create_topic("trickle", assigned=ON_ONE)
    began_ms = session.now_ms
    pending = session.send(1, fetch_request(topic, {0: 0}, max_wait_ms=600, min_bytes=100_000))
    for _ in range(12):
        await session.produce(topic, build_batch([record(b"v")]), acks=1)
        await session.sleep(60)
        if pending.done:
            break
    await pending
    took_ms = session.now_ms - began_ms
    session.expect(600 <= took_ms < 600 + TOLERANCE_MS + 80, f"a Fetch with max_wait_ms 600 takes {took_ms} ms")


# -- leader epochs ---------------------------------------------------------------------------------------------------


async def reassign(
    session: Session, topic: str, replicas: Sequence[int] | None, partitions: int = 1, **fields: Any
) -> int:
    """Return an error of a reassignment of the first partitions, 0 if there is none; None cancels."""
    parts = [(topic, {"partition_index": number, "replicas": replicas}) for number in range(partitions)]
    answer = await session.ask_any(request("AlterPartitionReassignments", topics=of_topics(parts), **fields))
    session.ok(answer.error_code, "AlterPartitionReassignments")
    return max(int(part.error_code) for part in answer.responses[0].partitions)


async def elect(session: Session, topic: str, kind: int, partitions: int = 1) -> int:
    """Return the error of ElectLeaders for partition 0; the other first partitions are elected, too."""
    chosen = [{"topic": topic, "partitions": list(range(partitions))}]
    answer = await session.ask_any(
        request("ElectLeaders", election_type=kind, topic_partitions=chosen, timeout_ms=2_000)
    )
    return int(answer.replica_election_results[0].partition_result[0].error_code)


async def move_leader(session: Session, topic: str, replicas: Sequence[int], partitions: int = 1) -> None:
    """Make the first of the replicas the leader of all partitions, by a reassignment and a preferred election."""
    session.ok(await reassign(session, topic, replicas, partitions), f"a reassignment to {replicas}")

    async def assigned() -> set[tuple[int, ...]]:
        return {tuple(part.replica_nodes) for part in (await session.metadata(topic)).partitions}

    async def leaders() -> set[int]:
        await elect(session, topic, 0, partitions)
        known = [await session.metadata(topic, each) for each in session.brokers]
        return {int(part.leader_id) for each in known for part in each.partitions}

    await session.until(assigned, {tuple(replicas)}, f"the replicas of {topic}")
    await session.until(leaders, {replicas[0]}, f"the leader of {topic}")
    await session.healthy(topic, partitions)
    session.look_again()


async def epoch_end(session: Session, broker_id: int, topic: str, epoch: int, current: int) -> Any:
    """Return what OffsetForLeaderEpoch says."""
    part = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    body = request("OffsetForLeaderEpoch", topics=of_topics([(topic, part)], "topic"))
    return (await session.ask(broker_id, body)).topics[0].partitions[0]


@probe("FET-8", "FET-13", "LST-5", "LST-6", "LST-11", "LST-14", "REP-8", "REP-9")
async def leader_epochs(session: Session) -> None:
    """Requests with older and newer leader epochs, and where epochs end."""
    topic = await session.create_topic("epochs", assigned=ON_ONE)
    ends: list[tuple[int, int]] = []  # leader epoch and its end
    for replicas in ([1, 2, 3], [2, 1, 3], [3, 1, 2]):
        if ends:
            await move_leader(session, topic, replicas)
        await session.values(topic, b"v", b"w", *[b"x"] * session.draw(2))
        ends.append(((await session.known(topic)).leader_epoch, await session.offset(topic, LATEST)))
    leader, current = replicas[0], ends[-1][0]
    session.expect(ends[0][0] < ends[1][0] < current, f"the leader epochs are {ends}")
    for epoch, end in ends:
        found = await epoch_end(session, leader, topic, epoch, current)
        session.equal((found.error_code, found.leader_epoch, found.end_offset), (0, epoch, end), f"the end of {epoch}")
    found = await epoch_end(session, leader, topic, current + 1, current)
    session.equal((found.error_code, found.end_offset), (0, -1), "the end of an epoch that has not begun")
    older = dict.fromkeys(range(current), E.FENCED_LEADER_EPOCH)
    for sent, error in {**older, current + 1: E.UNKNOWN_LEADER_EPOCH, current: E.NONE}.items():
        errors = {
            (await session.fetch(topic, 0, epoch=sent)).error_code,
            (await epoch_end(session, leader, topic, ends[0][0], sent)).error_code,
            (await _list(session, leader, topic, LATEST, sent)).error_code,
        }
        what = f"Fetch, OffsetForLeaderEpoch and ListOffsets with leader epoch {sent} of {current}"
        session.equal(errors, {error}, f"the errors of {what}")
    for timestamp, expected in {EARLIEST: (0, ends[0][0]), LATEST: (ends[-1][1], current)}.items():
        listed = await _list(session, leader, topic, timestamp, current)
        session.equal((listed.offset, listed.leader_epoch), expected, f"offset and leader epoch of {timestamp}")
    for follower in replicas[1:]:
        listed, found = await _list(session, follower, topic), await epoch_end(session, follower, topic, ends[0][0], -1)
        errors = {listed.error_code, found.error_code}
        session.equal(errors, {E.NOT_LEADER_OR_FOLLOWER}, "the errors of a follower")
    (epoch, end), fields = ends[0], {"last_fetched_epoch": ends[0][0], "current_leader_epoch": current}
    answer = await session.ask(leader, fetch_request(topic, {0: end + 1}, fields))
    diverging = answer.responses[0].partitions[0].diverging_epoch
    session.equal((diverging.epoch, diverging.end_offset), (epoch, end), "the diverging epoch and its end")


async def _list(session: Session, broker_id: int, topic: str, timestamp: int = LATEST, epoch: int = -1) -> Any:
    answer = await session.ask(broker_id, list_request(topic, timestamp, epoch=epoch))
    return answer.topics[0].partitions[0]


# -- sessions --------------------------------------------------------------------------------------------------------


class SessionModel:
    """A model of one incremental fetch session: which partitions the next response contains (KIP-227)."""

    def __init__(self, session: Session, topic: str, partitions: int) -> None:
        self._session, self._topic = session, topic
        self.offsets = dict.fromkeys(range(partitions), 0)
        self.ends = dict.fromkeys(range(partitions), 0)
        self._known: dict[int, int] = {}  # the high watermark that the session has returned
        self.id = self.epoch = 0

    def place(self, number: int) -> tuple[str, int]:
        """Return topic and number of a partition of the model."""
        return self._topic, number

    async def send(self, named: dict[int, int] | None = None, forgotten: Sequence[int] = (), **fields: Any) -> Any:
        """Return the answer to a request of the session that names some partitions and forgets some."""
        asked = [
            (topic, {"partition": part, "fetch_offset": offset, "partition_max_bytes": BIG})
            for (topic, part), offset in ((self.place(n), offset) for n, offset in (named or {}).items())
        ]
        fields = {
            "session_id": self.id, "session_epoch": self.epoch, "max_bytes": BIG, "topics": of_topics(asked, "topic"),
            "forgotten_topics_data": of_topics(map(self.place, forgotten), "topic"), **fields,
        }  # fmt: skip
        return await self._session.ask(1, request("Fetch", **fields))

    async def append(self, number: int) -> None:
        """Append a record to a partition."""
        topic, part = self.place(number)
        await self._session.values(topic, b"v", partition=part)
        self.ends[number] += 1

    async def fetch(self, named: dict[int, int] | None = None, forgotten: Sequence[int] = ()) -> None:
        """Send the next request, and compare the partitions of the answer with the model."""
        for number in forgotten:
            del self.offsets[number]
            self._known.pop(number, None)
        self.offsets |= named or {}
        answer = await self.send(named, forgotten)
        self._session.ok(answer.error_code, f"Fetch with session epoch {self.epoch}")
        if self.epoch == 0:
            self._session.expect(answer.session_id > 0, "a full Fetch opens no session")
            self.id = answer.session_id
        elif not self.offsets:
            await self._end(answer)
            return
        self._session.equal(answer.session_id, self.id, "the session id")
        expected: dict[int, tuple[int, bool]] = {}
        for n, offset in self.offsets.items():
            if offset > self.ends[n]:
                expected[n] = E.OFFSET_OUT_OF_RANGE, False
            elif self.ends[n] > offset or self._known.get(n) != self.ends[n]:
                expected[n] = E.NONE, self.ends[n] > offset
        numbers = {self.place(n): n for n in self.ends}
        found = {
            numbers[t.topic, p.partition_index]: (p.error_code, bool(p.records))
            for t in answer.responses for p in t.partitions
        }  # fmt: skip
        self._session.equal(found, expected, f"error and presence of records with session epoch {self.epoch}")
        # After an error the partition is returned once more, even if nothing else has changed.
        self._known |= {n: -1 if error else self.ends[n] for n, (error, _) in expected.items()}
        self.epoch += 1

    async def _end(self, answer: Any) -> None:
        """A session without partitions ends (FetchManager.newContext); the next request is full."""
        found = answer.session_id, len(answer.responses)
        self._session.equal(found, (0, 0), "session id and topics of the answer that ends a session")
        self.epoch += 1
        gone = (await self.send()).error_code
        self._session.error(gone, E.FETCH_SESSION_ID_NOT_FOUND, "a Fetch in a session that had no partitions")
        self.id, self.epoch = 0, 0
        self._known.clear()


@probe("FET-9", "FET-21", "FET-22", "FET-23", "FET-24", "FET-25")
async def sessions(session: Session) -> None:
    """Walk through a fetch session: new records, errors, forgotten and added partitions, wrong epochs."""
    topic = await session.create_topic("session", assigned=ON_ONE * 5)
    model = SessionModel(session, topic, 5)
    await model.fetch(dict(model.offsets))
    for _ in range(8):
        for number in {session.draw(5) for _ in range(session.draw(3))}:
            await model.append(number)
        moved = {n: model.ends[n] for n in model.offsets if session.draw(2)}
        await model.fetch({n: end for n, end in moved.items() if end != model.offsets[n]})
    await _wrong_epochs(session, model)
    await model.fetch({3: model.ends[3] + 5})  # an error is returned until the client moves
    await model.fetch()
    await model.fetch({3: 0})
    await model.fetch(forgotten=[1, 2, 4])
    for number in range(5):
        await model.append(number)
    await model.fetch()
    await model.fetch({2: 0})
    for epoch in (0, -1):  # each ends the session, and 0 opens another
        session.ok((await model.send()).error_code, "an incremental Fetch")
        model.epoch += 1
        answer = await model.send({0: 0}, session_epoch=epoch)
        session.ok(answer.error_code, f"a Fetch with session epoch {epoch}")
        gone = await model.send()
        session.error(gone.error_code, E.FETCH_SESSION_ID_NOT_FOUND, f"a Fetch in a session that epoch {epoch} ended")
        model.id, model.epoch = answer.session_id, 1


async def _wrong_epochs(session: Session, model: SessionModel) -> None:
    for wrong in (model.epoch - 1, model.epoch + 1, max(1, model.epoch - 3)):
        answer = await model.send(session_epoch=wrong)
        what = f"session epoch {wrong} instead of {model.epoch}"
        session.error(answer.error_code, E.INVALID_FETCH_SESSION_EPOCH, what)


@probe("FET-27")
async def session_fairness(session: Session) -> None:
    """In a session with a small max_bytes partitions take turns (KIP-227)."""
    topic = await session.create_topic("turns", assigned=ON_ONE * 3)
    model = SessionModel(session, topic, 3)
    for number in range(3):
        await session.values(topic, *[b"v" * 100] * 8, partition=number)
    answer = await model.send({0: 0, 1: 0, 2: 0}, max_bytes=1)
    model.id = answer.session_id
    offsets, served = {0: 0, 1: 0, 2: 0}, set()
    for _ in range(6):
        model.epoch += 1
        got = [number for number, size in sizes_of(answer).items() if size]
        session.equal(len(got), 1, "the number of partitions with records for max_bytes 1")
        served.update(got)
        offsets[got[0]] += 1
        answer = await model.send({got[0]: offsets[got[0]]}, max_bytes=1)
        session.ok(answer.error_code, "an incremental Fetch")
    session.equal(served, {0, 1, 2}, "the partitions that six responses serve")


# -- racks -----------------------------------------------------------------------------------------------------------


async def _from_rack(session: Session, topic: str, rack: str, offset: int = 0, broker_id: int = 1) -> tuple[int, bool]:
    """Return the preferred replica, and whether there are records."""
    answer = await session.ask(broker_id, fetch_request(topic, {0: offset}, rack_id=rack))
    data = answer.responses[0].partitions[0]
    session.ok(data.error_code, f"a Fetch at {offset} from rack {rack!r}")
    return data.preferred_read_replica, bool(data.records)


@probe("FET-15", "FET-33", "FET-41", "FET-42", "FET-43", needs=Needs.ALONE)
async def racks(session: Session) -> None:
    """A consumer is sent to the replica in its rack, unless that lacks the offset, and from no replica in its rack."""
    topic = await session.create_topic("racks", assigned=ON_ONE)
    await session.values(topic, b"v")
    await session.sleep(600)
    for rack, preferred in (("", -1), ("a", -1), ("b", IN_RACK_B), ("nowhere", -1)):
        found = await _from_rack(session, topic, rack)
        session.equal(found, (preferred, preferred < 0), f"preferred replica and presence of records for rack {rack!r}")
    found = await _from_rack(session, topic, "b", 0, IN_RACK_B)
    session.equal(found, (-1, True), "the answer of the follower in the rack")
    await session.fault("pause", IN_RACK_B, for_ms=500)
    answer = await session.ask(1, produce_request(topic, {0: build_batch([record(b"w")])}, acks=1))
    session.ok(answer.responses[0].partition_responses[0].error_code, "acks=1 while a follower is paused")
    await session.sleep(30)
    found = await _from_rack(session, topic, "b", 2)
    session.equal(found[0], -1, "the preferred replica at an offset that the follower in the rack lacks")
    if session.cluster.controller() != IN_RACK_B:  # else the leader could not change the ISR meanwhile
        await _lagging(session, topic)


async def _lagging(session: Session, topic: str) -> None:
    """A replica that is alive, and out of sync, is preferred for no offset."""
    await session.healthy(topic)
    await session.sleep(300)
    session.equal((await _from_rack(session, topic, "b"))[0], IN_RACK_B, "the preferred replica before it lags")
    await session.fault("cut", IN_RACK_B, for_ms=2_200, of="brokers", direction="both")

    async def in_sync() -> bool:
        return IN_RACK_B in await session.isr(topic, 1)

    answer = await session.ask(1, produce_request(topic, {0: build_batch([record(b"x")])}, acks=1))
    session.ok(answer.responses[0].partition_responses[0].error_code, "acks=1 while a follower is cut off")
    await session.until(in_sync, False, "whether a follower that is cut off is in sync", 2_000)
    for offset in (0, 1, 2):
        found = await _from_rack(session, topic, "b", offset)
        session.equal(found[0], -1, f"the preferred replica at {offset} while that in the rack is out of sync")
    await session.healthy(topic)
    await session.sleep(300)
    session.equal((await _from_rack(session, topic, "b"))[0], IN_RACK_B, "the preferred replica when it has caught up")

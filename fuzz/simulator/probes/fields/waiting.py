"""Probes of how long a Fetch waits: a model of the bytes that it may return, by segments, limits and isolation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.requests import fetch_request, of_topics, request
from highwater.fuzz.simulator.probes.client.session import LATEST, READ_COMMITTED, E, Session, record, sizes_of
from highwater.fuzz.simulator.probes.client.transactional import Transactional
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.parts import shuffled
from highwater.reference.wire.records import build_batch

ON_ONE: Final = [[1, 2, 3]]
WAIT_MS: Final = 450
SOON_MS: Final = 150
OF_SEGMENT: Final = 3
"""Batches of a segment."""
HUGE: Final = 1 << 20


def _batch() -> bytes:
    return build_batch([record(b"v" * 40)])


SIZE: Final = len(_batch())


@dataclass
class WaitingModel:
    """A model of partitions with batches of one record and of one size, three of which fill a segment."""

    session: Session
    topic: str
    ends: list[int]
    stable: dict[int, int] = field(default_factory=dict)  # the last stable offset, where it is not the end

    async def append(self, number: int, count: int = 1) -> None:
        """Append batches to a partition."""
        for _ in range(count):
            answer = await self.session.produce(self.topic, _batch(), number)
            self.session.equal((answer.error_code, answer.base_offset), (0, self.ends[number]), "error and offset")
            self.ends[number] += 1

    def read(self, number: int, offset: int, limit: int) -> int:
        """Return the bytes that one Fetch returns of a partition: up to the end of the segment (FET-27)."""
        until = min(self.stable.get(number, self.ends[number]), (offset // OF_SEGMENT + 1) * OF_SEGMENT)
        return min(max(until - offset, 0), limit // SIZE) * SIZE

    def is_older(self, number: int, offset: int) -> bool:
        """Return whether the offset is in an older segment than the end of what can be read."""
        until = self.stable.get(number, self.ends[number])
        return offset < until and offset // OF_SEGMENT < (until - 1) // OF_SEGMENT

    def expected(
        self, asked: dict[int, int], limits: Sequence[int], min_bytes: int, max_bytes: int
    ) -> tuple[int, bool]:
        """Return the bytes of the answer, and whether it comes at once (ReplicaManager.fetchMessages, DelayedFetch)."""
        left, older = max_bytes, False
        for (number, offset), limit in zip(asked.items(), limits, strict=True):
            size = self.read(number, offset, min(limit, left))
            older |= size > 0 and self.is_older(number, offset)
            left -= size
        found = max_bytes - left
        return found, older or found >= min(min_bytes, max_bytes)


def _body(topic: str, asked: dict[int, int], limits: Sequence[int], **more: Any) -> Any:
    parts = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": limit}
        for (number, offset), limit in zip(asked.items(), limits, strict=True)
    ]
    return request("Fetch", **{"topics": of_topics([(topic, part) for part in parts], "topic"), **more})


@fields("FET-1", "FET-2", "FET-3", "FET-27", "FET-28", "FET-29", "FET-39")
async def waits_by_segments_and_limits(session: Session) -> None:
    """A Fetch waits exactly if it has fewer than min_bytes, or max_bytes if less, all in the newest segments."""
    topic = await session.create_topic("model", assigned=ON_ONE * 2, segment_bytes=OF_SEGMENT * SIZE)
    model = WaitingModel(session, topic, [0, 0])
    await model.append(0, 7)
    await model.append(1, 5)
    for _ in range(16):
        asked = {
            number: session.draw(model.ends[number] + 1) for number in shuffled(session, [0, 1])[: 1 + session.draw(2)]
        }
        limits = [SIZE * session.one_of(1, 2, 9) for _ in asked]
        min_bytes = session.one_of(1, SIZE, 2 * SIZE, 3 * SIZE, 4 * SIZE, HUGE)
        max_bytes = SIZE * session.one_of(1, 2, 4, 99)
        size, at_once = model.expected(asked, limits, min_bytes, max_bytes)
        body = _body(topic, asked, limits, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=WAIT_MS)
        began_ms = session.now_ms
        answer = await session.ask(1, body, session.one_of(4, 7, 11, 12))
        took_ms = session.now_ms - began_ms
        what = f"a Fetch of {asked} of {model.ends}: limits {limits}, min_bytes {min_bytes}, max_bytes {max_bytes}"
        session.equal(sum(sizes_of(answer).values()), size, f"the bytes of {what}")
        early, late = (0, SOON_MS) if at_once else (WAIT_MS, WAIT_MS + SOON_MS)
        session.expect(early <= took_ms < late, f"{what} takes {took_ms} ms, not {early} to {late}")
    await _ended_by_records(session, model)


async def _ended_by_records(session: Session, model: WaitingModel) -> None:
    """A Fetch that waits is answered with the record that makes its bytes enough, and not before."""
    for missing in (1, 2, 3):
        for beyond in (0, HUGE):  # min_bytes above max_bytes is the same as max_bytes
            asked, limits = dict(enumerate(model.ends)), [HUGE] * 2
            min_bytes, max_bytes = missing * SIZE + beyond, missing * SIZE
            body = _body(model.topic, asked, limits, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=3_000)
            pending = session.send(1, body, patience_ms=6_000)
            for step in range(missing):
                await session.sleep(SOON_MS)
                session.expect(not pending.done, f"a Fetch for {missing} batches is answered after {step}")
                await model.append(session.draw(2))
                if model.expected(asked, limits, min_bytes, max_bytes)[1]:
                    break
            began_ms = session.now_ms
            sizes = sizes_of(await pending)
            took_ms = session.now_ms - began_ms
            session.expect(took_ms < SOON_MS, f"a Fetch for {missing} batches is answered {took_ms} ms after the last")
            session.expect(sum(sizes.values()) > 0, "a Fetch that waited returns nothing")


@fields("FET-1", "FET-6", "FET-28", "TXN-7", "TXN-22")
async def waits_for_stable_records(session: Session) -> None:
    """A Fetch with read_committed counts what is below the last stable offset, and ends with the transaction."""
    topic = await session.create_topic("stable", assigned=ON_ONE)
    producer = await Transactional(session).begin()
    await session.values(topic, b"before" * 20)
    for commit in (True, False):
        start = await session.offset(topic, LATEST)
        await producer.added((topic, 0))
        await producer.write(topic, 0, b"v" * 100)
        waiting = {
            isolation: (session.now_ms, session.send(1, fetch_request(
                topic, {0: start}, isolation_level=isolation, min_bytes=1, max_wait_ms=3_000), patience_ms=6_000))
            for isolation in (0, READ_COMMITTED)
        }  # fmt: skip
        await session.sleep(SOON_MS)
        session.expect(waiting[0][1].done, "a Fetch with read_uncommitted waits beside records")
        session.expect(not waiting[1][1].done, "a Fetch with read_committed does not wait before the transaction ends")
        begun_ms = session.now_ms
        below = await session.ask(1, fetch_request(
            topic, {0: 0}, isolation_level=READ_COMMITTED, min_bytes=1 << 16, max_wait_ms=WAIT_MS))  # fmt: skip
        took_ms = session.now_ms - begun_ms
        session.expect(took_ms >= WAIT_MS, "read_committed counts the records of an open transaction")
        session.ok(below.responses[0].partitions[0].error_code, "Fetch")
        await producer.ended(commit=commit)
        ended_ms = session.now_ms
        data = (await waiting[1][1]).responses[0].partitions[0]
        session.ok(data.error_code, "a Fetch that waited for the end of a transaction")
        took_ms = session.now_ms - ended_ms
        session.expect(took_ms < 2 * SOON_MS, f"a Fetch is answered {took_ms} ms after the end of a transaction")
        aborted = [each.producer_id for each in data.aborted_transactions or ()]
        session.equal(aborted, [] if commit else [producer.producer], "the aborted transactions of a Fetch that waited")
        await session.until(partial(session.offset, topic, LATEST, 0, READ_COMMITTED), start + 2, "the stable offset")


# -- sessions ----------------------------------------------------------------------------------------------------------

AT: Final = 3
"""The broker whose session cache the probe fills: other probes have their sessions at broker 1."""
MOST_SESSIONS: Final = 40


async def _opened(session: Session, topic: str, session_id: int = 0, epoch: int = 0) -> Any:
    body = fetch_request(topic, {0: 0} if epoch < 1 else {}, session_id=session_id, session_epoch=epoch)
    return await session.ask(AT, body)


@fields("FET-9", "FET-21", "FET-25", "FET-26")
async def sessions_beyond_the_cache(session: Session) -> None:
    """When the cache has no room, a new client gets no session, and all records; no session in use is evicted."""
    topic = await session.create_topic("cache", assigned=[[AT, 1, 2]])
    await session.values(topic, b"v")
    opened: list[int] = []
    while len(opened) < MOST_SESSIONS:
        answer = await _opened(session, topic)
        session.expect(sizes_of(answer)[0] > 0, "a full Fetch returns no records")
        if answer.session_id == 0:
            break
        opened.append(answer.session_id)
    session.equal(len(set(opened)), len(opened), "the number of different sessions")
    session.expect(len(opened) < MOST_SESSIONS, f"the cache has room for more than {MOST_SESSIONS} sessions")
    epochs = dict.fromkeys(opened, 1)
    for session_id in shuffled(session, opened):
        answer = await _opened(session, topic, session_id, epochs[session_id])
        session.equal((answer.error_code, answer.session_id), (0, session_id), "error and id of a session in use")
        epochs[session_id] += 1
    closed = shuffled(session, opened)[:3]
    for session_id in closed:
        session.ok((await _opened(session, topic, session_id, -1)).error_code, "a Fetch that closes a session")
        gone = await _opened(session, topic, session_id, epochs[session_id])
        session.error(gone.error_code, E.FETCH_SESSION_ID_NOT_FOUND, "a Fetch in a closed session")
    again = [(await _opened(session, topic)).session_id for _ in range(len(closed) + 1)]
    session.equal([bool(each) for each in again], [True] * len(closed) + [False], "whether there is room again")
    for session_id in [*again[:-1], *(each for each in opened if each not in closed)]:
        await _opened(session, topic, session_id, -1)

"""Probes of limits: the largest and smallest legal value is accepted, the next one refused, wherever it can be sent."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import Group
from highwater.fuzz.simulator.probes.client.requests import request
from highwater.fuzz.simulator.probes.client.session import E, Session
from highwater.fuzz.simulator.probes.client.transactional import Transactional
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.offsets import all_committed, commit, committed_ok
from highwater.fuzz.simulator.probes.topics import exists

Ask = Callable[[int], Awaitable[int]]
METADATA_BYTES: Final = 4_096  # offset.metadata.max.bytes
NAME_CHARACTERS: Final = 249
SESSION_MS: Final = (500, 1_800_000)  # group.min.session.timeout.ms of the simulator, and group.max.session.timeout.ms
TRANSACTION_MS: Final = (1, 900_000)  # transaction.max.timeout.ms


async def largest(session: Session, ask: Ask, value: int, error: E, what: str) -> None:
    """Send a limit and the value above it."""
    session.ok(await ask(value), f"{what} {value}")
    session.error(await ask(value + 1), error, f"{what} {value + 1}")


async def smallest(session: Session, ask: Ask, value: int, error: E, what: str) -> None:
    """Send a limit and the value below it."""
    session.ok(await ask(value), f"{what} {value}")
    session.error(await ask(value - 1), error, f"{what} {value - 1}")


@fields("OFF-5", "TXN-10")
async def largest_metadata(session: Session) -> None:
    """Metadata of a committed offset has a limit in units of UTF-16, with and without a transaction."""
    topic = await session.create_topic("metadata")
    group = await Group.found(session)
    producer = await Transactional(session).begin()
    for character in ("m", "ü", "😀"):
        count = METADATA_BYTES // (len(character.encode("utf-16-le")) // 2)

        async def plain(size: int, character: str = character) -> int:
            return (await commit(group, {(topic, 0): size}, metadata=character * size))[topic, 0]

        async def transactional(size: int, character: str = character) -> int:
            part = {"partition_index": 0, "committed_offset": size, "committed_metadata": character * size}
            topics = [{"name": topic, "partitions": [part]}]
            return max(await producer.commit_offsets(group, {}, topics=topics))

        await largest(session, plain, count, E.OFFSET_METADATA_TOO_LARGE, "a commit with characters of metadata:")
        expected = {(topic, 0): (count, character * count, 0)}
        session.equal(await all_committed(group), expected, "the committed offset with the largest metadata")
        session.ok(await producer.add_offsets(group.name), "AddOffsetsToTxn")
        what = "a commit in a transaction with characters of metadata:"
        await largest(session, transactional, count, E.OFFSET_METADATA_TOO_LARGE, what)
        await producer.ended(commit=True)


@fields("MD-15", "ADM-1")
async def names_of_topics(session: Session) -> None:
    """A name has up to 249 characters, and no other topic has the same one with '.' for '_' or the reverse."""

    async def create(length: int) -> int:
        name = f"{session.name}-".ljust(length, "x")
        return int((await session.request_topic(name)).error_code)

    await largest(session, create, NAME_CHARACTERS, E.INVALID_TOPIC_EXCEPTION, "a topic whose characters are")
    for first, second in (("a.b", "a_b"), ("c_d.e", "c.d_e"), ("f_g_h", "f.g.h"), ("i_j", "i.j")):
        one, other = f"{session.name}-{first}", f"{session.name}-{second}"
        session.ok((await session.request_topic(one)).error_code, f"CreateTopics of {one}")
        await session.healthy(one)
        found = await session.request_topic(other)
        session.error(found.error_code, E.INVALID_TOPIC_EXCEPTION, f"CreateTopics of {other} beside {one}")
        session.expect(not await exists(session, other), f"{other} exists beside {one}")
    for illegal in ("", ".", "..", "a b", "a/b", "ü"):
        found = await session.request_topic(illegal)
        session.error(found.error_code, E.INVALID_TOPIC_EXCEPTION, f"CreateTopics of {illegal!r}")


@fields("GRP-3", "GRP-4")
async def session_timeouts(session: Session) -> None:
    """The session timeout of a member has a smallest and a largest value."""
    group = await Group.found(session)
    await committed_ok(group, {(await session.create_topic("keeps"), 0): 1})

    async def join(timeout_ms: int) -> int:
        member = group.member("a", session_ms=timeout_ms)
        answer = await member.begin_join()
        if answer.error_code == E.MEMBER_ID_REQUIRED:
            member.id = answer.member_id
            answer = await member.begin_join()
            await group.leave(member)
        return int(answer.error_code)

    await smallest(session, join, SESSION_MS[0], E.INVALID_SESSION_TIMEOUT, "a member with a session timeout of")
    await largest(session, join, SESSION_MS[1], E.INVALID_SESSION_TIMEOUT, "a member with a session timeout of")


@fields("TXN-3", "TXN-17", "TXN-26", "IDM-15")
async def fields_of_init_producer_id(session: Session) -> None:
    """The transaction timeout has limits, the newest one counts; producer id and epoch come together."""
    producer = Transactional(session)

    async def init(timeout_ms: int) -> int:
        producer.timeout_ms = timeout_ms
        error = int((await producer.init()).error_code)
        if not error:
            answer = await producer.ask("DescribeTransactions", transactional_ids=[producer.name])
            found = answer.transaction_states[0].transaction_timeout_ms
            session.equal(found, timeout_ms, "the timeout in DescribeTransactions after InitProducerId")
        return error

    await largest(session, init, TRANSACTION_MS[1], E.INVALID_TRANSACTION_TIMEOUT, "a transaction timeout of")
    await smallest(session, init, TRANSACTION_MS[0], E.INVALID_TRANSACTION_TIMEOUT, "a transaction timeout of")
    await init(50_000)
    for name in (None, producer.name):
        ask = partial(_init, session, producer, name)
        for number, epoch in ((5, -1), (-1, 0)):
            found = await ask(number, epoch)
            what = f"InitProducerId of {name} with producer id {number} and epoch {epoch}"
            session.error(found, E.INVALID_REQUEST, what)
    session.error(await _init(session, producer, "", -1, -1), E.INVALID_REQUEST, "an empty transactional id")
    await init(40_000)


async def _init(session: Session, producer: Transactional, name: str | None, number: int, epoch: int) -> int:
    body: dict[str, Any] = {"transactional_id": name, "producer_id": number, "producer_epoch": epoch}
    body["transaction_timeout_ms"] = 1_000
    if name:
        return int((await producer.ask("InitProducerId", **body)).error_code)
    return int((await session.ask_any(request("InitProducerId", **body))).error_code)

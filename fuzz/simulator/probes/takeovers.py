"""Probes of groups and transactions whose coordinator is away for a while, and of what the former one still says."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import Group, Member, beat, rebalancing, rejoin, stable, sync_all
from highwater.fuzz.simulator.probes.client.requests import errors_of, fetch_request, of_topics, request
from highwater.fuzz.simulator.probes.client.session import (
    GROUP,
    LATEST,
    READ_COMMITTED,
    TRANSACTION,
    E,
    Session,
)
from highwater.fuzz.simulator.probes.client.transactional import Transactional, TransactionLog, finish, write
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.offsets import all_committed, committed, committed_ok, expect_offsets
from highwater.fuzz.simulator.probes.outages import SOON_MS, around_outage
from highwater.fuzz.simulator.probes.restarts import LONG_SESSION_MS
from highwater.fuzz.simulator.probes.transactions import FENCED

TRIES: Final = 12
WAIT_MS: Final = 15_000
"""Longer than the outage."""
Sent = tuple[str, int, dict[str, Any]]


# -- requests to a broker that is not the coordinator ------------------------------------------------------------------


def _of_group(group: Group, topic: str) -> list[Sent]:
    """Return each request for the coordinator of a group, in its oldest and newest version."""
    name = {"group_id": group.name}
    member = {**name, "member_id": "m", "generation_id": 1}
    join = {
        **name, "session_timeout_ms": 6_000, "rebalance_timeout_ms": 6_000, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }  # fmt: skip
    part = {"partition_index": 0, "committed_offset": 77}
    topics = [{"name": topic, "partitions": [part]}]
    by = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, **name}
    found: list[Sent] = [
        (api, version, body)
        for api, body, versions in (
            ("JoinGroup", join, (0, 3, 9)), ("SyncGroup", member, (0, 4)), ("Heartbeat", member, (0, 4)),
            ("OffsetCommit", {**name, "topics": topics}, (2, 8)),
            ("DeleteGroups", {"groups_names": [group.name]}, (0, 2)),
            ("OffsetDelete", {**name, "topics": of_topics([(topic, {"partition_index": 0})])}, (0,)),
            ("DescribeGroups", {"groups": [group.name]}, (0, 5)), ("TxnOffsetCommit", {**by, "topics": topics}, (0, 3)),
            ("OffsetFetch", {**name, "topics": None}, (2, 7)),
            ("OffsetFetch", {"groups": [{"group_id": group.name, "topics": None}]}, (8,)),
            ("LeaveGroup", {**name, "member_id": "m"}, (0, 2)),
            ("LeaveGroup", {**name, "members": [{"member_id": "m", "group_instance_id": None}]}, (3, 5)),
        )
        for version in versions
    ]  # fmt: skip
    return found


def _of_producer(producer: Transactional, topic: str) -> list[Sent]:
    """Return each request for the coordinator of a transactional id."""
    by = {
        "transactional_id": producer.name, "producer_id": producer.producer, "producer_epoch": producer.epoch,
    }  # fmt: skip
    old = {f"v3_and_below_{name}": value for name, value in by.items()}
    topics = [{"name": topic, "partitions": [0]}]
    return [
        ("InitProducerId", 4, {**by, "transaction_timeout_ms": 9_000}), ("EndTxn", 3, {**by, "committed": True}),
        ("InitProducerId", 0, {"transactional_id": producer.name, "transaction_timeout_ms": 9_000}),
        ("AddOffsetsToTxn", 3, {**by, "group_id": "any"}), ("EndTxn", 5, {**by, "committed": False}),
        ("AddPartitionsToTxn", 3, {**old, "v3_and_below_topics": topics}),
        ("AddPartitionsToTxn", 4, {"transactions": [{**by, "verify_only": False, "topics": topics}]}),
        ("AddPartitionsToTxn", 5, {"transactions": [{**by, "verify_only": True, "topics": topics}]}),
        ("DescribeTransactions", 0, {"transactional_ids": [producer.name]}),
    ]  # fmt: skip


async def refused_at(session: Session, broker_id: int, sent: Iterable[Sent]) -> None:
    """A broker that is not the coordinator refuses each request (GRP-1, TXN-21)."""
    for api, version, body in sent:
        errors = errors_of(await session.ask(broker_id, request(api, **body), version)) - {0}
        session.equal(
            errors, {E.NOT_COORDINATOR}, f"the errors of {api} {version} at a broker that is not the coordinator"
        )


async def listed_once(session: Session, groups: Iterable[Group], producers: Iterable[Transactional]) -> None:
    """Each group and each transaction is listed by its coordinator, and by no other broker (GRP-20, TXN-18)."""
    expected = {(each.name, await session.coordinator(each.name, GROUP)) for each in groups}
    expected |= {(each.name, await session.coordinator(each.name, TRANSACTION)) for each in producers}
    names, found = {name for name, _ in expected}, set()
    for broker_id in session.brokers:
        listed = [each.group_id for each in (await session.ask(broker_id, request("ListGroups"))).groups]
        open_ones = (await session.ask(broker_id, request("ListTransactions"))).transaction_states
        listed += [each.transactional_id for each in open_ones]
        found |= {(name, broker_id) for name in listed if name in names}
    session.equal(found, expected, "which broker lists which group and transaction")


@fields("GRP-1", "GRP-20", "OFF-2", "TXN-18", "TXN-21", "FLD-7", "FLD-8")
async def requests_to_other_brokers(session: Session) -> None:
    """Each request for a coordinator is refused by the others, in every state, and changes nothing."""
    topic = await session.create_topic("elsewhere")
    group, empty = await Group.found(session), await Group.found(session, "empty")
    member = group.member(topic)
    await stable(group, member)
    for each, by in ((group, member), (empty, None)):
        await committed_ok(each, {(topic, 0): 5}, by)
    producer = await Transactional(session).begin()
    await producer.added((topic, 0))
    await producer.write(topic, 0, b"v")
    coordinator = await session.coordinator(producer.name, TRANSACTION)
    for broker_id in session.brokers:
        for each in (group, empty):
            if broker_id != each.coordinator:
                await refused_at(session, broker_id, _of_group(each, topic))
        if broker_id != coordinator:
            await refused_at(session, broker_id, _of_producer(producer, topic))
    await listed_once(session, (group, empty), (producer,))
    await beat([member])
    for each in (group, empty):
        await expect_offsets(each, {(topic, 0): 5})
    session.equal(await _state(producer), "Ongoing", "the state of a transaction after requests to other brokers")
    await producer.ended(commit=True)


async def _state(producer: Transactional) -> str:
    """Return the state of a transaction."""
    answer = await producer.ask("DescribeTransactions", transactional_ids=[producer.name])
    return str(answer.transaction_states[0].transaction_state)


# -- a coordinator that is away ----------------------------------------------------------------------------------------


async def _group_at(session: Session, broker_id: int, suffix: str) -> Group:
    """Return a group whose coordinator is a broker, if one of some names has it, else another one."""
    for number in range(TRIES):
        group = await Group.found(session, f"{suffix}{number}")
        if group.coordinator == broker_id:
            break
    return group


async def _producer_at(session: Session, broker_id: int, suffix: str, *, v2: bool = False) -> Transactional:
    """Return a transactional producer whose coordinator is a broker, if one of some names has it."""
    for number in range(TRIES):
        producer = Transactional(session, f"{suffix}{number}", v2=v2)
        if await session.coordinator(producer.name, TRANSACTION) == broker_id:
            break
    return await producer.begin()


@around_outage("GRP-1", "GRP-10", "GRP-14", "GRP-20", "GRP-27", "OFF-3", "OFF-11", "OFF-22")
async def groups_of_an_outage(session: Session) -> None:
    """Another coordinator continues a group as it was stored, and the former one knows nothing of it any more."""
    away = session.victim
    topic = await session.create_topic("groups")
    group, left, waiting, simple = [
        await _group_at(session, away, name) for name in ("stable", "left", "waiting", "simple")
    ]
    members, gone, slow = _members(group, topic), _members(left, topic), _members(waiting, topic)
    await stable(group, *members)
    given = await stable(group, *members)
    await committed_ok(group, {(topic, 0): 5}, members[0])
    await stable(left, *gone)
    await committed_ok(left, {(topic, 0): 6}, gone[0])
    await left.leave(*gone)
    await stable(waiting, *slow)
    for offset in (9, 4):
        await committed_ok(simple, {(topic, 0): offset})
    await session.notice()
    pending = sorted(slow, key=lambda each: not each.leads)[0].begin_join()
    await session.stopped()
    for each in (group, left, waiting, simple):
        await each.find()
        session.expect(each.coordinator != away, "a broker that is away is a coordinator")
    await _continues(group, members, given, topic)
    await left.state("Empty")
    await committed_ok(left, {(topic, 0): 16})
    await beat(gone, E.UNKNOWN_MEMBER_ID)
    if away not in {waiting.coordinator} and pending.done:
        await beat(slow)
    await expect_offsets(simple, {(topic, 0): 4})
    await session.returned()
    every = (group, left, waiting, simple)
    for each in every:
        await each.find()
        if each.coordinator != away:
            await refused_at(session, away, _of_group(each, topic))
    await listed_once(session, every, ())
    await beat(members)
    await expect_offsets(group, {(topic, 0): 15})
    await expect_offsets(left, {(topic, 0): 16})
    session.ok(await left.delete(), "DeleteGroups of a group that all members left before an outage")
    session.equal((await all_committed(left)), {}, "the offsets of a deleted group")


def _members(group: Group, topic: str) -> list[Member]:
    """Return a dynamic and a static member with long timeouts."""
    return [
        group.member(topic, session_ms=LONG_SESSION_MS, rebalance_ms=LONG_SESSION_MS, instance=name)
        for name in (None, "fixed")
    ]


async def _continues(group: Group, members: list[Member], given: dict[str, bytes], topic: str) -> None:
    """Members, generation, assignments and offsets are those before the outage; then a rebalance succeeds."""
    session, generation = group.session, members[0].generation
    await beat(members)
    for member in members:
        await member.synced(given[member.id])
    session.equal(
        await committed(group, [(topic, 0)]), {(topic, 0): (5, 0)}, "the offset that the next coordinator has"
    )
    new = group.member(topic, session_ms=LONG_SESSION_MS, rebalance_ms=LONG_SESSION_MS)
    await new.take_id()
    joining = new.begin_join()
    await session.sleep(100)
    await rebalancing(members)
    session.equal(await group.leave(new), [0], "the error of LeaveGroup")
    session.error((await joining).error_code, E.UNKNOWN_MEMBER_ID, "JoinGroup of a member that left")
    await rejoin(*sorted(members, key=lambda each: not each.leads))
    await sync_all(members)
    session.expect(members[0].generation > generation, "the generation does not rise with the next coordinator")
    await committed_ok(group, {(topic, 0): 15}, members[0])


@around_outage("TXN-2", "TXN-8", "TXN-14", "TXN-17", "TXN-18", "TXN-21", "TXN-22", "TXN-27", "TXN-28", "TXN-31")
async def transactions_of_an_outage(session: Session) -> None:
    """Another coordinator continues each transaction, and the former one does not list them any more."""
    away, (one, two) = session.victim, session.others
    topic = await session.create_topic("txn", assigned=[[one, two], [two, one]])
    logs = [TransactionLog(session, topic, number) for number in (0, 1)]
    open_one, second, ended = [
        await _producer_at(session, away, name, v2=name != "open") for name in ("open", "second", "ended")
    ]
    short = Transactional(session, "short", timeout_ms=2_500)
    await short.begin()
    await write(open_one, logs[:1], b"open", 2)
    await write(second, logs[1:], b"second", 2)
    await write(ended, logs[1:], b"ended", 1)
    before = ended.epoch
    await finish(ended, logs, commit=True)
    late = await session.create_topic("late", assigned=[[one, two]])
    await short.added((late, 0))
    await short.write(late, 0, b"v")
    states = [await _state(each) for each in (open_one, second, ended)]
    await session.notice()
    ending = second.session.send(away, _end(second), 5, 3_000)
    await session.stopped()
    session.equal(states[:2], ["Ongoing"] * 2, "the states of open transactions")
    session.equal(await _state(open_one), "Ongoing", "the state of a transaction that another coordinator continues")
    answer = await ended.end(commit=True, producer_epoch=before)
    found = answer.error_code, answer.producer_epoch
    session.equal(found, (0, ended.epoch), "the answer to an EndTxn that is repeated at another coordinator")
    await write(open_one, logs[:1], b"more", 1)
    await finish(open_one, logs, commit=bool(session.draw(2)))
    again = await second.end(commit=True)
    session.ok(again.error_code, "EndTxn that is repeated after an outage of the coordinator")
    logs[1].marked(second, [(topic, 1, each) for each in logs[1].records], commit=True)

    async def end() -> int:
        found = await session.offset(late, LATEST, 0, READ_COMMITTED)
        return min(found, 2)  # if the timeout came first, each of two coordinators may have written a marker

    await session.until(end, 2, "the end after a timeout", 5_000)
    session.error((await short.end(commit=True)).error_code, FENCED, "EndTxn after the timeout")
    for log in logs:
        await log.check()
    await session.returned()
    every = (open_one, second, ended, short)
    for each in every:
        if await session.coordinator(each.name, TRANSACTION) != away:
            await refused_at(session, away, _of_producer(each, topic))
    await listed_once(session, (), every)
    for log in logs:
        await log.check()
    await open_one.begin()
    await write(open_one, logs, b"next", 1)
    await finish(open_one, logs, commit=True)
    for log in logs:
        await log.check()
    session.expect(ending.done, "a request that was sent before the outage is neither answered nor given up")


def _end(producer: Transactional) -> Any:
    return request(
        "EndTxn", transactional_id=producer.name, producer_id=producer.producer, producer_epoch=producer.epoch,
        committed=True,
    )  # fmt: skip


@around_outage("OFF-7", "OFF-11", "OFF-14", "OFF-16", "TXN-10", "TXN-20")
async def pending_offsets_of_an_outage(session: Session) -> None:
    """Offsets of open transactions stay pending with the next coordinator of the group, and are as they end."""
    topic = await session.create_topic("pending", 3)
    group = await _group_at(session, session.victim, "pending")
    await committed_ok(group, {(topic, number): 5 for number in range(3)})
    producers = [await Transactional(session, f"p{n}", v2=bool(n)).begin() for n in range(2)]
    for number, producer in enumerate(producers):
        await producer.committed_offsets(group, {(topic, number): 70 + number})
    await session.notice()
    await session.stopped()
    await group.find()
    keys = [(topic, number) for number in range(3)]
    unstable, plain = (-1, int(E.UNSTABLE_OFFSET_COMMIT)), (5, 0)
    found = await committed(group, keys, stable=True)
    session.equal(
        found, dict(zip(keys, (unstable, unstable, plain), strict=True)), "the stable offsets of the next one"
    )
    session.equal(await committed(group, keys), dict.fromkeys(keys, plain), "the offsets that the next coordinator has")
    await producers[0].ended(commit=True)
    await committed_ok(group, {(topic, 2): 3})
    first = {keys[0]: (70, 0), keys[1]: unstable, keys[2]: (3, 0)}
    await session.until(partial(committed, group, keys, stable=True), first, "the offsets after one ended", SOON_MS)
    await session.returned()
    await group.find()
    session.equal(await committed(group, keys, stable=True), first, "the offsets after the outage")
    await producers[1].ended(commit=False)
    last = {**first, keys[1]: plain}
    await session.until(partial(committed, group, keys, stable=True), last, "the offsets after both ended", SOON_MS)


@around_outage("FET-30", "GRP-1", "GRP-9", "PRD-39", "REP-7")
async def waits_of_an_outage(session: Session) -> None:
    """A request that waits at a broker while others take over gets an error that says so, or no answer."""
    away, (one, two) = session.victim, session.others
    topic = await session.create_topic("waits", assigned=[[away, one, two]])
    group = await _group_at(session, away, "waits")
    members = _members(group, topic)
    await stable(group, *members)
    leader = next(each for each in members if each.leads)
    await session.notice()
    # Version 10 is not served by followers, as newer ones are (KIP-392).
    body = fetch_request(topic, {0: 0}, max_wait_ms=WAIT_MS, min_bytes=1)
    fetching = session.send(away, body, 10, WAIT_MS)
    joining = leader.begin_join()
    await session.stopped()
    await session.values(topic, b"written to the next leader")
    await session.returned()
    await session.sleep(300)
    for pending, moved, what in (
        (fetching, E.NOT_LEADER_OR_FOLLOWER, "a Fetch at a former leader"),
        (joining, E.NOT_COORDINATOR, "JoinGroup at a former coordinator"),
    ):
        if pending is joining and group.coordinator != away:
            continue
        session.expect(pending.done, f"{what} waits on")
        answer = await pending
        errors = set() if answer is None else errors_of(answer) - {0}
        session.expect(answer is None or errors == {moved}, f"{what} is answered with the errors {errors}")
    session.equal([each.value for each in await session.read(topic)], [b"written to the next leader"], "the records")

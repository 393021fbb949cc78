"""Probes of reassignments and elections: replicas, leader, leader epoch and listing, and what is refused."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from highwater.fuzz.simulator.probes.client.requests import of_topics, request
from highwater.fuzz.simulator.probes.client.session import E, Session
from highwater.fuzz.simulator.probes.fetch import elect, reassign
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.parts import shuffled
from highwater.fuzz.simulator.probes.records import PartitionModel
from highwater.fuzz.simulator.probes.topics import PREFERRED, delete, ongoing, replicas_at

Refused = tuple[str, int, Sequence[int] | None, E]
ENDS_WITHIN_MS: Final = 4_000


async def _leaders(session: Session, topic: str) -> set[tuple[int, int]]:
    """Return leader and leader epoch as each broker knows them."""
    known = [await session.known(topic, broker_id) for broker_id in session.brokers]
    return {(part.leader_id, part.leader_epoch) for part in known}


async def settled(session: Session, topic: str) -> tuple[int, int]:
    """Return leader and leader epoch when every broker knows the same."""

    found: set[tuple[int, int]] = set()

    async def count() -> int:
        found.clear()
        found.update(await _leaders(session, topic))
        return len(found)

    await session.until(count, 1, f"the number of different leaders and epochs of {topic}", 2_000)
    return found.pop()


@fields("ADM-34", "ADM-36", "CTL-6", "CTL-9", "ADM-32")
async def leaders_after_reassignments(session: Session) -> None:
    """A reassignment keeps a leader that is one of the new replicas, and else moves to one of them, in a new epoch."""
    topic = await session.create_topic("leads", assigned=[[1, 2]])
    model = await PartitionModel(session, topic).append(3)
    for _ in range(4):
        leader, epoch = await settled(session, topic)
        count = 1 + session.draw(3)
        target = shuffled(session, session.brokers)[:count]
        session.ok(await reassign(session, topic, target), f"a reassignment to {target}")
        replicas = partial(replicas_at, session, topic)
        await session.until(replicas, {(tuple(target), True)}, f"the replicas of {topic}", ENDS_WITHIN_MS)
        await session.until(
            partial(ongoing, session, topic), False, "whether the reassignment is listed", ENDS_WITHIN_MS
        )
        await session.healthy(topic)
        session.look_again()
        now_leader, now_epoch = await settled(session, topic)
        what = f"a reassignment from leader {leader} to {target}"
        expected = {leader} if leader in target else set(target)
        session.expect(now_leader in expected, f"the leader after {what} is {now_leader}")
        session.expect(now_epoch >= epoch, f"the leader epoch after {what} is {now_epoch}, before it {epoch}")
        if leader != now_leader:
            session.expect(now_epoch > epoch, f"{what} changes the leader within epoch {epoch}")
        await model.append()
        await _preferred(session, topic, target[0])
    await model.check_content()


async def _preferred(session: Session, topic: str, first: int) -> None:
    """A preferred election makes the first replica the leader, in a new epoch, and another one changes nothing."""
    leader, epoch = await settled(session, topic)
    if session.draw(3) == 0:
        return
    expected = E.ELECTION_NOT_NEEDED if leader == first else E.NONE
    session.error(await elect(session, topic, PREFERRED), expected, f"an election of {first} instead of {leader}")

    async def is_first() -> bool:
        found = await _leaders(session, topic)  # the last step of a reassignment may begin another epoch, too
        return all(leads == first and now >= epoch + (leader != first) for leads, now in found)

    await session.until(is_first, True, f"whether {first} leads in an epoch after {epoch}", 1_500)
    session.error(await elect(session, topic, PREFERRED), E.ELECTION_NOT_NEEDED, "a second election")
    session.look_again()


@fields("ADM-35", "ADM-36", "ADM-45", "FLD-10", "ADM-17")
async def refused_reassignments(session: Session) -> None:
    """Each partition of a request is moved or refused by itself; what is refused leaves no reassignment behind."""
    topic, other = await session.create_topic("parts", assigned=[[1, 2]] * 9), await session.create_topic("other")
    bad = E.INVALID_REPLICA_ASSIGNMENT
    asked: list[Refused] = [
        (topic, 0, [2, 1], E.NONE), (topic, 1, [1, 9], bad), (topic, 2, [9], bad), (topic, 3, [1, 1], bad),
        (topic, 4, [], bad), (topic, 5, None, E.NO_REASSIGNMENT_IN_PROGRESS), (topic, 6, [-1, 1], bad),
        (topic, 7, [1, 3], E.NONE), (topic, 77, [1, 2], E.UNKNOWN_TOPIC_OR_PARTITION),
        (f"{topic}-none", 0, [1], E.UNKNOWN_TOPIC_OR_PARTITION), (other, 0, [9, 8, 7], bad),
        (f"{topic}-none", 1, None, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]  # fmt: skip
    order = shuffled(session, asked)
    parts = [(name, {"partition_index": number, "replicas": target}) for name, number, target, _ in order]
    answer = await session.ask_any(request("AlterPartitionReassignments", topics=of_topics(parts)))
    session.ok(answer.error_code, "AlterPartitionReassignments")
    found = {(t.name, p.partition_index): p.error_code for t in answer.responses for p in t.partitions}
    expected = {(name, number): int(error) for name, number, _, error in asked}
    session.equal(found, expected, "the errors of a request with good and bad reassignments")
    targets = {number: target for name, number, target, error in asked if name == topic and error is E.NONE}
    session.equal(await ongoing(session, other), False, "whether a refused reassignment is listed")
    wanted = [tuple(targets.get(number) or (1, 2)) for number in range(9)]

    async def replicas() -> list[tuple[int, ...]]:
        known = (await session.metadata(topic)).partitions
        return [tuple(each.replica_nodes) for each in sorted(known, key=lambda p: int(p.partition_index))]

    await session.until(replicas, wanted, "the replicas of each partition", ENDS_WITHIN_MS)
    await session.until(partial(ongoing, session, topic), False, "whether reassignments are listed", ENDS_WITHIN_MS)
    body = request("CreatePartitions", topics=[{"name": topic, "count": 10, "assignments": None}], timeout_ms=2_000)

    async def grown() -> int:
        return int((await session.ask_any(body)).results[0].error_code)

    await session.until(grown, E.NONE, "CreatePartitions after refused reassignments", ENDS_WITHIN_MS)
    await delete(session, topic)

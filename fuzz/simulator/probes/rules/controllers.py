"""Probes of what a controller has begun and its successor, or a newer request, continues."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from highwater.fuzz.simulator.probes.alone import alone, became_complete
from highwater.fuzz.simulator.probes.client.requests import of_topics, request
from highwater.fuzz.simulator.probes.client.session import E, Session
from highwater.fuzz.simulator.probes.records import PartitionModel
from highwater.fuzz.simulator.probes.topics import are_replicas, exists, holders, ongoing

AWAY_MS: Final = 4_500
SOON_MS: Final = 2_500
CUT_MS: Final = 1_800
Listed = tuple[frozenset[int], frozenset[int], frozenset[int]]


async def _listing(session: Session, topics: Sequence[str]) -> dict[str, Listed]:
    """Return all replicas, those added and those removed, of each reassignment of these topics."""
    answer = await session.ask_any(request("ListPartitionReassignments", topics=None))
    return {
        each.name: (frozenset(p.replicas), frozenset(p.adding_replicas), frozenset(p.removing_replicas))
        for each in answer.topics for p in each.partitions if each.name in topics
    }  # fmt: skip


def _expected(original: Sequence[int], target: Sequence[int]) -> Listed:
    """Return what is listed of a reassignment that waits (ADM-37)."""
    return frozenset([*original, *target]), frozenset(target) - {*original}, frozenset(original) - {*target}


async def _reassign_all(session: Session, targets: dict[str, list[int] | None]) -> None:
    """Request the reassignments together, or their cancellations: each must be accepted."""
    parts = [(topic, {"partition_index": 0, "replicas": target}) for topic, target in targets.items()]
    answer = await session.ask_any(request("AlterPartitionReassignments", topics=of_topics(parts)))
    errors = {each.name: part.error_code for each in answer.responses for part in each.partitions}
    session.equal(errors, dict.fromkeys(targets, 0), f"the errors of reassignments to {list(targets.values())}")


async def _replicas(session: Session, topics: Sequence[str]) -> dict[str, tuple[int, ...]]:
    return {topic: tuple((await session.known(topic)).replica_nodes) for topic in topics}


@alone("ADM-34", "ADM-36", "ADM-37", "ADM-45", "CTL-5", "CTL-9")
async def reassignments_that_wait(session: Session) -> None:
    """A reassignment to a stopped broker is listed the same by the next controller, and can be replaced or cancelled.

    A newer request, or a cancellation, takes effect before the stopped broker returns.
    """
    controller = session.cluster.controller()
    away, other = [each for each in session.brokers if each != controller][:: session.one_of(1, -1)]
    kinds: list[tuple[list[int], list[int], list[int] | None]] = [
        ([other], [other, away], None), ([other, controller], [other, away], None),
        ([other, controller], [away, other], [controller, other]), ([controller], [controller, away], [other]),
        ([controller], [away], [other, controller]), ([other], [away, other], [away, other]),
    ]  # fmt: skip
    topics = [await session.create_topic(assigned=[original]) for original, *_ in kinds]
    models = [await PartitionModel(session, topic).append(2) for topic in topics]
    await session.fault("kill", away, for_ms=AWAY_MS)
    session.brokers = [controller, other]
    await _reassign_all(session, {topic: target for topic, (_, target, _) in zip(topics, kinds, strict=True)})
    listed = {topic: _expected(original, target) for topic, (original, target, _) in zip(topics, kinds, strict=True)}
    # No other replica of these topics stops: a new controller changes nothing else.
    for fails_over in (False, True) if session.draw(3) else (False,):
        if fails_over:
            await session.fault("depose", "controller")
            await session.sleep(600)
        what = f"the reassignments that wait{' after a failover of the controller' * fails_over}"
        await session.until(partial(_listing, session, topics), listed, what, SOON_MS)
    await _reassign_all(
        session, {t: newer for t, (_, target, newer) in zip(topics, kinds, strict=True) if newer != target}
    )
    final = {topic: tuple(newer or original) for topic, (original, _, newer) in zip(topics, kinds, strict=True)}
    soon = {topic: replicas for topic, replicas in final.items() if away not in replicas}
    what = "the replicas after reassignments were replaced or cancelled"
    await session.until(partial(_replicas, session, [*soon]), soon, what, SOON_MS)
    session.brokers = session.cluster.broker_ids
    for topic, model in zip(topics, models, strict=True):
        await became_complete(session, topic)
        await session.until(partial(ongoing, session, topic), False, f"whether {topic} is being moved", 6_000)
        await are_replicas(session, topic, list(final[topic]))
        await (await model.append()).check_content()


@alone("ADM-4", "ADM-20", "CTL-7", "CTL-8")
async def deletions_that_wait(session: Session) -> None:
    """A deletion that waits for a broker is completed by the next controller, and then the name is free."""
    controller = session.cluster.controller()
    away, other = [each for each in session.brokers if each != controller][:: session.one_of(1, -1)]
    placed = [[away], [other, away], [controller, away, other]]
    topics = [await session.create_topic(assigned=[each]) for each in placed]
    for topic in topics:
        await session.values(topic, b"old")
    await session.fault("cut", away, for_ms=CUT_MS, of="brokers", direction="both")
    until_ms = session.now_ms + CUT_MS
    body = request("DeleteTopics", topic_names=topics, timeout_ms=100)
    answer = await session.ask(controller, body)
    errors = {each.error_code for each in answer.responses}
    session.equal(errors, {E.REQUEST_TIMED_OUT}, "the errors of DeleteTopics while a broker is cut off")
    await session.fault("depose", "controller")
    await session.sleep(until_ms - session.now_ms)
    for topic in topics:
        await session.until(partial(exists, session, topic), False, f"whether {topic} exists", 4_000)
        await session.until(partial(holders, session, topic), set(), f"the brokers with data of {topic}", 4_000)
    for topic, each in zip(topics, placed, strict=True):

        async def created(topic: str = topic, each: list[int] = each) -> int:
            return int((await session.request_topic(topic, assigned=[each])).error_code)

        await session.until(created, E.NONE, f"CreateTopics of {topic} after its deletion", SOON_MS)
        await became_complete(session, topic)
        session.equal(await session.read(topic), [], f"the records of {topic}, which was created again")

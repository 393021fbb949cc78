"""Probes of lists: each has exactly the topics, replicas, groups or transactions that pass its filters."""

import re
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import combinations
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import Group, join_all, stable
from highwater.fuzz.simulator.probes.client.node import Needs, probe
from highwater.fuzz.simulator.probes.client.requests import of_topics, request
from highwater.fuzz.simulator.probes.client.session import E, Session
from highwater.fuzz.simulator.probes.client.transactional import Transactional
from highwater.fuzz.simulator.probes.offsets import committed_ok
from highwater.fuzz.simulator.probes.records import HOUR_MS, PartitionModel

fields = partial(probe, needs=Needs.FIELDS)
Place = tuple[str, int]
ALL_VERSIONS: Final = (0, 1, 4, 8, 9, 12)
NO_CREATION_SINCE: Final = 4
RUNNING_MS: Final = 150
"""The open transactions have run for longer when they are listed."""
"""The first version of Metadata that can ask not to create a topic."""


# -- topics ----------------------------------------------------------------------------------------------------------


@fields("MD-1", "MD-2", "MD-10", "MD-16", "MD-18")
async def lists_of_topics(session: Session) -> None:
    """Metadata and DescribeTopicPartitions have each requested partition once, in every version and page size."""
    counts = {suffix: 1 + session.draw(4) for suffix in ("c", "a", "d", "b")}
    made = {await session.create_topic(suffix, count): count for suffix, count in counts.items()}
    unknown = f"{session.name}-bb"
    for version in ALL_VERSIONS:
        names = [session.one_of(*made) for _ in range(1 + session.draw(5))]
        names += [unknown] * session.draw(3) if version >= NO_CREATION_SINCE else []
        await _metadata(session, made, names, version)
    for _ in range(4):
        names = [session.one_of(unknown, *made) for _ in range(2 + session.draw(4))]
        await _pages(session, made, names, 1 + session.draw(5))
    await _pages(session, made, [unknown, *made], 1 + session.draw(3))


async def _metadata(session: Session, made: dict[str, int], names: Sequence[str], version: int) -> None:
    own = partial(_own, session)
    every = own([] if version == 0 else None, version)
    session.equal(await every, sorted(made.items()), f"the topics when Metadata {version} requests all")
    if version > 0:
        session.equal(await own([], version), [], f"the topics when Metadata {version} requests none")
    wanted = sorted((name, made.get(name, 0)) for name in set(names))
    session.equal(await own(names, version), wanted, f"the topics of Metadata {version} for {names}")


async def _own(session: Session, names: Sequence[str] | None, version: int) -> list[tuple[str, int]]:
    """Return the topics of this probe in Metadata, each with its number of partitions."""
    topics = None if names is None else [{"name": name} for name in names]
    body = request("Metadata", topics=topics, allow_auto_topic_creation=False)
    answer = await session.ask(session.one_of(*session.brokers), body, version)
    found = [(each.name, len({p.partition_index for p in each.partitions})) for each in answer.topics]
    return sorted(each for each in found if each[0].startswith(f"{session.name}-"))


async def _pages(session: Session, made: dict[str, int], names: Sequence[str], limit: int) -> None:
    """Follow the cursors from a drawn partition on: the pages have the rest, in the order of names and numbers."""
    every = [(name, number) for name in sorted(set(names)) for number in range(made.get(name, 0))]
    first = session.one_of(("", 0), *every)
    cursor: dict[str, Any] | None = None
    if first[0]:
        cursor = {"topic_name": first[0], "partition_index": first[1]}
    found: list[Place] = []
    for _ in range(len(every) + 1):
        body = request(
            "DescribeTopicPartitions", topics=[{"name": name} for name in names], cursor=cursor,
            response_partition_limit=limit,
        )  # fmt: skip
        answer = await session.ask(session.one_of(*session.brokers), body)
        page = [(each.name, p.partition_index) for each in answer.topics for p in each.partitions]
        session.expect(len(page) <= limit, f"a page of {limit} partitions has {page}")
        found += page
        if answer.next_cursor is None:
            break
        cursor = {
            "topic_name": answer.next_cursor.topic_name, "partition_index": answer.next_cursor.partition_index,
        }  # fmt: skip
    session.equal(found, [each for each in every if each >= first], f"the pages of {limit} from {first} for {names}")


@fields("ADM-31")
async def sizes_of_replicas(session: Session) -> None:
    """DescribeLogDirs has the requested replicas of a broker, each with the bytes of its batches."""
    placed = [[1, 2], [2, 3], [3, 1]]
    topic = await session.create_topic("sizes", assigned=placed, segment_bytes=session.one_of(300, 900))
    other = await session.create_topic("other", assigned=[[1, 2, 3]])
    models = [await PartitionModel(session, topic, number).append(6 + session.draw(6)) for number in range(3)]
    sizes = {(topic, model.number): sum(batch.size for batch in model.batches) for model in models} | {(other, 0): 0}
    chosen = [(topic, 2), (topic, 0), (topic, 7), (f"{topic}-none", 0)]
    for broker_id in session.brokers:
        here = {(topic, n) for n, replicas in enumerate(placed) if broker_id in replicas} | {(other, 0)}
        for wanted in (None, [], chosen, [(other, 0)]):
            expected = {place: sizes[place] for place in here if wanted is None or place in wanted}
            what = f"the sizes in DescribeLogDirs of {'all' if wanted is None else wanted} at broker {broker_id}"
            await session.until(partial(_sizes, session, broker_id, wanted), expected, what, 1_500)


async def _sizes(session: Session, broker_id: int, places: Iterable[Place] | None) -> dict[Place, int]:
    topics = None if places is None else of_topics(((t, n) for t, n in places), "topic")
    answer = await session.ask(broker_id, request("DescribeLogDirs", topics=topics))
    found = [
        (t.name, p.partition_index, p.partition_size) for r in answer.results for t in r.topics for p in t.partitions
    ]
    if places is None:
        found = [each for each in found if each[0].startswith(f"{session.name}-")]
    return {(name, number): size for name, number, size in found}


# -- groups ----------------------------------------------------------------------------------------------------------

STATES: Final = ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Dead")
TYPES: Final[tuple[tuple[str, ...], ...]] = ((), ("classic",), ("Classic",), ("consumer",), ("CONSUMER", "CLASSIC"))


@fields("GRP-20", "GRP-42", "GRP-48", "GRP-70")
async def lists_of_groups(session: Session) -> None:
    """ListGroups has the groups that pass both filters, at one broker each; DescribeGroups has them as they are."""
    topic = await session.create_topic("groups")
    standalone, former, active, waiting, joined, other = [
        await Group.found(session, name) for name in ("standalone", "former", "active", "waiting", "joined", "other")
    ]
    for group in (standalone, former):
        await committed_ok(group, {(topic, 0): 1})
    gone = former.member(topic)
    await stable(former, gone)
    await committed_ok(former, {(topic, 0): 2}, gone)
    await former.leave(gone)
    await stable(active, active.member(topic))
    await stable(other, other.member(topic, protocol_type="connect"))
    slow = [waiting.member(topic, rebalance_ms=20_000) for _ in range(2)]
    await stable(waiting, *slow)
    pending = sorted(slow, key=lambda each: not each.leads)[0].begin_join()
    await join_all([joined.member(topic, rebalance_ms=20_000)])
    model = {
        standalone.name: ("Empty", ""), former.name: ("Empty", "consumer"), active.name: ("Stable", "consumer"),
        other.name: ("Stable", "connect"), waiting.name: ("PreparingRebalance", "consumer"),
        joined.name: ("CompletingRebalance", "consumer"),
    }  # fmt: skip
    await session.sleep(100)
    for states in [(), *combinations(STATES, 1), *combinations(STATES, 2)]:
        await _listed(session, model, [session.one_of(s, s, s.lower()) for s in states], session.one_of(*TYPES))
    for types in TYPES:
        await _listed(session, model, [], types)
    await _described(session, [standalone, former, active, waiting, joined, other], model)
    await waiting.leave(*slow)
    await pending


async def _listed(
    session: Session, model: dict[str, tuple[str, str]], states: Collection[str], types: Collection[str]
) -> None:
    passes = not types or "classic" in {each.lower() for each in types}
    wanted = {each.lower() for each in states}
    expected = sorted((n, *each) for n, each in model.items() if passes and (not wanted or each[0].lower() in wanted))
    found = []
    for broker_id in session.brokers:
        answer = await session.ask(broker_id, request("ListGroups", states_filter=states, types_filter=types), 5)
        session.ok(answer.error_code, "ListGroups")
        found += [(g.group_id, g.group_state, g.protocol_type) for g in answer.groups if g.group_id in model]
    session.equal(sorted(found), expected, f"the groups with the states {states} and the types {types}")


async def _described(session: Session, groups: Sequence[Group], model: dict[str, tuple[str, str]]) -> None:
    for group in groups:
        unknown = f"{group.name}-none"
        answer = await session.ask(group.coordinator, request("DescribeGroups", groups=[group.name, unknown]))
        found = {g.group_id: (g.group_state, g.protocol_type) for g in answer.groups if g.error_code == E.NONE}
        found.pop(unknown, None)
        session.equal(found, {group.name: model[group.name]}, "the groups in DescribeGroups")


# -- transactions ----------------------------------------------------------------------------------------------------


@fields("TXN-17", "TXN-18")
async def lists_of_transactions(session: Session) -> None:
    """ListTransactions has the transactions that pass every filter; DescribeTransactions those that are named."""
    topic = await session.create_topic("txns")
    producers = [await Transactional(session, f"t{n}").begin() for n in range(5)]
    model: dict[str, tuple[int, str]] = {}
    for number, producer in enumerate(producers):
        if number:
            await producer.added((topic, 0))
            await producer.write(topic, 0, b"v")
        if number > 2:
            await producer.ended(commit=number == 3)
        state = ("Empty", "Ongoing", "Ongoing", "CompleteCommit", "CompleteAbort")[number]
        model[producer.name] = (producer.producer, state)
    await session.sleep(2 * RUNNING_MS)
    await producers[1].added((await session.create_topic("later"), 0))  # the transaction runs since it began
    ids = [each.producer for each in producers]
    name = session.name
    filters: list[dict[str, Any]] = [
        {"duration_filter": RUNNING_MS, "state_filters": ["Ongoing"]}, {}, {"state_filters": ["Ongoing"]},
        {"state_filters": ["Empty", "CompleteCommit"]},
        {"producer_id_filters": ids[1:2]}, {"producer_id_filters": [ids[4], ids[0], ids[2]]},
        {"producer_id_filters": ids[:3], "state_filters": ["CompleteAbort", "Ongoing"]},
        {"transactional_id_pattern": f"{name}-t[0-3]"}, {"transactional_id_pattern": "t[0-3]"},
        {"transactional_id_pattern": f"{name}-t"},
        {"transactional_id_pattern": ".*-t4", "producer_id_filters": ids[3:]},
        {"duration_filter": HOUR_MS},
        {"state_filters": ["Ongoing", "Gone"]}, {"state_filters": ["Gone"]},
    ]  # fmt: skip
    for chosen in filters:
        await _listed_transactions(session, model, chosen)
    for producer in producers:
        answer = await producer.ask("DescribeTransactions", transactional_ids=[producer.name])
        found = {t.transactional_id: (t.producer_id, t.transaction_state) for t in answer.transaction_states[:1]}
        session.equal(found, {producer.name: model[producer.name]}, "the transactions in DescribeTransactions")


async def _listed_transactions(session: Session, model: dict[str, tuple[int, str]], chosen: dict[str, Any]) -> None:
    states, ids = chosen.get("state_filters"), chosen.get("producer_id_filters")
    expected = sorted(
        (transactional, *each) for transactional, each in model.items()
        if (not states or each[1] in states) and (not ids or each[0] in ids)
        and _matches(transactional, each[1], chosen)
    )  # fmt: skip
    found = []
    for broker_id in session.brokers:
        answer = await session.ask(broker_id, request("ListTransactions", **chosen), 2)
        session.ok(answer.error_code, "ListTransactions")
        unknown = [state for state in states or () if state == "Gone"]
        session.equal(list(answer.unknown_state_filters), unknown, f"the unknown states of {states}")
        found += [(t.transactional_id, t.producer_id, t.transaction_state) for t in answer.transaction_states]
    session.equal(sorted(each for each in found if each[0] in model), expected, f"the transactions for {chosen}")


def _matches(transactional_id: str, state: str, chosen: dict[str, Any]) -> bool:
    """Return whether the pattern of the filter matches the whole id, and the duration is short enough.

    An id without a transaction began at -1, which any duration includes (TransactionStateManager).
    """
    pattern = chosen.get("transactional_id_pattern", ".*")
    is_long = state == "Empty" or chosen.get("duration_filter", 0) <= RUNNING_MS
    return re.fullmatch(pattern, transactional_id) is not None and is_long

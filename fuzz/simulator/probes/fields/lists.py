"""Probes of ListOffsets, DescribeConfigs and OffsetFetch with several entries, and of when a segment is closed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import Group
from highwater.fuzz.simulator.probes.client.requests import list_request, of_topics, request
from highwater.fuzz.simulator.probes.client.session import EARLIEST, LATEST, MAX_TIMESTAMP, E, Session, record
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.parts import shuffled
from highwater.fuzz.simulator.probes.offsets import committed_ok
from highwater.fuzz.simulator.probes.records import HOUR_MS
from highwater.fuzz.simulator.probes.topics import BROKER_RESOURCE
from highwater.fuzz.simulator.probes.trimming import TOPIC_RESOURCE

MINUTE_MS: Final = 60_000
ON_ONE: Final = [[1, 2, 3]]


# -- ListOffsets -------------------------------------------------------------------------------------------------------


@fields("LST-1", "LST-2", "LST-7", "LST-9", "LST-11", "LST-12", "LST-15", "LST-16", "FLD-6")
async def offsets_of_several_partitions(session: Session) -> None:
    """Each partition of a ListOffsets is answered by itself: empty, of other brokers, unknown or with an old epoch."""
    topic = await session.create_topic("list", assigned=[[1, 2, 3]] * 3 + [[2, 3, 1]], retention_ms=-1)
    times = [0, 5, session.wall_ms]
    for time_ms in times:
        await session.append(topic, [record(b"v", None, time_ms)], 1)
    epochs = {p.partition_index: p.leader_epoch for p in (await session.metadata(topic)).partitions}
    found = {
        EARLIEST: {0: (0, -1), 1: (0, -1), 2: (0, -1)}, LATEST: {0: (0, -1), 1: (3, -1), 2: (0, -1)},
        0: {0: (-1, -1), 1: (0, 0), 2: (-1, -1)}, 1: {0: (-1, -1), 1: (1, 5), 2: (-1, -1)},
        times[2] + 1: {0: (-1, -1), 1: (-1, -1), 2: (-1, -1)},
        MAX_TIMESTAMP: {0: (-1, -1), 1: (2, times[2]), 2: (-1, -1)},
    }  # fmt: skip
    for timestamp, expected in found.items():
        for version in (1, 2, 4, 7) if timestamp != MAX_TIMESTAMP else (7,):
            asked = {number: {"timestamp": timestamp, "current_leader_epoch": -1} for number in (0, 1, 2, 3, 9)}
            if version >= 4:
                asked[2]["current_leader_epoch"] = epochs[2] + 1
            order = shuffled(session, list(asked))
            parts = [(topic, {"partition_index": number, **asked[number]}) for number in order]
            parts.append((f"{topic}-none", {"partition_index": 0, "timestamp": timestamp}))
            body = request("ListOffsets", replica_id=-1, isolation_level=session.draw(2), topics=of_topics(parts))
            answer = await session.ask(1, body, version)
            errors = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
            wanted = {(topic, number): 0 for number in (0, 1, 2)} | {(topic, 3): int(E.NOT_LEADER_OR_FOLLOWER)}
            wanted |= {(topic, 9): int(E.UNKNOWN_TOPIC_OR_PARTITION), (f"{topic}-none", 0): 3}
            wanted[topic, 2] = int(E.UNKNOWN_LEADER_EPOCH) if version >= 4 else 0
            session.equal(errors, wanted, f"the errors of ListOffsets {version} for {timestamp}")
            offsets = {
                p.partition_index: (p.offset, p.timestamp)
                for t in answer.topics
                for p in t.partitions
                if not p.error_code
            }
            right = {number: each for number, each in expected.items() if not wanted[topic, number]}
            session.equal(offsets, right, f"offsets and times of ListOffsets {version} for {timestamp}")
    answer = await session.ask(1, list_request(topic, LATEST, 1, epoch=epochs[1]), 4)
    session.equal(answer.topics[0].partitions[0].leader_epoch, epochs[1], "the leader epoch of the log end")


# -- OffsetFetch -------------------------------------------------------------------------------------------------------


@fields("OFF-1", "OFF-2", "OFF-6", "GRP-1", "FLD-7")
async def offsets_of_several_groups(session: Session) -> None:
    """Each group of an OffsetFetch 8 is answered by itself: with all its offsets, some, none, or NOT_COORDINATOR."""
    topics = [await session.create_topic(name, 2) for name in ("a", "b")]
    groups = [await Group.found(session, f"g{number}") for number in range(7)]
    for number, group in enumerate(groups):
        await committed_ok(group, {(topics[0], 0): number, (topics[number % 2], 1): 100 + number})
    for broker_id in session.brokers:
        for _ in range(2):
            chosen = shuffled(session, list(range(len(groups))))[: 2 + session.draw(5)]
            asked: list[dict[str, Any]] = []
            for number in chosen:
                some = session.one_of(None, [], [(topics[0], 0)], [(topics[1], 1), (topics[1], 0)])
                wanted = some if some is None else of_topics(some, partitions="partition_indexes")
                asked.append({"group_id": groups[number].name, "topics": wanted})
            asked.append({"group_id": f"{session.name}-none", "topics": None})
            answer = await session.ask(broker_id, request("OffsetFetch", groups=asked), 8)
            session.equal([each.group_id for each in answer.groups], [each["group_id"] for each in asked], "the groups")
            for number, found in zip(chosen, answer.groups, strict=False):
                _one_group(session, groups[number], number, broker_id, topics, asked[chosen.index(number)], found)


def _one_group(
    session: Session, group: Group, number: int, broker_id: int, topics: Sequence[str], asked: dict[str, Any],
    found: Any,
) -> None:  # fmt: skip
    """Compare what OffsetFetch returns of one group."""
    if broker_id != group.coordinator:
        session.error(found.error_code, E.NOT_COORDINATOR, f"OffsetFetch of {group.name} at broker {broker_id}")
        return
    session.ok(found.error_code, f"OffsetFetch of {group.name} among others")
    stored = {(topics[0], 0): number, (topics[number % 2], 1): 100 + number}
    wanted = asked["topics"]
    expected = stored
    if wanted is not None:
        keys = [(topic["name"], part) for topic in wanted for part in topic["partition_indexes"]]
        expected = {key: stored.get(key, -1) for key in keys}
    offsets = {(t.name, p.partition_index): p.committed_offset for t in found.topics for p in t.partitions}
    session.equal(offsets, expected, f"the offsets of {group.name} among others")


# -- DescribeConfigs ---------------------------------------------------------------------------------------------------


@fields("ADM-21", "ADM-22", "ADM-23", "ADM-24", "ADM-25", "ADM-46", "FLD-3")
async def descriptions_of_settings(session: Session) -> None:
    """Each resource of a DescribeConfigs is answered by itself, with the settings and details requested."""
    topic = await session.create_topic("configs", retention_ms=4_444_444)
    asked: list[tuple[int, str, list[str] | None, E, set[str] | None]] = [
        (TOPIC_RESOURCE, topic, ["retention.ms", "no.such"], E.NONE, {"retention.ms"}),
        (TOPIC_RESOURCE, topic, [], E.NONE, None), (TOPIC_RESOURCE, topic, None, E.NONE, None),
        (TOPIC_RESOURCE, f"{topic}-none", None, E.UNKNOWN_TOPIC_OR_PARTITION, set()),
        (TOPIC_RESOURCE, f"{topic}/no", None, E.INVALID_TOPIC_EXCEPTION, set()),
        (BROKER_RESOURCE, "1", ["log.segment.bytes"], E.NONE, {"log.segment.bytes"}),
        (BROKER_RESOURCE, "2", None, E.INVALID_REQUEST, set()),
        (BROKER_RESOURCE, "one", None, E.INVALID_REQUEST, set()),
        (77, topic, None, E.INVALID_REQUEST, set()),
    ]  # fmt: skip
    every: set[frozenset[str]] = set()
    for version in (1, 2, 3, 4):
        for synonyms in (False, True):
            order = shuffled(session, asked)
            body = request("DescribeConfigs", include_synonyms=synonyms, include_documentation=True, resources=[
                {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
                for kind, name, keys, _, _ in order
            ])  # fmt: skip
            answer = await session.ask(1, body, version)
            for (kind, name, keys, error, names), found in zip(order, answer.results, strict=True):
                what = f"DescribeConfigs {version} of {kind} {name} with {keys}"
                session.equal((found.resource_type, found.resource_name), (kind, name), f"the resource in {what}")
                session.error(found.error_code, error, what)
                listed = {each.name for each in found.configs}
                if names is None:
                    every.add(frozenset(listed))
                else:
                    session.equal(listed, names, f"the settings of {what}")
                for each in found.configs:
                    session.equal(bool(each.synonyms), synonyms, f"whether {each.name} has synonyms in {what}")
                    detailed = each.config_type > 0 and bool(each.documentation)
                    session.expect(detailed or version < 3, f"{each.name} has no type or documentation in {what}")
                    if each.name == "retention.ms":
                        session.equal(each.value, "4444444", f"retention.ms in {what}")
    session.equal(len(every), 1, "the number of different sets of all settings")


# -- segments ----------------------------------------------------------------------------------------------------------


@dataclass
class SegmentsModel:
    """A model of a compacted partition whose segments are closed by the times of their records (segment.ms)."""

    session: Session
    topic: str
    number: int
    segments: list[list[tuple[int, int]]] = field(default_factory=lambda: [[]])  # offset and time of each record
    end: int = 0

    async def append(self, time_ms: int) -> None:
        """Append a record; it begins a segment if it is more than an hour later than the first one of the last."""
        offset = await self.session.append(self.topic, [record(b"%d" % self.end, b"key", time_ms)], self.number)
        active = self.segments[-1]
        if active and time_ms - active[0][1] > HOUR_MS:
            self.segments.append([])
        self.segments[-1].append((offset, time_ms))
        self.end = offset + 1

    @property
    def left(self) -> list[int]:
        """Return the offsets after compaction: the last one of the closed segments, and all of the active one."""
        closed = [offset for segment in self.segments[:-1] for offset, _ in segment][-1:]
        return closed + [offset for offset, _ in self.segments[-1]]


PATIENCE_MS: Final = 10_000
"""The cleaner takes one log after another, and other probes have compacted ones, too."""
STEPS: Final = (0, 1, 30 * MINUTE_MS, HOUR_MS - 1, HOUR_MS, HOUR_MS + 1, -MINUTE_MS, 2 * HOUR_MS)


@fields("FET-36", "FET-44", "LST-12")
async def segments_closed_by_time(session: Session) -> None:
    """A segment is closed when a record is more than segment.ms later than its first one, and then compacted."""
    topic = await session.create_topic(
        "roll", 4, cleanup_policy="compact", segment_ms=HOUR_MS, min_cleanable_dirty_ratio=0
    )
    models = [SegmentsModel(session, topic, number) for number in range(4)]
    start = session.wall_ms - 50 * HOUR_MS
    for model in models:
        time_ms = start
        for _ in range(6):
            await model.append(time_ms)
            time_ms = model.segments[-1][0][1] + session.one_of(*STEPS)
    await session.sleep(400)
    for model in models:

        async def offsets(model: SegmentsModel = model) -> list[int]:
            return [each.offset for each in await session.read(topic, 0, model.number)]

        what = f"the offsets that compaction leaves of {topic}-{model.number} with the segments {model.segments}"
        await session.until(offsets, model.left, what, PATIENCE_MS)

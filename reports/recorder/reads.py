"""Fetch, ListOffsets and Metadata: what brokers tell of their partitions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from highwater.reports.recorder.exchanges import Finish, Link, key_of, simple, topic_id_of
from highwater.reports.recorder.recording import Operation
from highwater.reports.recorder.records import Undecoded, batches, value_of

Pending = dict[tuple[bytes | str, int], Any]
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
LATEST: Final = -1
SESSIONS: Final = 1_000  # that one connection may keep


@dataclass(frozen=True, slots=True)
class Asked:
    """A partition in a fetch session: where it is read from, and in which epoch its leader is believed to be."""

    topic: str
    position: int
    epoch: int | None


def fetch(link: Link, request: Any) -> Finish | None:
    """One operation for each partition of the session, for a reply leaves out those with nothing new (KIP-227)."""
    cluster = link.cluster
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        return None
    session: Pending = dict(link.fetching.get(request.session_id, {})) if request.session_epoch > 0 else {}
    for gone in request.forgotten_topics_data:
        for number in gone.partitions:
            session.pop((gone.topic or gone.topic_id, number), None)
    for each in request.topics:
        topic = cluster.topic(each.topic, each.topic_id)
        for part in each.partitions:
            if topic is not None:
                cluster.topics_seen.add(topic)
                known = part.current_leader_epoch >= 0 and not request.rack_id
                epoch = part.current_leader_epoch if known else None
                session[each.topic or each.topic_id, part.partition] = Asked(topic, part.fetch_offset, epoch)
    isolation = ISOLATIONS[request.isolation_level == 1]
    if cluster.recording.config.isolation in {None, "read_committed"}:
        cluster.recording.know(isolation=isolation)
    opened: dict[tuple[bytes | str, int], Operation] = {
        (name, number): cluster.recording.invoke(
            "fetch", topic=asked.topic, partition=number, position=asked.position, isolation=isolation,
            topic_id=topic_id_of(name) if isinstance(name, bytes) else None,
        )
        for (name, number), asked in session.items()
    }  # fmt: skip
    return lambda reply: _fetched(link, request, session, opened, reply)


def _fetched(link: Link, request: Any, session: Pending, opened: dict[Any, Operation], reply: Any | None) -> None:
    recording = link.cluster.recording
    told: dict[Any, Any] = {}
    if reply is not None and not reply.error_code:
        told = {
            (each.topic or each.topic_id, part.partition_index): part
            for each in reply.responses
            for part in each.partitions
        }
        if reply.session_id:
            if reply.session_id not in link.fetching and len(link.fetching) >= SESSIONS:
                link.fetching.pop(next(iter(link.fetching)))
            link.fetching[reply.session_id] = session
    for where, operation in opened.items():
        part, asked = told.get(where), session[where]
        if reply is None:
            recording.complete(operation, "info", error="connection lost", position=asked.position)
        elif part is None or part.error_code:
            code = reply.error_code if part is None else part.error_code
            recording.complete(operation, "fail", error=f"error {code}" if code else "nothing new")
        else:
            _complete(link, operation, asked, part, committed=request.isolation_level == 1)


def _complete(link: Link, operation: Operation, asked: Asked, part: Any, *, committed: bool) -> None:
    fields: dict[str, Any] = {
        "topic": asked.topic, "partition": part.partition_index, "position": asked.position, "node": link.node,
        "leader_epoch": asked.epoch, "high_watermark": _known(part.high_watermark),
        "last_stable_offset": _known(part.last_stable_offset), "log_start_offset": _known(part.log_start_offset),
    }  # fmt: skip
    recording = link.cluster.recording
    try:
        value = _records(part, asked.position, committed=committed)
    except Undecoded as error:
        recording.unrecorded(f"Fetch of {asked.topic}-{part.partition_index}: {error}")
        recording.complete(operation, "info", error="records not decoded", position=asked.position)
    else:
        recording.complete(operation, "ok", value=value, **fields)


def _records(part: Any, position: int, *, committed: bool) -> list[tuple[int, Any]]:
    """As a consumer hands them on: from its position, and without what the list of aborted transactions takes out."""
    starts = (
        sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions or ()) if committed else []
    )
    aborting: set[int] = set()
    found: list[tuple[int, Any]] = []
    for header, records in batches(part.records):
        while starts and starts[0][0] <= header.last_offset:
            aborting.add(starts.pop(0)[1])
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            found += [(each.offset, value_of(header, each)) for each in records if each.offset >= position]
    return found


def _known(offset: int) -> int | None:
    return offset if offset >= 0 else None


def list_offsets(link: Link, request: Any) -> Finish | None:
    """The ends of logs; look-ups by time prove nothing here."""
    recording = link.cluster.recording
    name = "last_stable_offset" if request.isolation_level == 1 else "high_watermark"
    opened = {
        (topic.name, part.partition_index): (
            recording.invoke("list_offsets", topic=topic.name, partition=part.partition_index),
            _known(part.current_leader_epoch),
        )
        for topic in request.topics
        for part in topic.partitions
        if part.timestamp == LATEST
    }

    def finish(reply: Any | None) -> None:
        answers = {
            (topic.name, part.partition_index): part
            for topic in (reply.topics if reply is not None else ())
            for part in topic.partitions
        }
        for (topic, number), (operation, epoch) in opened.items():
            part = answers.get((topic, number))
            told: dict[str, Any] = {"topic": topic, "partition": number}
            if part is None or part.error_code or part.offset < 0:
                recording.complete(operation, "info", **told)
            else:
                told |= {name: part.offset, "leader_epoch": epoch, "node": link.node}
                recording.complete(operation, "ok", **told)

    return finish if opened else None


def metadata(link: Link, _: Any) -> Finish:
    """Who leads, as this broker has it: one operation a topic, for topics are told apart by their ids."""
    operation = link.cluster.recording.invoke("metadata")

    def told(reply: Any) -> tuple[str, dict[str, Any]]:
        cluster = link.cluster
        cluster.nodes.update({(each.host, each.port): each.node_id for each in reply.brokers})
        answers = [topic for topic in reply.topics if topic.name and not topic.error_code]
        cluster.topics.update({each.topic_id: each.name for each in answers if topic_id_of(each.topic_id)})
        first, *more = [_leaders(link, topic) for topic in answers] or [{}]
        for fields in more:
            cluster.recording.complete(cluster.recording.invoke("metadata"), "ok", **fields)
        if in_sync := {key: isr for topic in answers for key, isr in _in_sync(topic)}:
            cluster.recording.complete(cluster.recording.invoke("in_sync"), "ok", node=link.node, value=in_sync)
        return "ok", first

    return simple(link, operation, told)


def _in_sync(topic: Any) -> Iterator[tuple[str, list[int]]]:
    for part in topic.partitions:
        yield key_of(topic.name, part.partition_index), list(part.isr_nodes)


def _leaders(link: Link, topic: Any) -> dict[str, Any]:
    value = {
        key_of(topic.name, part.partition_index): (part.leader_id, part.leader_epoch)
        for part in topic.partitions
        if part.leader_id >= 0 and part.leader_epoch >= 0
    }
    return {"node": link.node, "value": value, "topic_id": topic_id_of(topic.topic_id)}

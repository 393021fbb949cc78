"""Observers of Fetch, ListOffsets and Metadata."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from highwater.reports.recorder.exchanges import Finish, Link, key_of, simple, topic_id_of
from highwater.reports.recorder.recording import Operation
from highwater.reports.recorder.records import Undecoded, batches, value_of

Pending = dict[tuple[bytes | str, int], Any]
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
LATEST: Final = -1
SESSIONS: Final = 1_000  # fetch sessions remembered for each connection


@dataclass(frozen=True, slots=True)
class RequestedPartition:
    """A partition in a fetch session: its fetch offset and the current leader epoch of the request."""

    topic: str
    position: int
    epoch: int | None


def fetch(link: Link, request: Any) -> Finish | None:
    """Record one operation for each session partition; replies omit unchanged ones (KIP-227)."""
    cluster = link.cluster
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        return None
    session: Pending = dict(link.fetching.get(request.session_id, {})) if request.session_epoch > 0 else {}
    for gone in request.forgotten_topics_data:
        for number in gone.partitions:
            session.pop((gone.topic or gone.topic_id, number), None)
    for fetch_topic in request.topics:
        topic = cluster.topic(fetch_topic.topic, fetch_topic.topic_id)
        for part in fetch_topic.partitions:
            if topic is not None:
                cluster.topics_seen.add(topic)
                known = part.current_leader_epoch >= 0 and not request.rack_id
                epoch = part.current_leader_epoch if known else None
                session[fetch_topic.topic or fetch_topic.topic_id, part.partition] = RequestedPartition(
                    topic, part.fetch_offset, epoch
                )
    isolation = ISOLATIONS[request.isolation_level == 1]
    if cluster.recording.config.isolation in {None, "read_committed"}:
        cluster.recording.update_config(isolation=isolation)
    opened: dict[tuple[bytes | str, int], Operation] = {
        (name, number): cluster.recording.invoke(
            "fetch", topic=requested.topic, partition=number, position=requested.position, isolation=isolation,
            topic_id=topic_id_of(name) if isinstance(name, bytes) else None,
        )
        for (name, number), requested in session.items()
    }  # fmt: skip
    return lambda reply: _fetched(link, request, session, opened, reply)


def _fetched(link: Link, request: Any, session: Pending, opened: dict[Any, Operation], reply: Any | None) -> None:
    recording = link.cluster.recording
    returned: dict[Any, Any] = {}
    if reply is not None and not reply.error_code:
        returned = {
            (topic.topic or topic.topic_id, part.partition_index): part
            for topic in reply.responses
            for part in topic.partitions
        }
        if reply.session_id:
            if reply.session_id not in link.fetching and len(link.fetching) >= SESSIONS:
                link.fetching.pop(next(iter(link.fetching)))
            link.fetching[reply.session_id] = session
    for where, operation in opened.items():
        part, requested = returned.get(where), session[where]
        if reply is None:
            recording.complete(operation, "info", error="connection lost", position=requested.position)
        elif part is None or part.error_code:
            code = reply.error_code if part is None else part.error_code
            recording.complete(operation, "fail", error=f"error {code}" if code else "nothing new")
        else:
            _complete(link, operation, requested, part, committed=request.isolation_level == 1)


def _complete(link: Link, operation: Operation, requested: RequestedPartition, part: Any, *, committed: bool) -> None:
    fields: dict[str, Any] = {
        "topic": requested.topic, "partition": part.partition_index, "position": requested.position, "node": link.node,
        "leader_epoch": requested.epoch, "high_watermark": _known(part.high_watermark),
        "last_stable_offset": _known(part.last_stable_offset), "log_start_offset": _known(part.log_start_offset),
    }  # fmt: skip
    recording = link.cluster.recording
    try:
        value = _records(part, committed=committed)
    except Undecoded as error:
        recording.unrecorded(f"Fetch of {requested.topic}-{part.partition_index}: {error}")
        recording.complete(operation, "info", error="records not decoded", position=requested.position)
    else:
        recording.complete(operation, "ok", value=value, **fields)


def _records(part: Any, *, committed: bool) -> list[tuple[int, Any]]:
    """Return all records of the batches, which may begin below the position, without aborted transactions."""
    starts = (
        sorted((aborted.first_offset, aborted.producer_id) for aborted in part.aborted_transactions or ())
        if committed
        else []
    )
    aborting: set[int] = set()
    found: list[tuple[int, Any]] = []
    for header, records in batches(part.records):
        while starts and starts[0][0] <= header.last_offset:
            aborting.add(starts.pop(0)[1])
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            found += [(record.offset, value_of(header, record)) for record in records]
    return found


def _known(offset: int) -> int | None:
    return offset if offset >= 0 else None


def list_offsets(link: Link, request: Any) -> Finish | None:
    """Record requests for the latest offset; look-ups by timestamp prove nothing here."""
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
            fields: dict[str, Any] = {"topic": topic, "partition": number}
            if part is None or part.error_code or part.offset < 0:
                recording.complete(operation, "info", **fields)
            else:
                fields |= {name: part.offset, "leader_epoch": epoch, "node": link.node}
                recording.complete(operation, "ok", **fields)

    return finish if opened else None


def metadata(link: Link, _: Any) -> Finish:
    """Record leaders and in-sync replicas; one operation for each topic, since topic ids differ."""
    operation = link.cluster.recording.invoke("metadata")

    def interpret(reply: Any) -> tuple[str, dict[str, Any]]:
        cluster = link.cluster
        cluster.nodes.update({(entry.host, entry.port): entry.node_id for entry in reply.brokers})
        answers = [topic for topic in reply.topics if topic.name and not topic.error_code]
        cluster.topics.update({entry.topic_id: entry.name for entry in answers if topic_id_of(entry.topic_id)})
        first, *more = [_leaders(link, topic) for topic in answers] or [{}]
        for fields in more:
            cluster.recording.complete(cluster.recording.invoke("metadata"), "ok", **fields)
        if in_sync := {key: isr for topic in answers for key, isr in _in_sync(topic)}:
            cluster.recording.complete(cluster.recording.invoke("in_sync"), "ok", node=link.node, value=in_sync)
        return "ok", first

    return simple(link, operation, interpret)


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

"""Fetch sessions when the broker has room for no other (KIP-227)."""

import pytest

from highwater.conformance.cases.fetches.test_fetch_sessions import (
    LAST_EPOCH,
    NO_SESSION,
    SessionReader,
    reported_topics,
)
from highwater.conformance.cases.support.replicas import await_isr
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest

SHARDS = 8
"""Apache Kafka divides its cache since 3.8, and takes the parts in turn: one may be full before the others."""
MOST = 2_000
"""A larger cache takes too long to fill."""
IDLE_S = 125.0
"""Longer than min.incremental.fetch.session.eviction.ms, which is two minutes and cannot be set."""


def _full_cache(cluster: Cluster) -> tuple[Topic, list[SessionReader]]:
    """Fill the cache of a broker; return the topic that all sessions read, and the readers with a session."""
    slots = cluster.setting("max_incremental_fetch_session_cache_slots")
    if slots > MOST:
        raise Unsupported(f"the target has room for {slots} sessions, the case fills at most {MOST}")
    topic = cluster.create_topic()
    await_isr(cluster, topic, min(3, len(cluster.target.addresses)))
    return topic, _fill(cluster, topic, slots)


def _fill(cluster: Cluster, topic: Topic, slots: int) -> list[SessionReader]:
    """Open sessions on one connection until several requests in a row open none; return the readers with a session."""
    broker, found, without = cluster.leader(topic), list[SessionReader](), 0
    for _ in range(2 * slots):
        reader = SessionReader(broker)
        reply = reader.fetch(topic)
        reader.session_id = reply.session_id
        expect("error code, and topics of the reply", (0, (topic.name,)), (reply.error_code, reported_topics(reply)))
        if reply.session_id == NO_SESSION:
            without += 1
            if without > 2 * SHARDS and found:
                return found
        else:
            without = 0
            found.append(reader)
            expect("no more sessions than the cache has room for", True, len(found) <= slots)
    raise Unsupported("the broker opens no session, or its cache cannot be filled")


def _end(readers: list[SessionReader]) -> None:
    """End the sessions, which would leave no room for those of other cases."""
    for reader in readers:
        reader.fetch(epoch=LAST_EPOCH)


@clause("FET-46")
@pytest.mark.cluster_fault
@pytest.mark.slow
@defect(Reply(FetchRequest, "session_id", lambda found: found or 7), Reply(FetchRequest, "error_code", 70))
def test_a_full_cache_of_sessions_keeps_those_in_use(cluster: Cluster) -> None:
    """It runs alone, for the cases beside it would lose their sessions."""
    topic, readers = _full_cache(cluster)
    expect("error code of Produce", 0, readers[0].broker.produce(topic, batch(b"v")).error_code)
    kept = [(reader, reply) for reader in readers if not (reply := reader.fetch()).error_code]
    # A follower may take the place of a consumer at any time (FetchSessionCache.tryEvict).
    expect("sessions that still go on", True, len(kept) > len(readers) - len(cluster.target.addresses))
    for reader, reply in kept:
        expect("session id, and topics of the reply", (reader.session_id, (topic.name,)),
               (reply.session_id, reported_topics(reply)))  # fmt: skip
    ended = kept[len(kept) // 2][0]
    expect("error code of the end", 0, ended.fetch(epoch=LAST_EPOCH).error_code)
    again = [SessionReader(ended.broker).fetch(topic).session_id for _ in range(2 * SHARDS)]
    # Others make room, too, if cases before this one left them unused for two minutes.
    expect("a session can be opened after one has ended", True, any(found != NO_SESSION for found in again))
    _end(readers)


@clause("FET-46", "unused for longest")
@pytest.mark.cluster_fault
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(2 * IDLE_S)
@defect(Reply(FetchRequest, "error_code", ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
def test_the_session_that_was_unused_for_longest_makes_room(cluster: Cluster) -> None:
    """The older half of the sessions stays in use, and the younger one is idle for two minutes."""
    topic, readers = _full_cache(cluster)
    used, idle = readers[: len(readers) // 2], readers[len(readers) // 2 :]
    deadline = cluster.clock.monotonic() + IDLE_S
    while cluster.clock.monotonic() < deadline:
        used = [reader for reader in used if not reader.fetch().error_code]  # a follower may take the place of a few
        cluster.clock.sleep(IDLE_S / 20)
    new = [SessionReader(used[0].broker) for _ in range(len(idle) // 2)]
    for reader in new:
        reader.session_id = reader.fetch(topic).session_id
    expect("fetches without a session", 0, [reader.session_id for reader in new].count(NO_SESSION))
    going_on = [reader for reader in used if not reader.fetch().error_code]
    expect("sessions in use that still go on", True, len(going_on) > len(used) - len(cluster.target.addresses))
    _end(readers + new)

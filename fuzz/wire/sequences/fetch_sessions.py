"""A fetch session (KIP-227): it returns what is new once, waits if nothing is, and does not hold up what follows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from highwater.fuzz.wire.generate.requests import CLIENT_ID
from highwater.fuzz.wire.sequences.context import SequenceAbandoned, SequenceContext
from highwater.fuzz.wire.sequences.logs import FETCH_BYTES, Log, Producer, append
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from highwater.reference.wire.messages.metadata import ApiVersionsRequest
from highwater.reference.wire.records import batch_headers

SESSIONS_SINCE: Final = 7  # version of Fetch
STEPS: Final = (3, 8)
SHORT_MS, LONG_MS = 5, 3_000
OPEN, CLOSE = 0, -1
"""Session epochs of the first and the last request."""
PLAIN: Final = 0
"""Version of ApiVersions."""


@dataclass
class FetchSession:
    """The model of a session about one partition: `position` is where the broker reads on, None if it is left out."""

    log: Log
    producer: Producer
    writer: Connection
    version: int
    id: int = 0
    epoch: int = 0
    position: int | None = None


def run(context: SequenceContext) -> None:
    connection, writer = context.connect(), context.connect()
    topic = context.topic(connection)
    log = Log(topic, context.end(connection, topic))
    version = context.version(FetchRequest, at_least=SESSIONS_SINCE)
    session = FetchSession(log, Producer(), writer, version)
    append(context, writer, log, session.producer)
    open_session(context, connection, session)
    for _ in context.steps(*STEPS):
        context.rng.choice(STEPS_OF_A_SESSION)(context, connection, session)
    close_session(context, connection, session)


def open_session(context: SequenceContext, connection: Connection, session: FetchSession) -> None:
    """Open a session at the log end."""
    session.position = session.log.end
    answer = _fetch(context, connection, session, topics=_at(session), id=0, epoch=OPEN)
    context.accepted(answer.error_code)
    if not answer.session_id:
        raise SequenceAbandoned("the broker keeps no sessions")
    session.id, session.epoch = answer.session_id, 1
    _require_offsets(context, answer, session, [])


def close_session(context: SequenceContext, connection: Connection, session: FetchSession) -> None:
    """Close the session; its id is unknown then."""
    context.accepted(_fetch(context, connection, session, epoch=CLOSE).error_code)
    answer = _fetch(context, connection, session)
    done = context.accepted(answer.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    context.require(not done, f"session {session.id} is served after it was closed")


def _at(session: FetchSession) -> tuple[FetchTopic, ...]:
    part = FetchPartition(fetch_offset=session.position or 0, partition_max_bytes=FETCH_BYTES)
    return (FetchTopic(topic=session.log.topic, partitions=(part,)),)


def _request(session: FetchSession, wait_ms: int, **values: Any) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, session_id=values.get("id", session.id),
        session_epoch=values.get("epoch", session.epoch), topics=values.get("topics", ()),
        forgotten_topics_data=values.get("forgotten", ()),
    )  # fmt: skip


def _fetch(
    context: SequenceContext, connection: Connection, session: FetchSession, wait_ms: int = SHORT_MS, **values: Any
) -> Any:  # fmt: skip
    return context.call(connection, _request(session, wait_ms, **values), session.version)


def _take(context: SequenceContext, session: FetchSession, answer: Any, expected: list[int]) -> None:
    """Check the response to a request of the session's epoch, and count it."""
    context.accepted(answer.error_code)
    session.epoch += 1
    _require_offsets(context, answer, session, expected)


def _require_offsets(context: SequenceContext, answer: Any, session: FetchSession, expected: list[int]) -> None:
    found: list[int] = []
    for topic in answer.responses:
        for part in topic.partitions:
            context.accepted(part.error_code)
            for _, header in batch_headers(bytes(part.records or b"")):
                found += range(header.base_offset, header.next_offset)
    found = [offset for offset in found if offset >= (session.position or 0)]
    context.require(found == expected, f"the session returns the offsets {found}, and new are {expected}")


# -- steps -------------------------------------------------------------------------------------------


def read_new(context: SequenceContext, connection: Connection, session: FetchSession) -> None:
    """Append; the session returns exactly that, and reads on behind it if it is asked to."""
    start = session.log.end
    append(context, session.writer, session.log, session.producer)
    if session.position is None:
        _take(context, session, _fetch(context, connection, session), [])
        return
    new = list(range(session.position, session.log.end))
    _take(context, session, _fetch(context, connection, session), new)
    context.require(start in new, "a record is missing")
    session.position = session.log.end
    _take(context, session, _fetch(context, connection, session, topics=_at(session)), [])


def wait_for_nothing(context: SequenceContext, connection: Connection, session: FetchSession) -> None:
    """Nothing is new, so the session returns nothing, once the time to wait is over."""
    _take(context, session, _fetch(context, connection, session), [])


def wake_up(context: SequenceContext, connection: Connection, session: FetchSession) -> None:
    """A request that waits is answered when a record is appended."""
    if session.position is None:
        return
    version = context.send(connection, _request(session, LONG_MS), session.version)
    append(context, session.writer, session.log, session.producer)
    new = list(range(session.position, session.log.end))
    _take(context, session, context.receive(connection, FetchRequest, version), new)
    session.position = session.log.end
    _take(context, session, _fetch(context, connection, session, topics=_at(session)), [])


def follow(context: SequenceContext, connection: Connection, session: FetchSession) -> None:
    """A request behind one that waits is answered after it, without a further byte from the client."""
    waiting = encode_request(_request(session, SHORT_MS), session.version, 1, CLIENT_ID)
    behind = encode_request(ApiVersionsRequest(), PLAIN, 2, CLIENT_ID)
    context.send_bytes(connection, waiting + behind, FetchRequest, session.version)
    session.epoch += 1
    for number in (1, 2):
        found = int.from_bytes(context.receive_frame(connection)[:4], "big")
        context.require(found == number, f"response {number} has the correlation id {found}")


def leave_waiting(context: SequenceContext, connection: Connection, session: FetchSession) -> None:
    """Close a connection while a request of it waits; its response is due later."""
    other = context.connect()
    request = FetchRequest(max_wait_ms=SHORT_MS, min_bytes=FETCH_BYTES, topics=_at(session))
    context.send(other, request, session.version)
    other.close()


def wrong_epoch(context: SequenceContext, connection: Connection, session: FetchSession) -> None:
    """A request out of order is refused, and the session stays as it is."""
    answer = _fetch(context, connection, session, epoch=session.epoch + context.rng.choice((1, 5, 1 << 20)))
    done = context.accepted(answer.error_code, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    context.require(not done, f"a request is served whose epoch is not {session.epoch}")


def unknown_session(context: SequenceContext, connection: Connection, session: FetchSession) -> None:
    """An id that the broker has not given is refused."""
    answer = _fetch(context, connection, session, id=session.id ^ 0x5A5A5A5A or 1)
    done = context.accepted(answer.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    context.require(not done, "a session is served that was not opened")


def forget(context: SequenceContext, connection: Connection, session: FetchSession) -> None:
    """Leave out the partition: nothing of it is returned any more; or take it in again at the log end.

    Apache Kafka ends a session without partitions and answers with the session id 0 (FetchManager.newContext).
    """
    if session.position is None:
        session.position = session.log.end
        _take(context, session, _fetch(context, connection, session, topics=_at(session)), [])
        return
    forgotten = (ForgottenTopic(topic=session.log.topic, partitions=(0,)),)
    answer = _fetch(context, connection, session, forgotten=forgotten)
    _take(context, session, answer, [])
    session.position = None
    if not answer.session_id:
        open_session(context, connection, session)


def forget_unknown(context: SequenceContext, connection: Connection, session: FetchSession) -> None:
    """Leave out partitions that are not in the session: it goes on (FetchSession.update)."""
    topic = context.rng.choice((session.log.topic, f"{session.log.topic}-unknown"))
    forgotten = (ForgottenTopic(topic=topic, partitions=(7, 9)),)
    _take(context, session, _fetch(context, connection, session, forgotten=forgotten), [])


STEPS_OF_A_SESSION: Final[tuple[Callable[[SequenceContext, Connection, FetchSession], None], ...]] = (
    read_new, read_new, wait_for_nothing, wake_up, follow, leave_waiting, wrong_epoch, unknown_session, forget,
    forget_unknown,
)  # fmt: skip

"""A topic is deleted while something refers to it, which must come to an end then.

A transaction with a partition of the topic completes (TransactionMarkerChannelManager skips partitions that are
deleted), a Fetch that waits and a fetch session are answered. After that the producer can use the topic of the same
name, if it is created again.
"""

import time
from dataclasses import dataclass, field
from typing import Final

from highwater.fuzz.wire.sequences.context import SequenceAbandoned, SequenceContext
from highwater.fuzz.wire.sequences.fetch_sessions import SESSIONS_SINCE
from highwater.fuzz.wire.sequences.groups import NO_COORDINATOR
from highwater.fuzz.wire.sequences.logs import COMMITTED, FETCH_BYTES, Log, Producer, append, fetch_records
from highwater.fuzz.wire.sequences.transactions import TRANSACTION, add_partition, end_request
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from highwater.reference.wire.messages.transactions import InitProducerIdRequest

SETTLE_S: Final = 4.0
"""Time until all requests see that a topic exists, or no longer does, and until a transaction is complete."""
POLL_S: Final = 0.01
TIMEOUT_MS: Final = 5_000
WAIT_MS: Final = 400
"""Of the Fetch that waits while the topic is deleted."""
NAMED_SINCE: Final = 4  # version of Metadata that can leave out the automatic creation
TYPED_SINCE: Final = 1  # version of FindCoordinator
NOT_YET: Final = NO_COORDINATOR | {ErrorCode.CONCURRENT_TRANSACTIONS}
EXISTS: Final = (ErrorCode.TOPIC_ALREADY_EXISTS,)


@dataclass
class Use:
    """What refers to the topic: producer, open transaction if any, and the versions of Fetches that wait."""

    name: str
    producer: Producer
    is_open: bool = False
    waiting: list[tuple[Connection, int]] = field(default_factory=list)


def run(context: SequenceContext) -> None:
    """Create a topic, use it, delete it in use; what refers to it ends, and it can be used again."""
    connection, name = context.connect(), f"fuzz-deleted-{context.rng.getrandbits(48):x}"
    version = context.version(FindCoordinatorRequest, at_least=TYPED_SINCE)
    context.call(connection, FindCoordinatorRequest(key=name, key_type=TRANSACTION), version)
    use = Use(name, _new_epoch(context, connection, name))
    for _ in context.steps(1, 2):
        _create(context, connection, name)
        log = Log(name, 0)
        if context.rng.random() < 0.5:
            append(context, connection, log, Producer())
        if context.rng.random() < 0.5:
            _wait_for_records(context, use, log)
        if context.rng.random() < 0.8:
            _write_in_transaction(context, connection, use, log)
        _delete(context, connection, name)
        _end(context, connection, use)
    _create(context, connection, name)
    _commit_again(context, connection, use)
    _delete(context, connection, name)


# -- uses --------------------------------------------------------------------------------------------


def _write_in_transaction(context: SequenceContext, connection: Connection, use: Use, log: Log) -> None:
    context.accepted(add_partition(context, connection, use.name, use.producer))
    use.is_open = True
    if context.rng.random() < 0.7:
        append(context, connection, log, use.producer)


def _wait_for_records(context: SequenceContext, use: Use, log: Log) -> None:
    """Send a Fetch for more bytes than there are; half of them open a session."""
    part = FetchPartition(fetch_offset=log.end, partition_max_bytes=FETCH_BYTES)
    topics, opens = (FetchTopic(topic=use.name, partitions=(part,)),), context.rng.random() < 0.5
    version = context.version(FetchRequest, at_least=SESSIONS_SINCE)
    request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=FETCH_BYTES, session_epoch=0 if opens else -1, topics=topics)
    waiter = context.connect()
    context.send(waiter, request, version)
    use.waiting.append((waiter, version))


def _end(context: SequenceContext, connection: Connection, use: Use) -> None:
    """The topic is deleted: the transaction ends, and every Fetch is answered."""
    for waiter, version in use.waiting:
        answer = context.receive(waiter, FetchRequest, version)
        context.accepted(answer.error_code)
        if answer.session_id:
            request = FetchRequest(max_wait_ms=0, session_id=answer.session_id, session_epoch=1)
            context.call(waiter, request, version)
    use.waiting.clear()
    if use.is_open and context.rng.random() < 0.8:
        answer = context.call(connection, end_request(use.producer, committed=context.rng.random() < 0.5))
        context.accepted(answer.error_code)
    use.is_open = False
    use.producer = _new_epoch(context, connection, use.name)


def _new_epoch(context: SequenceContext, connection: Connection, name: str) -> Producer:
    """Send InitProducerId until it succeeds, as it must once the transaction before is complete."""
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    version, end = context.version(InitProducerIdRequest), time.monotonic() + SETTLE_S
    while True:
        answer = context.call(connection, request, version)
        if answer.error_code not in NOT_YET:
            break
        if answer.error_code in NO_COORDINATOR and time.monotonic() > end:
            raise SequenceAbandoned("there is no coordinator")
        context.require(time.monotonic() < end, f"the transaction of {name} is not complete after {SETTLE_S:g} s")
        time.sleep(POLL_S)
    context.accepted(answer.error_code)
    return Producer(answer.producer_id, answer.producer_epoch, transactional_id=name)


def _commit_again(context: SequenceContext, connection: Connection, use: Use) -> None:
    """A transaction on the topic that was created again is committed and visible."""
    log = Log(use.name, 0)
    context.accepted(add_partition(context, connection, use.name, use.producer))
    append(context, connection, log, use.producer)
    context.accepted(context.call(connection, end_request(use.producer, committed=True)).error_code)
    end = time.monotonic() + SETTLE_S
    while len(fetch_records(context, connection, use.name, 0, COMMITTED)[1]) < len(log.rows):
        context.require(time.monotonic() < end, f"the records of a committed transaction on {use.name} are not visible")
        time.sleep(POLL_S)


# -- the topic ---------------------------------------------------------------------------------------


def _create(context: SequenceContext, connection: Connection, name: str) -> None:
    asked = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = context.call(connection, CreateTopicsRequest(topics=(asked,), timeout_ms=TIMEOUT_MS))
    context.accepted(answer.topics[0].error_code, *EXISTS)
    _await(context, connection, name, exists=True)


def _delete(context: SequenceContext, connection: Connection, name: str) -> None:
    answer = context.call(connection, DeleteTopicsRequest(topic_names=(name,), timeout_ms=TIMEOUT_MS))
    context.accepted(answer.responses[0].error_code)
    _await(context, connection, name, exists=False)


def _await(context: SequenceContext, connection: Connection, name: str, *, exists: bool) -> None:
    """Wait until Metadata and ListOffsets agree that the topic exists, or that it does not."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
    version, end = context.version(MetadataRequest, at_least=NAMED_SINCE), time.monotonic() + SETTLE_S
    while time.monotonic() < end:
        (found,) = context.call(connection, request, version).topics
        is_known = not found.error_code and all(not part.error_code for part in found.partitions)
        if is_known == exists and (context.log_end(connection, name) is not None) == exists:
            return
        time.sleep(POLL_S)
    raise SequenceAbandoned(f"{name} is {'not created' if exists else 'not deleted'} in {SETTLE_S:g} s")

"""Check that a request that is refused or only reads changes nothing: the state before and after it is equal.

The state is read through the protocol: topics, log start offsets, high watermarks, last stable offsets and sizes of the
partitions that cases name, their producers, the groups with members and committed offsets, and the transactions.

A comparison costs two snapshots, so it covers a batch of cases that were refused before, must be refused, or only
read. If one that was refused is accepted this time, the batch says nothing. If the state differs, the cases are
suspects: triage repeats them, so that a change by a timer (an expired member, an aborted transaction) is not charged to
them.
"""

import tomllib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.fuzz.wire.connection import connect
from highwater.fuzz.wire.generate.cases import Case, Ends
from highwater.fuzz.wire.generate.requests import GROUPS, TOPICS
from highwater.fuzz.wire.oracles.malformed import must_be_refused
from highwater.fuzz.wire.oracles.responses import key_and_version, read_request
from highwater.reference.client.connection import Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import DecodeError, ErrorCode, WireError
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from highwater.reference.wire.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.messages.replicas import DescribableLogDirTopic, DescribeLogDirsRequest
from highwater.reference.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    TopicRequest,
)
from highwater.reference.wire.records import build_batch
from highwater.reference.wire.registry import APIS, api_of

MAY_CHANGE: Final = Path(__file__).with_name("changes_when_refused.toml")
LATEST, EARLIEST = -1, -2
COMMITTED: Final = 1
PARTITIONS: Final = (0, 1)
TRANSACTIONAL_IDS: Final = ("range", "consumer", "ü\0")
"""The ids that generated requests name, without the longest."""
REPLY_S: Final = 5.0
KEPT_CASES, KEPT_OF_API = 400, 4
PRODUCE, PRODUCE_VERSION, OFFSET_COMMIT, COMMIT_VERSION = 0, 3, 8, 2
_numbers = count(1)
READS: Final = frozenset({1, 2, 9, 15, 16, 23, 29, 32, 35, 46, 48, 50, 60, 61, 65, 66, 69, 75})
"""API keys of requests that only read."""
CAN_VALIDATE: Final = frozenset({19, 33, 37, 44, 57})
"""API keys of requests that may only be validated."""
MAY_CREATE: Final = frozenset({3, 10, 18})
"""Metadata creates topics, FindCoordinator those of the coordinators; ApiVersions cannot change anything."""
NAMES: Final = {int(code): code.name for code in ErrorCode}
State = Mapping[str, str]
"""By what was asked: the response as text."""


def _offsets(timestamp: int, isolation_level: int = 0) -> ListOffsetsRequest:
    parts = tuple(ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in PARTITIONS)
    topics = tuple(ListOffsetsTopic(name=name, partitions=parts) for name in TOPICS)
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)


PROBES: Final[tuple[tuple[str, Any, int], ...]] = (
    ("topics", MetadataRequest(topics=None), 1),
    ("log start offsets", _offsets(EARLIEST), 2),
    ("high watermarks", _offsets(LATEST), 2),
    ("last stable offsets", _offsets(LATEST, COMMITTED), 2),
    (
        "log sizes",
        DescribeLogDirsRequest(
            topics=tuple(DescribableLogDirTopic(topic=name, partitions=PARTITIONS) for name in TOPICS)
        ),
        1,
    ),
    (
        "producers",
        DescribeProducersRequest(topics=tuple(TopicRequest(name=n, partition_indexes=PARTITIONS) for n in TOPICS)),
        0,
    ),
    ("groups", ListGroupsRequest(), 2),
    ("members", DescribeGroupsRequest(groups=GROUPS), 2),
    *((f"committed offsets of {name}", OffsetFetchRequest(group_id=name, topics=None), 3) for name in GROUPS),
    ("transactions", DescribeTransactionsRequest(transactional_ids=TRANSACTIONAL_IDS), 0),
)
"""What to ask, and the version."""


class MayChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A refusal after which the state may differ, by API and error code (a name, or `*`)."""

    api: str
    error: str
    why: str


@cache
def may_change() -> tuple[MayChange, ...]:
    return tuple(msgspec.convert(tomllib.loads(MAY_CHANGE.read_text())["change"], list[MayChange]))


def is_refusal(frame: bytes, outcome: tuple[int, ...] | str) -> bool:
    """Return True for an outcome that must leave the state unchanged: only error codes, or any if the request reads.

    A request that is only validated changes nothing either.
    A closed connection is one if the request must be refused: with acks=0 it reports the error of one partition only.
    """
    key = key_and_version(frame)[0]
    if key in READS or (key in CAN_VALIDATE and _validates_only(frame)):
        return True
    api = APIS[key].name if key in APIS else ""
    if isinstance(outcome, str):
        return outcome == "closed" and must_be_refused(frame) is not None
    return bool(outcome) and all(outcome) and not any(_may_change(api, _name(code)) for code in outcome)


def _validates_only(frame: bytes) -> bool:
    """Return True if the request asks only whether it could be carried out."""
    try:
        _, body = read_request(frame[4:])
    except DecodeError:
        return False
    return bool(body.validate_only)


def _name(code: int) -> str:
    return NAMES.get(code, str(code))


@cache
def _may_change(api: str, error: str) -> bool:
    return any(fnmatchcase(api, row.api) and fnmatchcase(error, row.error) for row in may_change())


def snapshot(address: str, served: Mapping[int, tuple[int, int]]) -> State:
    """Read the state through the protocol; APIs that the broker does not serve are left out."""
    with connect(address) as connection:
        return {
            name: _answer(connection, request, version)
            for name, request, version in PROBES
            if _serves(served, api_of(type(request)).key, version)
        }


def stir(connection: Connection, served: Mapping[int, tuple[int, int]], number: int) -> None:
    """Append a record and commit other offsets: a change that a refused request repeats would not show otherwise."""
    for name in TOPICS if _serves(served, PRODUCE, PRODUCE_VERSION) else ():
        data = PartitionProduceData(index=0, records=build_batch([(number, None, b"stir", ())]))
        topic = TopicProduceData(name=name, partition_data=(data,))
        connection.exchange(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=(topic,)), PRODUCE_VERSION, REPLY_S)
    for group in GROUPS if _serves(served, OFFSET_COMMIT, COMMIT_VERSION) else ():
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=number)
        topics = tuple(OffsetCommitRequestTopic(name=name, partitions=(part,)) for name in TOPICS)
        connection.exchange(OffsetCommitRequest(group_id=group, topics=topics), COMMIT_VERSION, REPLY_S)


def _serves(served: Mapping[int, tuple[int, int]], key: int, version: int) -> bool:
    first, last = served.get(key, (1, 0))
    return first <= version <= last


def _answer(connection: Connection, request: Any, version: int) -> str:
    response = connection.exchange(request, version, REPLY_S)
    if hasattr(response, "throttle_time_ms"):
        response = replace(response, throttle_time_ms=0)
    return repr(_sorted(msgspec.to_builtins(response)))


def _sorted(value: Any) -> Any:
    """Sort all lists: brokers list groups and topics in any order."""
    if isinstance(value, dict):
        return {name: _sorted(inner) for name, inner in value.items()}
    return sorted(map(_sorted, value), key=repr) if isinstance(value, list | tuple) else value


def difference(before: State, after: State) -> str:
    """Return what differs between two snapshots; empty if nothing does."""
    return ", ".join(name for name, text in before.items() if after.get(name) != text)


class StateWatch:
    """Collects refused cases and compares the state around batches of them."""

    def __init__(self, served: Mapping[int, tuple[int, int]]) -> None:
        self._served = served
        self._errors: dict[int, deque[Case]] = {}
        self._closed: deque[Case] = deque(maxlen=KEPT_CASES)
        self.compared = self.batches = self.discarded = 0

    def note(self, case: Case, outcome: tuple[int, ...] | str) -> None:
        """Keep a case that was refused or only read, to send it again between two snapshots."""
        if case.key in MAY_CREATE:
            return
        if case.ends is Ends.OPEN and len(case.frames) == 1 and is_refusal(case.frames[0], outcome):
            kept = self._errors.setdefault(case.key, deque(maxlen=KEPT_OF_API))
            (self._closed if isinstance(outcome, str) else kept).append(case)

    def batch(self, size: int) -> list[Case]:
        """Take the cases that were refused last: of all APIs alike, at most a quarter by a closed connection."""
        taken = [self._closed.pop() for _ in range(min(size // 4, len(self._closed)))]
        for _ in range(KEPT_OF_API):
            taken += [kept.pop() for kept in self._errors.values() if kept]
        return taken[:size]

    def compare(self, address: str, cases: list[Case], send: Callable[[list[Case]], bool]) -> str:
        """Send the cases between two snapshots; return what differs. `send` returns whether all were refused."""
        try:
            with connect(address) as connection:
                stir(connection, self._served, next(_numbers))
            before = snapshot(address, self._served)
            if not send(cases):
                self.discarded += len(cases)
                return ""
            changed = difference(before, snapshot(address, self._served))
        except (OSError, ConnectionClosedError, ReplyTimeoutError, WireError):
            self.discarded += len(cases)
            return ""
        self.batches, self.compared = self.batches + 1, self.compared + len(cases)
        return changed

    def report(self) -> str:
        return (
            f"the state was compared before and after {self.batches:,} batches of requests that must not change it "
            f"({self.compared:,} requests); {self.discarded:,} more were left out, because one of their batch was "
            f"accepted, or the state could not be read"
        )

"""Simulated consumers: an assigned one with fetch sessions, and a group member that reads from committed offsets.

A reader has one request open at a time. It asks for what it lacks, in this order: leaders (Metadata), positions
(OffsetFetch for a group, else ListOffsets), records (Fetch from one leader after the other). It lists the log end after
a change of the leader, where KIP-207 matters, and with every `LIST_EVERY`-th request. It sends the leader epoch that it
knows with each request, and ignores metadata with an older one (KIP-320). An error or a time-out makes it ask for the
leaders again.

What arrives is reported to a `ReadObserver` at once; the reader itself judges nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from highwater.fuzz.simulator.clients.producers import METADATA_VERSION, RETRY_MS, TICK, Client
from highwater.fuzz.simulator.cluster import TOPIC
from highwater.reference.clients.application import POLL, POLL_MS, Application
from highwater.reference.clients.fetched_records import FetchedRecords, fetched_records
from highwater.reference.clients.member import MemberConfig
from highwater.reference.clients.subscriptions import Partition
from highwater.reference.effects import Effect, Instant, Response, Send
from highwater.reference.replication.fetch_session_handler import FetchSessionHandler, Sent
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData
from highwater.reference.wire.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from highwater.reference.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LIST_OFFSETS_VERSION: Final = 7
FETCH_VERSION: Final = 12
OFFSET_FETCH_VERSION: Final = 7
FIND_COORDINATOR_VERSION: Final = 2
LATEST, EARLIEST = -1, -2
GROUP_KEY: Final = 0
READER_GROUP: Final = "readers"
LIST_EVERY: Final = 16
FETCH_BYTES: Final = 2_048
"""So little that a response often ends in the middle of a batch."""
FETCH_WAIT_MS: Final = 100
PAUSE_MS: Final = 40
READER_RETRY_MS: Final = 25
POLLS_A_COMMIT: Final = 4
READER_REQUESTS: Final = 1_000_000
"""The correlation ids of a reader inside a group member begin after this; those of the member are below."""


@dataclass(frozen=True, slots=True)
class ConsumedBatch:
    """What a reader received for one partition: the response, and what it delivers of it from `position` on.

    `leader_epoch` is the one that the reader sent, and so that of the broker.
    """

    reader: str
    broker_id: int
    partition: int
    leader_epoch: int
    position: int
    read_committed: bool
    data: PartitionData
    fetched: FetchedRecords


@dataclass(frozen=True, slots=True)
class ListedOffsets:
    """An offset in a ListOffsets response; `seen_end` is the end of what the reader had seen of the partition."""

    reader: str
    broker_id: int
    partition: int
    timestamp: int
    read_committed: bool
    offset: int
    leader_epoch: int
    seen_end: int


class ReadObserver(Protocol):
    """Receives what readers see."""

    def read(self, read: ConsumedBatch) -> None:
        """Handle the records of one partition."""

    def unreadable(self, reader: str, broker_id: int, message: str) -> None:
        """Handle a batch that cannot be decoded."""

    def out_of_range(self, reader: str, broker_id: int, partition: int, position: int) -> None:
        """Handle OFFSET_OUT_OF_RANGE from the leader of the epoch that the reader named."""

    def listed(self, listed: ListedOffsets) -> None:
        """Handle an offset that ListOffsets returned."""

    def offsets_committed(self, group: str, offsets: dict[int, int]) -> None:
        """Handle an acknowledged commit: offsets by partition."""

    def offsets_requested(self, broker_id: int, group: str) -> object:
        """Return a token for `offsets_fetched`: what is committed when OffsetFetch is sent."""

    def offsets_fetched(self, reader: str, token: object, offsets: dict[int, int]) -> None:
        """Handle the response of OffsetFetch: offsets by partition, -1 for none."""


class Reader(Client):
    """Reads `partitions` of a topic. With `group` it begins at the committed offsets, else at the log start."""

    def __init__(
        self, brokers: Sequence[int], name: str, partitions: Sequence[int], observer: ReadObserver, *,
        read_committed: bool, group: str = "", timestamp: int = EARLIEST, first_request: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(list(brokers))
        self.name, self.partitions, self.read_committed = name, tuple(partitions), read_committed
        self._observer, self._group, self._timestamp = observer, group, timestamp
        self._correlation_id = first_request
        self._leaders: dict[int, int] = {}
        self._epochs: dict[int, int] = {}  # the highest leader epoch in any metadata
        self.positions: dict[int, int] = {}
        self._seen_ends: dict[int, int] = {}
        self._sessions: dict[int, FetchSessionHandler[None]] = {}
        self._coordinator = -1
        self._token: object = None  # of the open OffsetFetch
        self._requests = 0
        self._asked: tuple[int, int, int] = (-1, -1, 0)  # broker, partition and timestamp of the open request
        self._to_list: list[int] = []  # partitions with a new leader
        self.acked = 0  # responses to Fetch with records
        self._handlers: dict[type, Callable[[Any], ErrorCode]] = {
            MetadataResponse: self._handle_metadata,
            FindCoordinatorResponse: self._handle_coordinator,
            OffsetFetchResponse: self._handle_committed,
            ListOffsetsResponse: self._handle_listed,
            FetchResponse: self._handle_fetched,
        }

    def assign(self, partitions: Sequence[int]) -> None:
        """Read these partitions from now on; an open request that began without them is ignored."""
        if set(partitions) == set(self.partitions):
            return
        self.partitions = tuple(sorted(partitions))
        for number in set(self.positions) - set(partitions):
            del self.positions[number]

    def forget(self, partitions: frozenset[int]) -> None:
        """Forget the positions of partitions that were just assigned, and ignore the open request."""
        for number in partitions:
            self.positions.pop(number, None)
        self._correlation_id += 1
        self._timed_out()
        self._waiting = False

    # -- requests ----------------------------------------------------------------------------------

    def _send_next(self) -> None:
        self._requests += 1
        missing = [number for number in self.partitions if number not in self.positions]
        if not self.partitions:
            self._set_timer(RETRY_MS)
        elif any(self._leaders.get(number, -1) < 0 for number in self.partitions):
            topic = MetadataRequestTopic(name=TOPIC)
            self._send_request(self._next_broker(), MetadataRequest(topics=(topic,)), METADATA_VERSION)
        elif missing and self._group and self._coordinator < 0:
            body = FindCoordinatorRequest(key=self._group, key_type=GROUP_KEY)
            self._send_request(self._next_broker(), body, FIND_COORDINATOR_VERSION)
        elif missing and self._group:
            self._fetch_committed(missing)
        elif missing:
            self._list_offsets(missing[0], self._timestamp)
        else:
            self._read_on()

    def _read_on(self) -> None:
        renewed = [number for number in self._to_list if number in self.partitions]
        self._to_list = renewed[1:]
        if renewed:
            self._list_offsets(renewed[0], LATEST)
        elif self._requests % LIST_EVERY == 0:
            self._list_offsets(self.partitions[self._requests // LIST_EVERY % len(self.partitions)], LATEST)
        else:
            self._fetch()

    def _fetch_committed(self, missing: list[int]) -> None:
        topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=tuple(missing))
        self._token = self._observer.offsets_requested(self._coordinator, self._group)
        body = OffsetFetchRequest(group_id=self._group, topics=(topic,), require_stable=True)
        self._send_request(self._coordinator, body, OFFSET_FETCH_VERSION)

    def _list_offsets(self, number: int, timestamp: int) -> None:
        partition = ListOffsetsPartition(
            partition_index=number, current_leader_epoch=self._epochs[number], timestamp=timestamp
        )
        self._asked = self._leaders[number], number, timestamp
        body = ListOffsetsRequest(
            replica_id=-1, isolation_level=int(self.read_committed),
            topics=(ListOffsetsTopic(name=TOPIC, partitions=(partition,)),),
        )  # fmt: skip
        self._send_request(self._leaders[number], body, LIST_OFFSETS_VERSION)

    def _fetch(self) -> None:
        """Fetch from the next leader, with what the session of that leader does not know yet."""
        leaders = sorted({self._leaders[number] for number in self.partitions})
        leader = leaders[self._requests % len(leaders)]
        session = self._sessions.setdefault(leader, FetchSessionHandler({}))
        wanted = {
            (TOPIC, number): Sent(
                None,
                FetchPartition(
                    partition=number, fetch_offset=self.positions[number], partition_max_bytes=FETCH_BYTES,
                    current_leader_epoch=self._epochs[number],
                ),
            )
            for number in self.partitions
            if self._leaders[number] == leader
        }  # fmt: skip
        named = wanted if session.is_full else {k: sent for k, sent in wanted.items() if session.sent.get(k) != sent}
        self._asked = leader, -1, 0
        body = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS * self.pace, min_bytes=1, isolation_level=int(self.read_committed)
        )
        forgotten = sorted(session.sent.keys() - wanted.keys())
        self._send_request(leader, session.complete(body, named, forgotten), FETCH_VERSION)

    # -- responses ---------------------------------------------------------------------------------

    def _timed_out(self) -> None:
        if self._asked[0] in self._sessions:
            self._sessions[self._asked[0]].handle_error()
        self._leaders.clear()
        self._coordinator = -1

    def _handle_reply(self, body: Any) -> None:
        error = self._handlers[type(body)](body)
        if error is not ErrorCode.NONE:
            self._leaders.clear()
            self._coordinator = -1
        fetched = isinstance(body, FetchResponse) and error is ErrorCode.NONE
        self._set_timer(PAUSE_MS if fetched else 0 if error is ErrorCode.NONE else READER_RETRY_MS)

    def _handle_metadata(self, body: MetadataResponse) -> ErrorCode:
        for partition in (part for topic in body.topics for part in topic.partitions):
            number, epoch = partition.partition_index, partition.leader_epoch
            if epoch > self._epochs.get(number, epoch):
                self._to_list.append(number)
            if epoch >= self._epochs.get(number, -1):
                self._epochs[number] = epoch
                self._leaders[number] = partition.leader_id
        known = all(self._leaders.get(number, -1) >= 0 for number in self.partitions)
        return ErrorCode.NONE if known else ErrorCode.LEADER_NOT_AVAILABLE

    def _handle_coordinator(self, body: FindCoordinatorResponse) -> ErrorCode:
        self._coordinator = body.node_id
        return ErrorCode(body.error_code)

    def _handle_committed(self, body: OffsetFetchResponse) -> ErrorCode:
        parts = [part for topic in body.topics for part in topic.partitions]
        error = next((ErrorCode(code) for code in (body.error_code, *(p.error_code for p in parts)) if code), None)
        if error is not None:
            return error
        offsets = {part.partition_index: part.committed_offset for part in parts}
        self._observer.offsets_fetched(self.name, self._token, offsets)
        # A group without a committed offset begins at the log start, which is 0: nothing is deleted from the topic.
        self.positions |= {number: max(offset, 0) for number, offset in offsets.items() if number in self.partitions}
        return ErrorCode.NONE

    def _handle_listed(self, body: ListOffsetsResponse) -> ErrorCode:
        broker_id, number, timestamp = self._asked
        part = body.topics[0].partitions[0]
        if part.error_code:
            return ErrorCode(part.error_code)
        seen_end = self._seen_ends.get(number, 0)
        self._observer.listed(
            ListedOffsets(
                self.name, broker_id, number, timestamp, self.read_committed, part.offset, part.leader_epoch, seen_end
            )
        )
        self._seen_ends[number] = max(part.offset, seen_end)
        if number in self.partitions:
            self.positions.setdefault(number, part.offset)
        return ErrorCode.NONE

    def _handle_fetched(self, body: FetchResponse) -> ErrorCode:
        broker_id = self._asked[0]
        session = self._sessions[broker_id]
        if session.handle_response(ErrorCode(body.error_code), body.session_id):
            errors = [self._take(broker_id, part) for topic in body.responses for part in topic.partitions]
            return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)
        return ErrorCode.NONE  # the next request of the session is full

    def _take(self, broker_id: int, data: PartitionData) -> ErrorCode:
        number, error = data.partition_index, ErrorCode(data.error_code)
        position = self.positions.get(number)
        if position is None:
            return ErrorCode.NONE  # the partition was revoked meanwhile
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._observer.out_of_range(self.name, broker_id, number, position)
        if error is not ErrorCode.NONE:
            return error
        try:
            fetched = fetched_records(data, position, read_committed=self.read_committed)
        except DecodeError as failure:
            self._observer.unreadable(self.name, broker_id, str(failure))
            return ErrorCode.CORRUPT_MESSAGE
        self._observer.read(
            ConsumedBatch(
                self.name, broker_id, number, self._epochs[number], position, self.read_committed, data, fetched
            )
        )
        self.positions[number] = fetched.position
        self._seen_ends[number] = max(fetched.position, self._seen_ends.get(number, 0))
        self.acked += fetched.position > position
        self._deliver(number, fetched)
        return ErrorCode.NONE

    def _deliver(self, number: int, fetched: FetchedRecords) -> None:
        """Process the records."""


class GroupReader(Application):
    """A group member that reads its partitions from the committed offsets on, and commits its positions."""

    def __init__(
        self, name: str, bootstrap: list[int], config: MemberConfig, observer: ReadObserver, *, read_committed: bool,
        pace: int,
    ) -> None:  # fmt: skip
        super().__init__(name, bootstrap, config, POLL_MS * pace)
        self._observer, self._polls = observer, 0
        self._commits: dict[int, dict[int, int]] = {}  # open requests, by correlation id
        self.reader = Reader(
            bootstrap, name, (), observer, read_committed=read_committed, group=config.group_id,
            first_request=READER_REQUESTS,
        )  # fmt: skip
        self.reader.pace = pace

    def assigned(self, partitions: frozenset[Partition]) -> None:
        """Read newly assigned partitions from their committed offsets."""
        super().assigned(partitions)
        self.reader.forget(frozenset(number for _, number in partitions))

    def start(self, now: Instant) -> list[Effect]:
        return [*super().start(now), *self.reader.start(now)]

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        if message.correlation_id > READER_REQUESTS:
            return self.reader.receive(now, source, message)
        commit, body = self._commits.pop(message.correlation_id, None), message.body
        if commit is not None and isinstance(body, OffsetCommitResponse):
            errors = {part.error_code for topic in body.topics for part in topic.partitions}
            if errors == {ErrorCode.NONE}:
                self._observer.offsets_committed(self.group_id, commit)
        return self._followed(super().receive(now, source, message))

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        if timer == TICK:
            return self.reader.fire(now, timer)
        effects = super().fire(now, timer)
        if timer == POLL and self.polling:
            self._polls += 1
            if self._polls % POLLS_A_COMMIT == 0:
                effects += self._commit(now)
        return self._followed(effects)

    @property
    def acked(self) -> int:
        """Return the number of responses to Fetch with records."""
        return self.reader.acked

    def _followed(self, effects: list[Effect]) -> list[Effect]:
        """Let the reader read exactly what the member may process."""
        self.reader.assign([number for _, number in self.member.fetchable])
        return effects

    def _commit(self, now: Instant) -> list[Effect]:
        owned = {number for _, number in self.member.fetchable}
        offsets = {number: offset for number, offset in self.reader.positions.items() if number in owned}
        if not offsets:
            return []
        effects = self.commit(now, {(TOPIC, number): offset for number, offset in offsets.items()})
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message.body, OffsetCommitRequest):
                self._commits[effect.message.correlation_id] = offsets
        return effects

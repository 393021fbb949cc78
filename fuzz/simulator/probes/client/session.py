"""What a probe may send, and what it expects: topics, records, groups and transactions of one probe.

Every name that a probe uses begins with the session's own, so that probes do not disturb each other. A request to a
leader or a coordinator is repeated while the answer says that it has moved; any other error is returned to the probe.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final

from highwater.fuzz.schedule import Fault, Option
from highwater.fuzz.simulator.cluster import SimulatedCluster
from highwater.fuzz.simulator.invariants.violations import About
from highwater.fuzz.simulator.probes.client.node import REQUEST_TIMEOUT_MS, Prober, Unanswered, Unexpected
from highwater.fuzz.simulator.probes.client.phases import MINUTE_MS, Outage
from highwater.fuzz.simulator.probes.client.requests import (
    BIG,
    VERSIONS,
    errors_of,
    fetch_request,
    list_request,
    produce_request,
    request,
)
from highwater.reference.drivers.simulation.world import WALL_CLOCK_START_MS
from highwater.reference.procedures import Pending
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import PartitionData
from highwater.reference.wire.records import NewRecord, Record, batch_headers, build_batch, decode_records

E = ErrorCode
GROUP, TRANSACTION = 0, 1
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
MOVED: Final = frozenset({
    E.NOT_LEADER_OR_FOLLOWER, E.LEADER_NOT_AVAILABLE, E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE,
    E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_CONTROLLER, E.OFFSET_NOT_AVAILABLE, E.UNKNOWN_LEADER_EPOCH,
    E.FENCED_LEADER_EPOCH,
})  # fmt: skip
"""Errors after which a client looks for the leader, coordinator or controller again."""
PAUSE_MS: Final = 40
ATTEMPTS: Final = 60


def record(value: bytes | None, key: bytes | None = None, timestamp: int = WALL_CLOCK_START_MS) -> NewRecord:
    """Return a record without headers; its default time is that at which each run begins."""
    return timestamp, key, value, ()


def stored(offset: int, new: NewRecord) -> Record:
    """Return what a new record is once it is stored."""
    timestamp, key, value, headers = new
    return Record(offset, timestamp, key, value, tuple(headers))


class Session:
    """One run of one probe."""

    def __init__(self, prober: Prober, name: str) -> None:
        self._prober, self.name = prober, name
        self.cluster: SimulatedCluster = prober.surroundings.cluster
        self.brokers = self.cluster.broker_ids
        self._draws = 0
        self._found: dict[tuple[str, int], int] = {}
        self._topics = 0

    # -- judging -------------------------------------------------------------------------------------------

    def expect(self, condition: object, message: str) -> None:
        """Raise Unexpected if the condition is false: a correct cluster without faults answers otherwise."""
        if not condition:
            raise Unexpected(message)

    def equal(self, found: object, expected: object, what: str) -> None:
        """Raise Unexpected if both differ."""
        if found != expected:
            raise Unexpected(f"{what} is {found!r:.300}, not {expected!r:.300}")

    def error(self, found: int, expected: ErrorCode | Iterable[ErrorCode], what: str) -> None:
        """Raise Unexpected if the error code is none of those expected."""
        allowed = {expected} if isinstance(expected, ErrorCode) else set(expected)
        if found not in allowed:
            names = ", ".join(each.name for each in sorted(allowed))
            raise Unexpected(f"{what} is answered with {ErrorCode(found).name}, not {names}")

    def ok(self, found: int, what: str) -> None:
        """Raise Unexpected if the error code is not 0."""
        self.error(found, E.NONE, what)

    def require(self, condition: object, message: str) -> None:
        """Report a violation if the condition is false: it holds under every fault."""
        if not condition:
            about = About(node=self._prober.name)
            self._prober.surroundings.violated("AnswersFitModel", f"{self.name}: {message}", about)

    # -- time, chance and faults ------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Return the monotonic time."""
        return self._prober.now.monotonic_ms

    @property
    def wall_ms(self) -> int:
        """Return the wall clock time of a client whose clock is right."""
        return self._prober.now.wall_ms

    @property
    def client_id(self) -> str:
        """Return the client id of every request."""
        return self._prober.name

    @property
    def closures(self) -> int:
        """Return how often brokers have closed the connection of this client."""
        return self._prober.closures

    def sleep(self, delay_ms: int) -> Pending[None]:
        """Return what is resolved after so many milliseconds."""
        return self._prober.sleep(delay_ms)

    def draw(self, below: int) -> int:
        """Return a number below `below` that depends only on the seed, the session and the count of draws."""
        self._draws += 1
        return self.cluster.world.chance.draw(f"probe {self.name}", self._draws, below)

    def one_of(self, *choices: Any) -> Any:
        """Return one of the choices, which the seed draws."""
        return choices[self.draw(len(choices))]

    def rolling_restart(self) -> Pending[None]:
        """Wait until each broker of the cluster has restarted once."""
        self._found.clear()
        return self._prober.surroundings.barrier.wait(self._prober)

    @property
    def default_partitions(self) -> int:
        """Return num.partitions of every broker."""
        return int(self.cluster.settings.broker_settings["num_partitions"])

    # -- an outage of one broker --------------------------------------------------------------------------------

    @property
    def outage(self) -> Outage:
        """Return the outage of the run."""
        barrier = self._prober.surroundings.barrier
        assert isinstance(barrier, Outage), "the run has no outage"
        return barrier

    @property
    def victim(self) -> int:
        """Return the broker that stops."""
        return self.outage.victim

    @property
    def others(self) -> list[int]:
        """Return the brokers that do not stop."""
        return [each for each in self.cluster.broker_ids if each != self.victim]

    async def notice(self) -> None:
        """Wait until every probe is ready, shortly before the broker stops."""
        await self.outage.wait(self._prober)

    async def stopped(self) -> None:
        """Wait until the broker has stopped and others have taken over; only these are asked from now on."""
        await self.outage.wait(self._prober)
        self.brokers = self.others
        self._found.clear()

    async def returned(self) -> None:
        """Wait until every probe has seen the outage, and the broker runs again."""
        await self.outage.wait(self._prober)
        self.brokers = self.cluster.broker_ids
        self._found.clear()

    async def later(self) -> int:
        """Wait until the clocks of all brokers have advanced by the next step; return the minutes since the first."""
        await self.outage.wait(self._prober)
        return self.outage.passed_ms // MINUTE_MS

    @property
    def broker_ms(self) -> int:
        """Return the wall clock time of the brokers."""
        return self.wall_ms + self.outage.passed_ms

    def look_again(self) -> None:
        """Look for leaders and coordinators again: a follower answers a Fetch, too (KIP-392)."""
        self._found.clear()

    async def fault(self, kind: str, *nodes: object, for_ms: int = 0, **options: Option) -> None:
        """Start a fault, which ends after `for_ms`."""
        if kind in {"kill", "bounce"}:
            self._found.clear()
        if kind == "kill":
            options.setdefault("lose", "nothing")
        fault = Fault(at_ms=0, for_ms=for_ms, kind=kind, nodes=tuple(map(str, nodes)), options=options)
        self.cluster.world.schedule(1, partial(self._prober.surroundings.injector.inject, fault))
        await self.sleep(2)

    async def until(self, check: Callable[..., Awaitable[Any]], expected: Any, what: str, limit_ms: int = 5_000) -> Any:
        """Repeat a check every 50 ms until its result is `expected`; raises Unexpected after `limit_ms`."""
        end_ms = self.now_ms + limit_ms
        while (found := await check()) != expected:
            self.expect(self.now_ms < end_ms, f"{what} is {found!r:.200}, not {expected!r:.200}, for {limit_ms} ms")
            await self.sleep(50)
        return found

    # -- requests ------------------------------------------------------------------------------------------------

    def send(self, broker_id: int, body: Any, version: int = -1, patience_ms: int = REQUEST_TIMEOUT_MS) -> Pending[Any]:
        """Send a request; the result is the body of the response, or None if there is none."""
        if version < 0:
            version = VERSIONS[type(body).__name__.removesuffix("Request")]
        return self._prober.send(broker_id, body, version, patience_ms)

    async def ask(self, broker_id: int, body: Any, version: int = -1, patience_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """Return the body of the response; raises Unanswered without one."""
        answer = await self.send(broker_id, body, version, patience_ms)
        if answer is None:
            raise Unanswered(f"broker {broker_id} does not answer {type(body).__name__}")
        return answer

    async def ask_any(self, body: Any, version: int = -1, patience_ms: int = 5_000) -> Any:
        """Ask one broker after the other until the answer does not say that another one is responsible."""
        for attempt in range(ATTEMPTS):
            answer = await self.send(self.brokers[attempt % len(self.brokers)], body, version, patience_ms)
            if answer is not None and not errors_of(answer) & MOVED:
                return answer
            await self.sleep(PAUSE_MS)
        raise Unexpected(f"no broker is responsible for {type(body).__name__}")

    async def _ask_found(
        self, find: Callable[[], Awaitable[int]], key: tuple[str, int], body: Any, version: int, patience_ms: int,
        moved: Collection[int],
    ) -> Any:  # fmt: skip
        for _ in range(ATTEMPTS):
            if key not in self._found:
                self._found[key] = await find()
            answer = await self.ask(self._found[key], body, version, patience_ms)
            if not errors_of(answer).intersection(moved):
                return answer
            del self._found[key]
            await self.sleep(PAUSE_MS)
        raise Unexpected(f"{type(body).__name__} for {key[0]} is answered with {errors_of(answer)} for seconds")

    async def ask_leader(
        self, topic: str, partition: int, body: Any, version: int = -1, patience_ms: int = REQUEST_TIMEOUT_MS,
        moved: Collection[int] = MOVED,
    ) -> Any:  # fmt: skip
        """Ask the leader of a partition, and look for it again if it has moved."""
        find = partial(self.leader, topic, partition)
        return await self._ask_found(find, (topic, partition), body, version, patience_ms, moved)

    async def ask_coordinator(self, key: str, kind: int, body: Any, version: int = -1) -> Any:
        """Ask the coordinator of a group or of a transactional id, and look for it again if it has moved."""
        find = partial(self.coordinator, key, kind)
        return await self._ask_found(find, (f"{kind} {key}", -1), body, version, REQUEST_TIMEOUT_MS, MOVED)

    async def coordinator(self, key: str, kind: int = GROUP) -> int:
        """Return the coordinator of a group or of a transactional id."""
        answer = await self.ask_any(request("FindCoordinator", key=key, key_type=kind))
        self.ok(answer.error_code, "FindCoordinator")
        return int(answer.node_id)

    # -- topics ----------------------------------------------------------------------------------------------------

    async def create_topic(
        self, suffix: str = "", partitions: int = 1, replicas: int = 3, *,
        assigned: Sequence[Sequence[int]] = (), **settings: Any,
    ) -> str:  # fmt: skip
        """Create a topic and wait until each of its partitions has a leader and all its replicas are in sync."""
        self._topics += 1
        name = f"{self.name}-{suffix or self._topics}"
        answer = await self.request_topic(name, partitions, replicas, assigned=assigned, **settings)
        self.error(answer.error_code, {E.NONE, E.TOPIC_ALREADY_EXISTS}, f"CreateTopics of {name}")
        await self.healthy(name, len(assigned) or partitions)
        return name

    async def request_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, *, assigned: Sequence[Sequence[int]] = (),
        validate_only: bool = False, **settings: Any,
    ) -> Any:  # fmt: skip
        """Return what CreateTopics says of a topic; settings have underscores in place of dots."""
        topic = {
            "name": name,
            "num_partitions": -1 if assigned else partitions,
            "replication_factor": -1 if assigned else replicas,
            "assignments": [{"partition_index": n, "broker_ids": ids} for n, ids in enumerate(assigned)],
            "configs": [{"name": key.replace("_", "."), "value": str(settings[key])} for key in settings],
        }
        body = request("CreateTopics", topics=[topic], timeout_ms=2_000, validate_only=validate_only)
        return (await self.ask_any(body)).topics[0]

    async def metadata(self, name: str, broker_id: int = 0) -> Any:
        """Return what a broker knows of a topic."""
        body = request("Metadata", topics=[{"name": name}], allow_auto_topic_creation=False)
        first = self.draw(len(self.brokers))
        for number in range(len(self.brokers)):
            answer = await self.send(broker_id or self.brokers[(first + number) % len(self.brokers)], body)
            if answer is not None:
                return answer.topics[0]
        raise Unanswered("no broker answers MetadataRequest")

    async def known(self, topic: str, broker_id: int = 0) -> Any:
        """Return what a broker knows of partition 0 of a topic."""
        return (await self.metadata(topic, broker_id)).partitions[0]

    async def isr(self, topic: str, broker_id: int = 0) -> set[int]:
        """Return the ISR of partition 0 in Metadata."""
        return set((await self.known(topic, broker_id)).isr_nodes)

    async def leader_at(self, topic: str, broker_id: int) -> int:
        """Return the leader of partition 0 in the Metadata of a broker, or -1."""
        return int((await self.known(topic, broker_id)).leader_id)

    async def healthy(self, name: str, partitions: int = 1, limit_ms: int = 6_000) -> None:
        """Wait until every broker knows a leader and a complete ISR of each partition."""

        async def is_healthy() -> bool:
            for broker_id in self.brokers:
                try:
                    topic = await self.metadata(name, broker_id)
                except Unanswered:
                    return False
                if topic.error_code or len(topic.partitions) != partitions:
                    return False
                if any(p.leader_id < 0 or set(p.isr_nodes) != set(p.replica_nodes) for p in topic.partitions):
                    return False
            return True

        await self.until(is_healthy, True, f"whether {name} has leaders and complete ISRs", limit_ms)

    async def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition."""
        for _ in range(ATTEMPTS):
            for found in (await self.metadata(topic)).partitions:
                if found.partition_index == partition and found.leader_id >= 0:
                    return int(found.leader_id)
            await self.sleep(PAUSE_MS)
        raise Unexpected(f"{topic}-{partition} has no leader for seconds")

    # -- records --------------------------------------------------------------------------------------------------

    async def produce(self, topic: str, batch: bytes, partition: int = 0, version: int = 9, **fields: Any) -> Any:
        """Return what Produce says of one batch."""
        body = produce_request(topic, {partition: batch}, **fields)
        answer = await self.ask_leader(topic, partition, body, version, body.timeout_ms + REQUEST_TIMEOUT_MS)
        return answer.responses[0].partition_responses[0]

    async def append(self, topic: str, records: Sequence[NewRecord], partition: int = 0, **options: Any) -> int:
        """Append records, which must succeed; return the offset of the first one."""
        answer = await self.produce(topic, build_batch(records, **options), partition)
        self.ok(answer.error_code, f"Produce to {topic}-{partition}")
        return int(answer.base_offset)

    async def values(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Append one batch for each value."""
        for value in values:
            await self.append(topic, [record(value, None, self.wall_ms)], partition)

    async def fetch(
        self, topic: str, offset: int, partition: int = 0, *, isolation: int = READ_UNCOMMITTED,
        partition_max_bytes: int = BIG, max_bytes: int = BIG, epoch: int = -1,
    ) -> PartitionData:  # fmt: skip
        """Return what the leader returns of a partition at once; an error for `epoch` is returned, too."""
        of_each = {"partition_max_bytes": partition_max_bytes, "current_leader_epoch": epoch}
        body = fetch_request(topic, {partition: offset}, of_each, max_bytes=max_bytes, isolation_level=isolation)
        answer = await self.ask_leader(topic, partition, body, moved=MOVED if epoch < 0 else ())
        data: PartitionData = answer.responses[0].partitions[0]
        return data

    async def read(
        self, topic: str, start: int = 0, partition: int = 0, *, isolation: int = READ_UNCOMMITTED, end: int = -1,
        partition_max_bytes: int = BIG,
    ) -> list[Record]:  # fmt: skip
        """Return all records from `start` to `end` (the last stable offset or high watermark if -1).

        With READ_COMMITTED those of aborted transactions are left out.
        """
        records: list[Record] = []
        position = start
        for _ in range(ATTEMPTS * 4):
            data = await self.fetch(
                topic, position, partition, isolation=isolation, partition_max_bytes=partition_max_bytes
            )
            self.ok(data.error_code, f"Fetch of {topic}-{partition} at {position}")
            limit = data.last_stable_offset if isolation else data.high_watermark
            if position >= (end if end >= 0 else limit):
                return [r for r in records if end < 0 or r.offset < end]
            found, next_position = delivered(data, position, read_committed=bool(isolation))
            records += found
            if next_position == position:
                await self.sleep(PAUSE_MS)
            position = next_position
        raise Unexpected(f"{topic}-{partition} cannot be read beyond {position}")

    async def listed(self, topic: str, timestamp: int, partition: int = 0, isolation: int = 0) -> tuple[int, int]:
        """Return offset and timestamp of ListOffsets."""
        answer = await self.ask_leader(topic, partition, list_request(topic, timestamp, partition, isolation))
        found = answer.topics[0].partitions[0]
        self.ok(found.error_code, f"ListOffsets of {topic}-{partition} at {timestamp}")
        return int(found.offset), int(found.timestamp)

    async def offset(self, topic: str, timestamp: int, partition: int = 0, isolation: int = 0) -> int:
        """Return the offset of ListOffsets."""
        return (await self.listed(topic, timestamp, partition, isolation))[0]


def batches_of(data: PartitionData) -> list[Any]:
    """Return the headers of the batches of a response."""
    return [header for _, header in batch_headers(bytes(data.records or b""))]


def sizes_of(answer: Any) -> dict[int, int]:
    """Return the bytes of each partition in a Fetch response."""
    return {p.partition_index: len(bytes(p.records or b"")) for t in answer.responses for p in t.partitions}


def delivered(data: PartitionData, position: int, *, read_committed: bool) -> tuple[list[Record], int]:
    """Return what a consumer delivers of a response, and where it fetches next (KIP-98)."""
    content = bytes(data.records or b"")
    aborted = sorted(data.aborted_transactions or (), key=lambda each: each.first_offset)
    aborting: set[int] = set()
    records: list[Record] = []
    for start, header in batch_headers(content):
        while read_committed and aborted and aborted[0].first_offset <= header.last_offset:
            aborting.add(aborted.pop(0).producer_id)
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            records += [r for r in decode_records(content, start)[1] if r.offset >= position]
        position = max(position, header.next_offset)
    return records, position

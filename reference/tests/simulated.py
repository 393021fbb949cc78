"""Brokers in the simulator with a client; each request runs the simulation until its response arrives."""

from typing import Any

from highwater.reference.broker import Broker
from highwater.reference.configuration.broker import BrokerConfig, StoreConfig
from highwater.reference.drivers.simulation.world import WALL_CLOCK_START_MS, World
from highwater.reference.effects import STORE, Effect, Instant, Request, Response, Send, broker_peer
from highwater.reference.store.metadata_store import MetadataStore
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from highwater.reference.wire.records import batch_headers, build_batch, decode_records

CLIENT = "client"
STEP_MS = 5
PATIENCE_MS = 30_000
QUICK: dict[str, Any] = {
    "metadata_store_session_timeout_ms": 900,
    "replica_lag_time_max_ms": 600,
    "replica_fetch_wait_max_ms": 50,
    "replica_fetch_backoff_ms": 50,
    "request_timeout_ms": 1_000,
    "offsets_topic_num_partitions": 2,
    "transaction_state_log_num_partitions": 2,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500,
}


class Hand:
    """A node that keeps the responses that it receives."""

    def __init__(self) -> None:
        self.answers: dict[int, Any] = {}

    def start(self, now: Instant) -> list[Effect]:
        return []

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        self.answers[message.correlation_id] = message.body
        return []

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        return []

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        return []


class Simulated:
    def __init__(self, brokers: int = 1, seed: int = 0, **settings: Any) -> None:
        self.world = World(seed)
        self.world.add(STORE, lambda disk: MetadataStore(StoreConfig(tick_ms=100), disk))
        self.broker_ids = list(range(1, brokers + 1))
        common = {
            "default_replication_factor": brokers,
            "offsets_topic_replication_factor": brokers,
            "transaction_state_log_replication_factor": brokers,
            "min_insync_replicas": min(brokers, 2),
        }
        for broker_id in self.broker_ids:
            config = BrokerConfig(broker_id=broker_id, port=9091 + broker_id, **{**QUICK, **common, **settings})
            self.world.add(broker_peer(broker_id), lambda disk, c=config: Broker(c, disk))  # type: ignore[misc]
        self.hand = Hand()
        self.world.add(CLIENT, lambda disk: self.hand)
        self._asked = 0
        for name in (STORE, *map(broker_peer, self.broker_ids), CLIENT):
            self.world.start(name)
        self.wait(lambda: self.ask(MetadataRequest(topics=()), 9, self.broker_ids[0]).controller_id >= 0)

    def wait(self, condition: Any) -> None:
        """Run until the condition holds; raises AssertionError after 30 s of virtual time."""
        deadline_ms = self.world.now_ms + PATIENCE_MS
        while not condition():
            assert self.world.now_ms < deadline_ms, "the condition did not become true within 30 s of virtual time"
            self.world.run_until(self.world.now_ms + STEP_MS)

    def run(self, wait_ms: int) -> None:
        self.world.run_until(self.world.now_ms + wait_ms)

    def broker(self, broker_id: int = 1) -> Broker:
        node = self.world.hosts[broker_peer(broker_id)].node
        assert isinstance(node, Broker)
        return node

    # -- requests --------------------------------------------------------------------------------

    def send(self, body: Any, version: int, broker_id: int = 1) -> int:
        """Send a request and return its correlation id; `answer` waits for the response."""
        self._asked += 1
        request = Request(self._asked, version, body, "hand")
        self.world.enter(CLIENT, lambda now: [Send(broker_peer(broker_id), request)])
        return self._asked

    def answer(self, correlation_id: int) -> Any:
        self.wait(lambda: correlation_id in self.hand.answers)
        return self.hand.answers[correlation_id]

    def ask(self, body: Any, version: int, broker_id: int = 1) -> Any:
        return self.answer(self.send(body, version, broker_id))

    def create(self, topic: str, partitions: int = 1) -> None:
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=len(self.broker_ids))

        def created() -> bool:
            errors = [
                self.ask(CreateTopicsRequest(topics=(wanted,), timeout_ms=2_000), 5, each).topics[0].error_code
                for each in self.broker_ids
            ]
            return bool({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS} & set(errors))

        self.wait(created)
        self.wait(lambda: all(self.leader(topic, number, each) > 0 for number in range(partitions) for each in self.up))

    @property
    def up(self) -> list[int]:
        return [each for each in self.broker_ids if self.world.is_up(broker_peer(each))]

    def leader(self, topic: str, number: int = 0, broker_id: int | None = None) -> int:
        """Return the leader in the metadata of a broker, or -1 if there is none."""
        body = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
        found = self.ask(body, 9, broker_id or self.up[0]).topics[0]
        return next((p.leader_id for p in found.partitions if p.partition_index == number), -1)

    def coordinator(self, key: str, key_type: int) -> int:
        def find() -> int:
            body = FindCoordinatorRequest(key=key, key_type=key_type)
            return int(self.ask(body, 2, self.up[0]).node_id)

        self.wait(lambda: find() > 0)
        return find()

    # -- data ------------------------------------------------------------------------------------

    def produce(
        self, topic: str, values: list[bytes], number: int = 0, *, version: int = 9,
        transactional_id: str | None = None, age_ms: int = 0, **batch: Any,
    ) -> Any:  # fmt: skip
        """Produce one batch with timestamps `age_ms` ago; returns the response for the partition."""
        body = self.produce_request(topic, values, number, transactional_id=transactional_id, age_ms=age_ms, **batch)
        return self.ask(body, version, self.leader(topic, number)).responses[0].partition_responses[0]

    def produce_request(
        self, topic: str, values: list[bytes], number: int = 0, *,
        transactional_id: str | None = None, age_ms: int = 0, **batch: Any,
    ) -> ProduceRequest:  # fmt: skip
        """Return a request with one batch with timestamps `age_ms` ago."""
        timestamp = WALL_CLOCK_START_MS + self.world.now_ms - age_ms
        records = build_batch([(timestamp, b"k", value, ()) for value in values], **batch)
        data = PartitionProduceData(index=number, records=records)
        return ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=2_000,
            topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
        )  # fmt: skip

    def fetch(self, topic: str, number: int = 0, *, offset: int = 0, isolation_level: int = 0) -> Any:
        requested = FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        body = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=isolation_level,
            session_epoch=-1, topics=(FetchTopic(topic=topic, partitions=(requested,)),),
        )  # fmt: skip
        return self.ask(body, 12, self.leader(topic, number)).responses[0].partitions[0]

    def read_committed(self, topic: str, number: int = 0) -> list[bytes]:
        """Return the values below the last stable offset, without control records and aborted transactions."""
        inside: set[int] = set()
        values: list[bytes] = []
        offset = 0
        while True:
            data = self.fetch(topic, number, offset=offset, isolation_level=1)
            if not data.records:
                return values
            aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions)
            for position, header in batch_headers(data.records):
                while aborted and aborted[0][0] <= header.last_offset:
                    inside.add(aborted.pop(0)[1])
                if header.is_control:
                    inside.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in inside):
                    values += [record.value or b"" for record in decode_records(data.records, position)[1]]
                offset = header.next_offset

    def end_offset(self, topic: str, number: int = 0, isolation_level: int = 0) -> int:
        """Return the log end offset, or -1 while a new leader does not know it."""
        requested = ListOffsetsPartition(partition_index=number, timestamp=-1)
        body = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation_level,
            topics=(ListOffsetsTopic(name=topic, partitions=(requested,)),),
        )  # fmt: skip
        answer = self.ask(body, 5, self.leader(topic, number)).topics[0].partitions[0]
        return int(answer.offset) if answer.error_code == ErrorCode.NONE else -1

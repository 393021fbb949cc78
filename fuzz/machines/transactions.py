"""Check transactions on one broker: producers that fence each other, time-outs, restarts, lost responses.

After every step each partition is read with read_committed. Values are unique. For each transaction the model knows
whether it was committed, was aborted, or has an unknown outcome (an EndTxn request without a response).
"""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from highwater.reference.effects import broker_peer
from highwater.reference.tests.simulated import Simulated
from highwater.reference.tests.transactional import Producer
from highwater.reference.wire.errors import ErrorCode

TOPIC = "t"
PARTITIONS = 2
NAMES = ("a", "b")
SHORT_TIMEOUT_MS = 2_000
PartitionValues = list[tuple[int, bytes]]


@dataclass
class ProducerInstance:
    """A producer of a transactional.id: the newest one of a name is active, earlier ones are fenced.

    `written` has the (partition, value) pairs of its open transaction.
    """

    producer: Producer
    written: PartitionValues = field(default_factory=list)
    fenced: bool = False


class TransactionMachine(RuleBasedStateMachine):
    """`forbidden` are the values that no reader may return; `unknown` are transactions with an unknown outcome."""

    def __init__(self) -> None:
        super().__init__()
        self.instances: list[ProducerInstance] = []
        self.committed: list[PartitionValues] = []
        self.forbidden: set[bytes] = set()
        self.unknown: list[PartitionValues] = []
        self.values = 0

    @initialize(newest=st.booleans(), segment_bytes=st.sampled_from([250, 1 << 30]))
    def begin(self, newest: bool, segment_bytes: int) -> None:
        self.newest = newest
        self.world = Simulated(log_segment_bytes=segment_bytes)
        self.world.create(TOPIC, PARTITIONS)
        for name in NAMES:
            self._init(name)

    def _init(self, name: str) -> None:
        for instance in self.instances:
            if instance.producer.name == name:
                instance.fenced = True
        producer = Producer(self.world, name, newest=self.newest, timeout_ms=SHORT_TIMEOUT_MS).init()
        for instance in self.instances:
            if instance.producer.name == name:
                self._forbid_written(instance)
        self.instances.append(ProducerInstance(producer))

    def _forbid_written(self, instance: ProducerInstance) -> None:
        self.forbidden |= {value for _, value in instance.written}
        instance.written = []

    # -- steps -----------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def a_successor_begins(self, name: str) -> None:
        self._init(name)

    @rule(data=st.data(), number=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3))
    def write(self, data: st.DataObject, number: int, count: int) -> None:
        self._write(data.draw(st.sampled_from(self.instances)), number, count)

    @rule(name=st.sampled_from(NAMES), commit=st.booleans())
    def a_whole_transaction(self, name: str, commit: bool) -> None:
        """Write to all partitions with the active producer of a name, then end the transaction."""
        instance = next(instance for instance in reversed(self.instances) if instance.producer.name == name)
        for number in range(PARTITIONS):
            self._write(instance, number, 1)
        self._end(instance, commit=commit)

    def _write(self, instance: ProducerInstance, number: int, count: int) -> None:
        values = [b"%d" % (self.values + index) for index in range(count)]
        self.values += count
        producer = instance.producer
        error = ErrorCode.NONE if producer.newest else producer.try_add(TOPIC, number)
        if error is ErrorCode.NONE:
            error = producer.try_write(TOPIC, *values, number=number)
        if error is ErrorCode.NONE:
            assert not instance.fenced, "a fenced producer wrote"
            instance.written += [(number, value) for value in values]
        else:
            self.forbidden |= set(values)
            self._handle_error(instance, error)

    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        self._end(data.draw(st.sampled_from(self.instances)), commit=commit)

    def _end(self, instance: ProducerInstance, *, commit: bool) -> None:
        error = instance.producer.try_end(commit=commit)
        if error is not ErrorCode.NONE:
            self._handle_error(instance, error)
            return
        assert not instance.fenced or not instance.written, "a fenced producer ended a transaction"
        if commit and instance.written:
            self.committed.append(instance.written)
            instance.written = []
        else:
            if instance.written:
                event("aborted transaction")
            self._forbid_written(instance)

    @rule(data=st.data(), commit=st.booleans())
    def end_without_an_answer(self, data: st.DataObject, commit: bool) -> None:
        """Send EndTxn and ignore the response; the next producer of the name then ends the transaction either way."""
        instance = data.draw(st.sampled_from(self.instances))
        self.world.send(*instance.producer.end_request(commit=commit))
        if instance.written and commit and not instance.fenced:
            self.unknown.append(instance.written)
            instance.written = []
        else:
            self._forbid_written(instance)
        if not instance.fenced:
            self._init(instance.producer.name)

    def _handle_error(self, instance: ProducerInstance, error: ErrorCode) -> None:
        """Handle an error: the producer was fenced by a successor or a time-out, or had no open transaction."""
        if error is ErrorCode.INVALID_TXN_STATE:
            assert not instance.written, "the coordinator lost an open transaction"
            return
        assert error in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}, error.name
        event("fenced producer")
        instance.fenced = True
        self._forbid_written(instance)

    @rule(wait_ms=st.sampled_from([1, 50, 3_000]))
    def time_passes(self, wait_ms: int) -> None:
        self.world.run(wait_ms)

    @precondition(lambda self: self.instances)
    @rule(clean=st.booleans())
    def the_coordinator_restarts(self, clean: bool) -> None:
        """Restart the broker; the page cache keeps all written data."""
        event("coordinator restart")
        world = self.world.world
        if clean:
            world.enter(broker_peer(1), self.world.broker().stop)
        world.crash(broker_peer(1), lose_unflushed=False)
        world.start(broker_peer(1))
        self.world.wait(lambda: all(self.world.leader(TOPIC, number) == 1 for number in range(PARTITIONS)))
        self.world.coordinator(NAMES[0], 1)

    # -- invariants ------------------------------------------------------------------------------

    def _read_committed(self) -> list[list[bytes]]:
        return [self.world.read_committed(TOPIC, number) for number in range(PARTITIONS)]

    @invariant()
    def no_reader_returns_open_or_aborted_values(self) -> None:
        visible = {value for values in self._read_committed() for value in values}
        is_open = {value for instance in self.instances for _, value in instance.written}
        assert not visible & (self.forbidden | is_open)

    @invariant()
    def the_last_stable_offset_is_that_of_the_first_open_transaction(self) -> None:
        """The expected offset is derived from the batches: the first transaction without a committed marker."""
        for number in range(PARTITIONS):
            partition = self.world.broker().replicas.partitions[TOPIC, number]
            undecided: dict[int, int] = {}
            for header in partition.log.headers(0):
                if header.is_control and header.last_offset < partition.high_watermark:
                    undecided.pop(header.producer_id, None)
                elif header.is_transactional and not header.is_control:
                    undecided.setdefault(header.producer_id, header.base_offset)
            expected = min([partition.high_watermark, *undecided.values()])
            assert partition.log.producers.last_stable_offset(partition.high_watermark) == expected

    def teardown(self) -> None:
        """Check at the end that every transaction is visible once in all its partitions, or in none."""
        for name in NAMES:
            self._init(name)
        self.world.wait(
            lambda: all(
                0 <= self.world.end_offset(TOPIC, number) == self.world.end_offset(TOPIC, number, isolation_level=1)
                for number in range(PARTITIONS)
            )
        )
        visible = Counter((number, value) for number, values in enumerate(self._read_committed()) for value in values)
        assert not visible or max(visible.values()) == 1
        for values in self.committed:
            assert all(visible.pop(pair, 0) for pair in values), "a committed transaction is incomplete or lost"
        for values in self.unknown:
            assert len({visible.pop(pair, 0) for pair in values}) == 1, (
                "a transaction is visible in some partitions only"
            )
        assert not visible

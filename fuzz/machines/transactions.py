"""A random life of transactions on one broker: producers that fence each other, time-outs, restarts, lost answers.

After every step each partition is read as a read_committed consumer reads it.  Values are unique, and the model knows
of each transaction whether it committed, did not, or whether only the log knows (an EndTxn without an answer).
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
Effects = list[tuple[int, bytes]]


@dataclass
class Life:
    """One producer of a transactional id: the newest of a name is alive, those before it are zombies."""

    producer: Producer
    written: Effects = field(default_factory=list)
    fenced: bool = False


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lives: list[Life] = []
        self.committed: list[Effects] = []
        self.forbidden: set[bytes] = set()
        self.unknown: list[Effects] = []
        self.values = 0

    @initialize(newest=st.booleans(), segment_bytes=st.sampled_from([250, 1 << 30]))
    def begin(self, newest: bool, segment_bytes: int) -> None:
        self.newest = newest
        self.world = Simulated(log_segment_bytes=segment_bytes)
        self.world.create(TOPIC, PARTITIONS)
        for name in NAMES:
            self._init(name)

    def _init(self, name: str) -> None:
        for life in self.lives:
            if life.producer.name == name:
                life.fenced = True
        producer = Producer(self.world, name, newest=self.newest, timeout_ms=SHORT_TIMEOUT_MS).init()
        for life in self.lives:
            if life.producer.name == name:
                self._dropped(life)
        self.lives.append(Life(producer))

    def _dropped(self, life: Life) -> None:
        self.forbidden |= {value for _, value in life.written}
        life.written = []

    # -- steps -----------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def a_successor_begins(self, name: str) -> None:
        self._init(name)

    @rule(data=st.data(), number=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3))
    def write(self, data: st.DataObject, number: int, count: int) -> None:
        self._write(data.draw(st.sampled_from(self.lives)), number, count)

    @rule(name=st.sampled_from(NAMES), commit=st.booleans())
    def a_whole_transaction(self, name: str, commit: bool) -> None:
        """Of whoever is alive under a name, over all partitions."""
        life = next(life for life in reversed(self.lives) if life.producer.name == name)
        for number in range(PARTITIONS):
            self._write(life, number, 1)
        self._end(life, commit=commit)

    def _write(self, life: Life, number: int, count: int) -> None:
        values = [b"%d" % (self.values + each) for each in range(count)]
        self.values += count
        producer = life.producer
        error = ErrorCode.NONE if producer.newest else producer.try_add(TOPIC, number)
        if error is ErrorCode.NONE:
            error = producer.try_write(TOPIC, *values, number=number)
        if error is ErrorCode.NONE:
            assert not life.fenced, "a zombie wrote"
            life.written += [(number, value) for value in values]
        else:
            self.forbidden |= set(values)
            self._lost(life, error)

    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        self._end(data.draw(st.sampled_from(self.lives)), commit=commit)

    def _end(self, life: Life, *, commit: bool) -> None:
        error = life.producer.try_end(commit=commit)
        if error is not ErrorCode.NONE:
            self._lost(life, error)
            return
        assert not life.fenced or not life.written, "a zombie ended a transaction"
        if commit and life.written:
            self.committed.append(life.written)
            life.written = []
        else:
            if life.written:
                event("aborted transaction")
            self._dropped(life)

    @rule(data=st.data(), commit=st.booleans())
    def end_without_an_answer(self, data: st.DataObject, commit: bool) -> None:
        """The producer gives up; whoever comes after it ends what it left, one way or the other."""
        life = data.draw(st.sampled_from(self.lives))
        self.world.send(*life.producer.end_request(commit=commit))
        if life.written and commit and not life.fenced:
            self.unknown.append(life.written)
            life.written = []
        else:
            self._dropped(life)
        if not life.fenced:
            self._init(life.producer.name)

    def _lost(self, life: Life, error: ErrorCode) -> None:
        """Fenced by a successor or a time-out; or nothing was open."""
        if error is ErrorCode.INVALID_TXN_STATE:
            assert not life.written, "an open transaction was forgotten"
            return
        assert error in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}, error.name
        event("fenced producer")
        life.fenced = True
        self._dropped(life)

    @rule(wait_ms=st.sampled_from([1, 50, 3_000]))
    def time_passes(self, wait_ms: int) -> None:
        self.world.run(wait_ms)

    @precondition(lambda self: self.lives)
    @rule(clean=st.booleans())
    def the_coordinator_restarts(self, clean: bool) -> None:
        """What was written is in the page cache, which outlives the process."""
        event("coordinator restart")
        world = self.world.world
        if clean:
            world.enter(broker_peer(1), self.world.broker().stop)
        world.crash(broker_peer(1), lose_unflushed=False)
        world.start(broker_peer(1))
        self.world.wait(lambda: all(self.world.leader(TOPIC, number) == 1 for number in range(PARTITIONS)))
        self.world.coordinator(NAMES[0], 1)

    # -- what must hold --------------------------------------------------------------------------

    def _seen(self) -> list[list[bytes]]:
        return [self.world.read_committed(TOPIC, number) for number in range(PARTITIONS)]

    @invariant()
    def no_reader_sees_what_is_open_or_aborted(self) -> None:
        seen = {value for values in self._seen() for value in values}
        is_open = {value for life in self.lives for _, value in life.written}
        assert not seen & (self.forbidden | is_open)

    @invariant()
    def the_last_stable_offset_stands_at_the_first_open_transaction(self) -> None:
        """Of those whose marker is not committed, by the log itself."""
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
        """When all is quiet every transaction is whole: seen in all its partitions, once, or nowhere."""
        for name in NAMES:
            self._init(name)
        self.world.wait(
            lambda: all(
                0 <= self.world.end_offset(TOPIC, number) == self.world.end_offset(TOPIC, number, isolation_level=1)
                for number in range(PARTITIONS)
            )
        )
        seen = Counter((number, value) for number, values in enumerate(self._seen()) for value in values)
        assert not seen or max(seen.values()) == 1
        for effects in self.committed:
            assert all(seen.pop(effect, 0) for effect in effects), "a committed transaction is torn or lost"
        for effects in self.unknown:
            assert len({seen.pop(effect, 0) for effect in effects}) == 1, "a transaction is torn"
        assert not seen

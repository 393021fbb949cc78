"""A log against a plain list: append, truncate, roll, flush, delete, crash and open again, in any order."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reference.drivers.simulation.disk import SimulatedDisk
from reference.storage.log import Log, LogConfig
from reference.wire.compression import Compression
from reference.wire.log_entries import decode_entry, entries
from reference.wire.records import batch_headers, build_batch

FOLDER = "t-0"
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, segment_ms=5_000)


class LogMachine(RuleBasedStateMachine):
    """`batches` holds (base offset, values, epoch) of every batch of the log; `durable` is below what was flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.log = Log(self.disk, FOLDER, CONFIG)
        self.batches: list[tuple[int, list[bytes], int]] = []
        self.start = self.epoch = self.time = 0

    @property
    def end(self) -> int:
        end = self.batches[-1][0] + len(self.batches[-1][1]) if self.batches else self.empty_at
        return max(end, self.start)

    empty_at = 0

    @rule(
        values=st.lists(st.binary(max_size=40), min_size=1, max_size=5),
        codec=st.sampled_from(list(Compression)),
        later_ms=st.integers(-3_000, 3_000),
        new_epoch=st.booleans(),
    )
    def append(self, values: list[bytes], codec: Compression, later_ms: int, new_epoch: bool) -> None:
        self.epoch += new_epoch
        self.time = max(self.time + later_ms, 0)
        data = build_batch([(self.time, None, value, ()) for value in values], compression=codec)
        ((_, header),) = batch_headers(data)
        assert self.log.append_as_leader(data, header, self.epoch) == self.end
        self.batches.append((self.end, values, self.epoch))

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = self.start + int(part * (self.end - self.start))
        self.log.truncate_to(offset)
        kept = [batch for batch in self.batches if batch[0] + len(batch[1]) <= offset]
        if not kept and self.batches:
            self.empty_at = self.log.log_end_offset
            assert self.log.log_end_offset <= offset
        self.batches = kept

    @rule()
    def flush(self) -> None:
        for path in self.log.begin_flush():
            self.disk.flush(path)
        self.log.flushed()
        assert self.log.recovery_point == self.log.log_end_offset

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @precondition(lambda self: bool(self.batches))
    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.start = self.start + int(part * (self.end - self.start))
        self.log.advance_log_start(self.start)

    @rule(lose=st.booleans())
    def crash(self, lose: bool) -> None:
        """What was flushed stays; of the rest a beginning stays."""
        flushed = self.log.recovery_point
        if lose:
            self.disk.lose_unflushed()
        self.log = Log(self.disk, FOLDER, CONFIG, recovery_point=flushed, clean=False, log_start_offset=self.start)
        end = self.log.log_end_offset
        assert min(flushed, self.end) <= end <= self.end
        assert lose is True or end == self.end
        self.batches = [batch for batch in self.batches if batch[0] + len(batch[1]) <= end]
        if not self.batches:
            self.empty_at = end

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        for name in self.disk.names(FOLDER):  # as the driver does
            self.disk.flush(f"{FOLDER}/{name}")
        self.log = Log(
            self.disk, FOLDER, CONFIG,
            recovery_point=self.log.recovery_point, clean=True, log_start_offset=self.start,
        )  # fmt: skip

    @invariant()
    def every_record_is_found_from_every_offset(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        expected = [(base + n, value) for base, values, _ in self.batches for n, value in enumerate(values)]
        expected = [row for row in expected if row[0] >= self.start]
        found: list[tuple[int, Any]] = []
        offset = self.start
        while offset < self.log.log_end_offset:
            data = self.log.read(offset, 1 << 20, self.log.log_end_offset, at_least_one=True)
            for position, header in entries(data):
                found += [(r.offset, r.value) for r in decode_entry(data, position)[1] if r.offset >= offset]
                offset = header.next_offset
        assert found == expected

    @invariant()
    def the_epochs_are_those_of_the_batches(self) -> None:
        for base, values, epoch in self.batches:
            if base >= self.start:
                slot = max(n for n, (_, start) in enumerate(self.log.epochs.entries) if start <= base)
                assert self.log.epochs.entries[slot][0] == epoch, (base, values)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(deadline=None, max_examples=150, stateful_step_count=40)

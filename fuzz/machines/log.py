"""Compare a log with a dict: append, truncate, flush, roll, compact, expire, delete, crash and open again.

The model has each record by its offset, and for each batch its base offset, end offset and leader epoch. The rules stay
within the protocol: they truncate nothing below the high watermark and compact or delete nothing above it.
"""

from typing import Any, Final

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from highwater.reference.drivers.simulation.chance import Stream
from highwater.reference.drivers.simulation.disk import Lose, SimulatedDisk
from highwater.reference.storage.cleaner import clean, cleanable_end, install
from highwater.reference.storage.log import Log, LogConfig, retain
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.log_entries import decode_entry, entries
from highwater.reference.wire.records import batch_headers, build_batch

FOLDER: Final = "t-0"
CONFIG: Final = LogConfig(
    segment_bytes=350, index_interval_bytes=100, segment_ms=5_000, retention_bytes=900, delete_retention_ms=2_000
)
PARTS: Final = st.floats(0, 1)
KEYS: Final = st.sampled_from([b"a", b"b", b"c"])
VALUES: Final = st.none() | st.binary(max_size=40) | st.just(bytes(200))

Row = tuple[bytes, bytes | None]


class LogMachine(RuleBasedStateMachine):
    """`batches` has (base offset, end, epoch) of every batch that was not truncated, `rows` the expected records."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.log = Log(self.disk, FOLDER, CONFIG)
        self.batches: list[tuple[int, int, int]] = []
        self.rows: dict[int, Row] = {}
        self.start = self.epoch = self.time = self.high_watermark = self.cleaned = self.crashes = 0
        self.empty_at = 0  # log end offset of an empty log

    @property
    def end(self) -> int:
        """Return the expected log end offset."""
        return max(self.batches[-1][1] if self.batches else self.empty_at, self.start)

    def _between(self, low: int, high: int, part: float) -> int:
        return low + int(part * (high - low))

    def _keep_below(self, end: int) -> None:
        """Remove whole batches from the model after a truncation at `end`."""
        if self.batches and self.batches[-1][1] > end:
            event("truncation")
        self.batches = [batch for batch in self.batches if batch[1] <= end]
        if not self.batches:
            self.empty_at = self.log.log_end_offset
            assert self.empty_at <= end
        self.rows = {offset: row for offset, row in self.rows.items() if offset < self.end}

    # -- steps -----------------------------------------------------------------------------------

    @rule(
        rows=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5),
        codec=st.sampled_from(list(Compression)),
        later_ms=st.integers(-3_000, 3_000),
        new_epoch=st.booleans(),
    )
    def append(self, rows: list[Row], codec: Compression, later_ms: int, new_epoch: bool) -> None:
        self.epoch += new_epoch
        self.time = max(self.time + later_ms, 0)
        data = build_batch([(self.time, key, value, ()) for key, value in rows], compression=codec)
        ((_, header),) = batch_headers(data)
        base = self.end
        assert self.log.append_as_leader(data, header, self.epoch) == base
        self.batches.append((base, base + len(rows), self.epoch))
        self.rows |= {base + n: row for n, row in enumerate(rows)}

    @rule(batches=st.integers(3, 6))
    def grow(self, batches: int) -> None:
        """Append batches until there are closed segments for the cleaner and for retention."""
        for _ in range(batches):
            self.append([(b"a", bytes(200))], Compression.NONE, 1_000, new_epoch=False)
        self.commit(1.0)

    @rule(part=PARTS)
    def commit(self, part: float) -> None:
        self.high_watermark = self._between(self.high_watermark, self.end, part)

    @rule(part=PARTS)
    def truncate(self, part: float) -> None:
        offset = self._between(self.high_watermark, self.end, part)
        self.log.truncate_to(offset)
        self._keep_below(offset)
        self.high_watermark = min(self.high_watermark, self.end)  # it may have been inside a truncated batch

    @rule()
    def flush(self) -> None:
        for path in self.log.begin_flush():
            self.disk.flush(path)
        self.log.complete_flush()
        assert self.log.recovery_point == self.log.log_end_offset

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @precondition(lambda self: bool(self.batches))
    @rule(part=PARTS)
    def delete_records(self, part: float) -> None:
        self.start = self._between(self.start, max(self.start, self.high_watermark), part)
        self.log.advance_log_start(self.start)

    @rule(crash_before_it_is_in_place=st.booleans())
    def compact(self, crash_before_it_is_in_place: bool) -> None:
        """Compact: of each key the last cleaned record stays; a tombstone may be removed after delete.retention.ms."""
        self.flush()
        end = cleanable_end(self.log, self.time, self.high_watermark)
        if end <= self.cleaned:
            return
        cleaning = clean(self.log, self.cleaned, end, self.time)
        for path in cleaning.paths:
            self.disk.flush(path)
        if crash_before_it_is_in_place:
            self.crash("nothing")
            return
        install(self.log, cleaning)
        self.cleaned = cleaning.end
        last = {key: offset for offset, (key, _) in self.rows.items() if offset < cleaning.end}
        before, left = len(self.rows), {offset for offset, _, _ in self._read_all()}
        self.rows = {
            offset: (key, value)
            for offset, (key, value) in self.rows.items()
            if offset >= cleaning.end or (last[key] == offset and (value is not None or offset in left))
        }
        if len(self.rows) < before:
            event("compaction")

    @rule()
    def expire(self) -> None:
        """Apply retention, which deletes the oldest whole segments and does not go below retention.bytes."""
        sizes = [segment.size for segment in self.log.segments]
        retain(self.log, self.time, self.high_watermark)
        deleted = len(sizes) - len(self.log.segments)
        if self.log.log_start_offset == self.start:
            return
        event("retention")
        assert self.start < self.log.log_start_offset <= self.high_watermark
        assert sum(sizes) - CONFIG.retention_bytes >= sum(sizes[:deleted])
        self.start = self.log.log_start_offset

    @rule(lose=st.sampled_from(["nothing", "unflushed", "torn"]))
    def crash(self, lose: Lose) -> None:
        """Crash and recover: flushed data stays, and of the rest any prefix."""
        flushed, before = self.log.recovery_point, self.end
        if len(self.log.segments) > 1 and flushed <= self.log.segments[1].base_offset:
            # If no page of the first segment was written, recovery takes the other segments for the whole log. Apache
            # Kafka does the same, so the rule does not tear this segment.
            lose = "unflushed" if lose == "torn" else lose
        self.crashes += 1
        self.disk.lose(lose, Stream(self.crashes))
        self.log = Log(self.disk, FOLDER, CONFIG, recovery_point=flushed, clean=False, log_start_offset=self.start)
        end = self.log.log_end_offset
        assert min(flushed, before) <= end <= before
        assert lose != "nothing" or end == before
        if end < before:
            event("lost tail")
        self._keep_below(end)
        self.high_watermark = min(self.high_watermark, self.end)

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        for name in self.disk.names(FOLDER):  # the driver flushes all files on a clean stop
            self.disk.flush(f"{FOLDER}/{name}")
        self.log = Log(
            self.disk, FOLDER, CONFIG,
            recovery_point=self.log.recovery_point, clean=True, log_start_offset=self.start,
        )  # fmt: skip

    # -- invariants ------------------------------------------------------------------------------

    def _read_all(self) -> list[tuple[int, Any, Any]]:
        found: list[tuple[int, Any, Any]] = []
        offset = self.start
        while offset < self.log.log_end_offset:
            data = self.log.read(offset, 1 << 20, self.log.log_end_offset, at_least_one=True)
            if not data:
                break
            for position, header in entries(data):
                found += [(r.offset, r.key, r.value) for r in decode_entry(data, position)[1] if r.offset >= offset]
                offset = header.next_offset
        return found

    @invariant()
    def every_record_is_found_from_every_offset(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self._read_all() == [(offset, *row) for offset, row in self.rows.items() if offset >= self.start]

    @invariant()
    def EpochsAscend(self) -> None:
        """The epoch cache is sorted and has the epoch of every batch."""
        known = self.log.epochs.entries
        assert known == sorted(known)
        for base, end, epoch in self.batches:
            if base >= self.start and any(offset in self.rows for offset in range(base, end)):
                slot = max(n for n, (_, start) in enumerate(known) if start <= base)
                assert known[slot][0] == epoch, base

"""Aggregate numbers over time into a bounded number of slots, without sampling."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from highwater.reports.page.operations import Operation

SLOTS = 480
FIRST_WIDTH_S = 0.01
BINS_PER_OCTAVE = 4
FINEST_MS = 0.01


class Latencies:
    """A histogram of milliseconds with bins of a quarter octave (error about 10 %)."""

    __slots__ = ("bins", "count")

    def __init__(self) -> None:
        self.bins: dict[int, int] = {}
        self.count = 0

    def add(self, milliseconds: float) -> None:
        bin_ = int(math.log2(max(milliseconds, FINEST_MS) / FINEST_MS) * BINS_PER_OCTAVE)
        self.bins[bin_] = self.bins.get(bin_, 0) + 1
        self.count += 1

    def merge(self, other: "Latencies") -> None:
        for bin_, count in other.bins.items():
            self.bins[bin_] = self.bins.get(bin_, 0) + count
        self.count += other.count

    def quantile(self, share: float) -> float | None:
        """Return a quantile in milliseconds; None without measurements."""
        due = share * self.count
        for bin_ in sorted(self.bins):
            due -= self.bins[bin_]
            if due <= 0:
                return float(FINEST_MS * 2.0 ** ((bin_ + 0.5) / BINS_PER_OCTAVE))
        return None


@dataclass(slots=True)
class Slot:
    """Operations that ended in one time slot; `lag` is that of the partition furthest behind, at its end."""

    sends: Latencies = field(default_factory=Latencies)
    sends_not_ok: int = 0
    records_read: int = 0
    operations: int = 0
    lag: int | None = None

    def merge(self, later: "Slot") -> None:
        self.sends.merge(later.sends)
        self.sends_not_ok += later.sends_not_ok
        self.records_read += later.records_read
        self.operations += later.operations
        lags = [lag for lag in (self.lag, later.lag) if lag is not None]
        self.lag = max(lags, default=None)


class Series:
    """Takes operations in order of completion; merges neighbouring slots when time exceeds the last one."""

    def __init__(self) -> None:
        self.width_s = FIRST_WIDTH_S
        self.slots: list[Slot] = [Slot()]
        self._ends: dict[str, int] = {}
        self._polled: dict[str, int] = {}
        self._fetched: dict[str, int] = {}

    def take(self, operation: Operation) -> None:
        if operation.end_s is None:
            return
        slot = self._at(operation.end_s)
        slot.operations += 1
        ok = operation.outcome == "ok"
        is_send = operation.invoke.f == "send"
        slot.sends_not_ok += is_send and not ok
        if is_send and ok:
            slot.sends.add((operation.end_s - operation.start_s) * 1000)
        if ok:
            slot.records_read += self._move(operation)

    def finish(self) -> None:
        self.slots[-1].lag = self._lag()

    def _at(self, second: float) -> Slot:
        number = int(second / self.width_s)
        while number >= SLOTS:
            for early, late in zip(self.slots[::2], self.slots[1::2], strict=False):
                early.merge(late)
            self.slots = self.slots[::2]
            self.width_s *= 2
            number = int(second / self.width_s)
        while len(self.slots) <= number:
            self.slots[-1].lag = self._lag()
            self.slots.append(Slot())
        return self.slots[number]

    def _move(self, operation: Operation) -> int:
        """Update log ends and reader positions from a completion; return how many records were read."""
        completion, key, read = operation.completion, operation.key, 0
        if key is not None:
            offset = completion.offset if operation.invoke.f == "send" and completion.offset is not None else -1
            self._ends[key] = max(self._ends.get(key, 0), offset + 1, completion.high_watermark or 0)
        furthest = self._polled if operation.invoke.f == "poll" else self._fetched
        for partition, records in operation.records.items():
            if records:
                read += len(records)
                position = records[-1][0] + 1
                furthest[partition] = max(furthest.get(partition, 0), position)
                self._ends[partition] = max(self._ends.get(partition, 0), position)
        return read

    def _lag(self) -> int | None:
        """Return the largest lag of polling consumers; without any, of raw fetches."""
        furthest = self._polled or self._fetched
        return max((self._ends[key] - position for key, position in furthest.items()), default=None)


# --------------------------------------------------------------------------------------------------
# A deterministic sample of a long sequence: every n-th item; n doubles when there are too many.


Item = TypeVar("Item")


class Sample(Generic[Item]):
    """Keeps all items up to `limit`, and between `limit` / 2 and `limit` of more.

    Call `wants` for each item, and `keep` only if it returned True, so that other items need not be built.
    """

    def __init__(self, limit: int) -> None:
        self.stride, self.offered = 1, 0
        self._limit = limit
        self._kept: list[Item] = []

    def wants(self) -> bool:
        wanted = self.offered % self.stride == 0
        self.offered += 1
        return wanted

    def keep(self, item: Item) -> None:
        self._kept.append(item)
        if len(self._kept) > self._limit:
            self._kept = self._kept[::2]
            self.stride *= 2

    def __iter__(self) -> Iterator[Item]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

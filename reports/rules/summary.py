"""Small facts about all operations of a partition: log starts, leader epochs and producers by time.

A slice of a divided partition cannot derive them alone, so the executors compute them per chunk and merge them.
docs/audit/rules.md defines how the rules use them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from highwater.reports.columns import NEVER, TOMBSTONE, UNKNOWN, Ints, Kind, Operations, Status
from highwater.reports.rules.findings import Mask, distinct, running_maximum


@dataclass(frozen=True, slots=True)
class Timeline:
    """A number that only grows, as steps: from event index `time` on it is at least `value`; both strictly increase."""

    time: Ints
    value: Ints

    @classmethod
    def of(cls, time: Ints, value: Ints) -> Self:
        order = np.argsort(time, kind="stable")
        most, reached = running_maximum(value[order])
        steps = distinct(reached)
        return cls(time[order][steps], most[steps])

    @classmethod
    def merge(cls, parts: "Iterable[Timeline]") -> Self:
        parts = list(parts)
        return cls.of(np.concatenate([p.time for p in parts]), np.concatenate([p.value for p in parts]))

    def before(self, moment: Ints) -> Ints:
        """Return the value just before each event index; 0 before the first step."""
        return np.concatenate([[0], self.value])[np.searchsorted(self.time, moment, "left")]


@dataclass(frozen=True, slots=True)
class LogStarts:
    """Evidence of the log start: reports, and deletions by the operations of clients."""

    reported: Timeline  # by successful operations, when they returned
    deleted: Timeline  # at least to here by successful deletions, when they returned
    requested: Timeline  # at most to here by deletions that may have happened, when they were invoked
    proved_backwards: Timeline  # as `reported` and `deleted`, by the negative event index: from the last to the first

    @classmethod
    def merge(cls, parts: "Iterable[LogStarts]") -> Self:
        parts = list(parts)
        return cls(*(Timeline.merge(getattr(part, field.name) for part in parts) for field in fields(cls)))

    @property
    def unexplained(self) -> int:
        """The largest log start that was reported without a deletion that may have caused it; 0 if there is none."""
        explained = self.requested.before(self.reported.time) >= self.reported.value
        return int(self.reported.value[~explained].max(initial=0))

    def proved_after(self, invoked: Ints) -> Ints:
        """Return the largest log start that operations prove which had not returned at each of these event indices."""
        return self.proved_backwards.before(-invoked)

    def certain(self, invoked: Ints) -> Ints:
        """Return the log start that is proved before each of these event indices."""
        return np.maximum(self.reported.before(invoked), self.deleted.before(invoked))

    def possible(self, invoked: Ints, returned: Ints) -> Ints:
        """Return the largest possible log start during each operation, without retention."""
        requested = np.maximum(self.requested.before(returned), self.unexplained)
        return np.maximum(requested, self.certain(invoked))


def log_starts(
    ops: Operations, proved_ends: Callable[[], Timeline], upper_ends: Callable[[], tuple[Ints, Ints]]
) -> LogStarts:
    """Return the log starts of a partition.

    `proved_ends` are the ends that operations proved when they returned. `upper_ends` are event indices and ends: at
    each of them the high watermark was at most the end.
    """
    reporting = np.flatnonzero((ops.status == Status.OK) & (ops.log_start_offset > 0))
    deletions = np.flatnonzero((ops.kind == Kind.DELETE) & (ops.status != Status.FAIL))
    done = deletions[ops.status[deletions] == Status.OK]
    any_unresolved = bool(np.any(unresolved(ops)))
    most = _smallest_after(*upper_ends(), ops, deletions) if any_unresolved else NEVER
    reported, deleted = ops.log_start_offset[reporting], deleted_to(ops, done, proved_ends)
    returned = np.concatenate([ops.returned[reporting], ops.returned[done]])
    return LogStarts(
        reported=Timeline.of(ops.returned[reporting], reported),
        deleted=Timeline.of(ops.returned[done], deleted),
        requested=Timeline.of(ops.invoked[deletions], _deletion_end(ops, deletions, most)),
        proved_backwards=Timeline.of(-returned, np.concatenate([reported, deleted])),
    )


def deleted_to(ops: Operations, done: Ints, proved_ends: Callable[[], Timeline]) -> Ints:
    """Return the smallest offset up to which each of these successful deletions deleted."""
    least = proved_ends().before(ops.invoked[done]) if np.any(unresolved(ops)) else NEVER
    return _deletion_end(ops, done, least)


def _deletion_end(ops: Operations, rows: Ints, otherwise: Ints | np.int64) -> Ints:
    """Return the offset of each deletion; that of DeleteRecords(-1) is in its reply, or `otherwise` unknown."""
    replied = np.where(ops.log_start_offset[rows] == UNKNOWN, otherwise, ops.log_start_offset[rows])
    return np.where(ops.offset[rows] == UNKNOWN, replied, ops.offset[rows])


def _smallest_after(time: Ints, end: Ints, ops: Operations, deletions: Ints) -> Ints:
    """Return the smallest end after each successful deletion returned; `NEVER` if none, or if it did not succeed.

    A deletion of unknown outcome may take effect after its client gave up on it.
    """
    order = np.argsort(time, kind="stable")
    smallest = np.append(np.minimum.accumulate(end[order][::-1])[::-1], NEVER)
    after = smallest[np.searchsorted(time[order], ops.returned[deletions], "right")]
    return np.where(ops.status[deletions] == Status.OK, after, NEVER)


def unresolved(ops: Operations) -> Mask:
    """Mask successful deletions to the high watermark whose reply does not state the new log start."""
    done = (ops.kind == Kind.DELETE) & (ops.status == Status.OK)
    mask: Mask = done & (ops.offset == UNKNOWN) & (ops.log_start_offset == UNKNOWN)
    return mask


NO_EPOCH = -2
SEVERAL_EPOCHS = -3


@dataclass(frozen=True, slots=True)
class Epochs:
    """Leader epochs that successful operations stated, by node and epoch, with the time of the first and last of each.

    `first_returned` is when the first of them returned, `last_invoked` when the last began.
    """

    node: Ints
    stated: Ints
    first_returned: Ints
    last_invoked: Ints

    @classmethod
    def of(cls, ops: Operations) -> Self:
        rows = np.flatnonzero((ops.leader_epoch != UNKNOWN) & (ops.status == Status.OK) & (ops.kind != Kind.FORMER))
        return cls._reduced(ops.node[rows], ops.leader_epoch[rows], ops.returned[rows], ops.invoked[rows])

    @classmethod
    def merge(cls, parts: "Iterable[Epochs]") -> Self:
        parts = list(parts)
        return cls._reduced(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    @classmethod
    def _reduced(cls, node: Ints, epoch: Ints, returned: Ints, invoked: Ints) -> Self:
        known, slot = np.unique(np.stack([node, epoch]), axis=1, return_inverse=True)
        slot = slot.reshape(-1)
        first, last = np.full(known.shape[1], NEVER), np.full(known.shape[1], UNKNOWN)
        np.minimum.at(first, slot, returned)
        np.maximum.at(last, slot, invoked)
        return cls(known[0], known[1], first, last)

    @property
    def epoch(self) -> Ints:
        """The stated epochs, increasing."""
        return distinct(self.stated)

    def by_follower(self, ops: Operations) -> Mask:
        """Mask by row: the reply of a follower (KIP-392), which states a node, but no leader epoch.

        It may lag, and it may know more than a new leader: the high watermark of an earlier epoch.
        """
        mask: Mask = (ops.kind == Kind.READ) & (ops.node != UNKNOWN) & (ops.leader_epoch == UNKNOWN)
        return mask & (len(self.stated) > 0)

    def of_rows(self, ops: Operations, rows: Ints) -> tuple[Ints, Ints]:
        """Return the smallest and the largest leader epoch in which each operation can have been served.

        A former leader may answer long after the election of the next one, if it was paused or is cut off. So an
        operation is bounded from above only by a later one that states the newest epoch of the history, and from below
        only by an earlier one that the same node served, or a send by any earlier one, since a former leader commits
        nothing new. Nothing bounds the epoch of a follower's reply from below.
        """
        stated = ops.leader_epoch[rows]
        if not len(self.stated):
            return stated, np.where(stated == UNKNOWN, NEVER, stated)
        newest = self.stated.max()
        last = self.last_invoked[self.stated == newest].max()
        largest = np.where(ops.returned[rows] < last, newest, NEVER)
        smallest = np.where(self.by_follower(ops)[rows], UNKNOWN, self._served_before(ops, rows))
        smallest = np.where(ops.kind[rows] == Kind.SEND, self._before(ops.invoked[rows]), smallest)
        return np.where(stated == UNKNOWN, smallest, stated), np.where(stated == UNKNOWN, largest, stated)

    def _served_before(self, ops: Operations, rows: Ints) -> Ints:
        """Return the largest epoch that the node of each operation had stated before it began, or UNKNOWN."""
        served, began = np.full(len(rows), UNKNOWN), ops.invoked[rows]
        for node in distinct(self.node[self.node != UNKNOWN]):
            here = ops.node[rows] == node
            served[here] = self._before(began[here], self.node == node)
        return served

    def _before(self, began: Ints, by: Mask | slice = slice(None)) -> Ints:
        """Return the largest epoch that was stated before each event index, or UNKNOWN."""
        timeline = Timeline.of(self.first_returned[by], self.stated[by])
        return np.where(began > timeline.time[0], timeline.before(began), UNKNOWN)

    def only_one(self, ops: Operations, rows: Ints) -> Ints:
        """Return the only stated epoch in which each operation may be served, `NO_EPOCH` or `SEVERAL_EPOCHS`."""
        if not len(self.stated):
            return np.full(len(rows), NO_EPOCH)
        epochs, (smallest, largest) = self.epoch, self.of_rows(ops, rows)
        first = np.searchsorted(epochs, smallest, "left")
        count = np.searchsorted(epochs, largest, "right") - first
        only = epochs[np.minimum(first, len(epochs) - 1)]
        return np.where(count == 1, only, np.where(count < 1, NO_EPOCH, SEVERAL_EPOCHS))


@dataclass(frozen=True, slots=True)
class Producers:
    """Producer ids and epochs by number, increasing, with the invocation of the last send of each."""

    producer: Ints
    last_invoked: Ints

    @classmethod
    def of(cls, ops: Operations) -> Self:
        rows = np.flatnonzero((ops.kind == Kind.SEND) & (ops.producer != UNKNOWN))
        return cls._reduced(ops.producer[rows], ops.invoked[rows])

    @classmethod
    def merge(cls, parts: "Iterable[Producers]") -> Self:
        parts = list(parts)
        return cls._reduced(
            np.concatenate([p.producer for p in parts]), np.concatenate([p.last_invoked for p in parts])
        )

    @classmethod
    def _reduced(cls, producer: Ints, invoked: Ints) -> Self:
        known = distinct(producer)
        last = np.full(len(known), UNKNOWN)
        np.maximum.at(last, np.searchsorted(known, producer), invoked)
        return cls(known, last)

    def used_after(self, producer: Ints, returned: Ints) -> Mask:
        """Return for each send whether a send that began after it returned has the same producer id and epoch."""
        if not len(self.producer):
            return np.zeros(len(producer), bool)
        slot = np.minimum(np.searchsorted(self.producer, producer), len(self.producer) - 1)
        used: Mask = (self.producer[slot] == producer) & (self.last_invoked[slot] > returned)
        return used


def unplaced_tombstones(ops: Operations, *, idempotence: bool) -> int:
    """Return how many tombstones may be in the log at an offset that is not known.

    A retry may write a tombstone again: often without idempotence, once if its client gave up on a record.
    """
    sent = (ops.kind == Kind.SEND) & (ops.value == TOMBSTONE) & (ops.status != Status.FAIL)
    if not idempotence:
        return int(NEVER) if np.any(sent) else 0
    return int(np.count_nonzero(sent & ((ops.offset == UNKNOWN) | (ops.gave_up == 1))))


@dataclass(frozen=True, slots=True)
class Summary:
    """The facts of a partition or of a chunk of it, and how to merge those of all chunks."""

    log_starts: LogStarts
    epochs: Epochs
    producers: Producers
    unplaced_tombstones: int
    has_transactions: bool

    @classmethod
    def merge(cls, parts: "Iterable[Summary]") -> Self:
        parts = list(parts)
        return cls(
            LogStarts.merge(part.log_starts for part in parts),
            Epochs.merge(part.epochs for part in parts),
            Producers.merge(part.producers for part in parts),
            min(sum(part.unplaced_tombstones for part in parts), int(NEVER)),
            any(part.has_transactions for part in parts),
        )

    def facts(self) -> dict[str, object]:
        """Return the attributes of a view that are known from the whole partition."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

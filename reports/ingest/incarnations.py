"""Give each incarnation of a topic its own partition keys: a topic that is created again is another topic."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from highwater.reports.columns import NEVER, Kind, Operations, Status

MADE_AGAIN: Final = " (topic made again, "


@dataclass(slots=True)
class Window:
    """Event indices from the deletion request until the topic was created again (`NEVER`: it was not)."""

    deleted: int
    created: int = int(NEVER)
    open: int = 0  # deletions that did not return yet
    certain: bool = False  # a deletion was acknowledged
    possible: bool = False  # the outcome of a deletion is unknown


class FormerPartition(NamedTuple):
    """The partition that had the same name before, and the event index at which its deletion was requested."""

    key: str
    deleted: int


@dataclass(slots=True)
class TopicIncarnations:
    windows: dict[str, list[Window]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    metadata_ids: dict[str, dict[str, int]] = field(default_factory=dict)  # by topic: topic ids in metadata, numbered

    def delete(self, topic: str, index: int) -> None:
        windows = self.windows.setdefault(topic, [])
        if not windows or windows[-1].created < NEVER:
            windows.append(Window(index))
        windows[-1].open += 1

    def complete(self, topic: str, status: Status) -> None:
        """Note the outcome of a deletion; discard the last window if the broker rejected all its deletions."""
        window = self.windows[topic][-1]
        window.open -= 1
        window.certain |= status is Status.OK
        window.possible |= status is Status.INFO
        if not (window.open or window.certain or window.possible):
            self.windows[topic].pop()
            if not self.windows[topic]:
                del self.windows[topic]

    def ended(self) -> dict[str, int]:
        """Return how many incarnations of each topic certainly ended: deleted, or created again later."""
        found = {
            topic: sum(bool(window.certain or window.created < NEVER) for window in windows)
            for topic, windows in self.windows.items()
        }
        return {topic: count for topic, count in found.items() if count}

    def create(self, topic: str, index: int) -> None:
        windows = self.windows.get(topic)
        if windows and windows[-1].created == NEVER:
            windows[-1].created = index

    def of(self, topic: str, topic_id: str | None, invoked: int, returned: int) -> int | None:
        """Return the incarnation (from 0) of an operation; None if it overlaps a deletion and may belong to either."""
        if topic_id is not None:
            return self.ids.setdefault(topic_id, sum(w.created < returned for w in self.windows.get(topic, ())))
        life = 0
        for window in self.windows.get(topic, ()):
            if returned < window.deleted:
                return life
            if invoked < window.created:
                return None
            life += 1
        return life

    def former(self, key: str) -> FormerPartition | None:
        """Return the first incarnation of a later one's partition, and its deletion; None for a first incarnation."""
        first, marked, number = key.removesuffix(")").partition(MADE_AGAIN)
        windows = self.windows.get(first.rpartition("-")[0])
        return FormerPartition(first, windows[int(number) - 1].deleted) if marked and windows else None

    def rename(self, key: str, topic_id: str | None, invoked: int, returned: int) -> str:
        """Return the key of the incarnation; an operation that overlaps a deletion gets a key of its own.

        If the history holds no deletion of the topic, each topic id is an incarnation.
        """
        topic, _, partition = key.rpartition("-")
        if topic not in self.windows and topic_id is not None:
            ids = self.metadata_ids.setdefault(topic, {})
            return key_of(topic, int(partition), ids.setdefault(topic_id, len(ids)))
        life = self.of(topic, topic_id, invoked, returned)
        return f"{key} (event {invoked})" if life is None else key_of(topic, int(partition), life)


def key_of(topic: str, partition: int, life: int) -> str:
    return f"{topic}-{partition}{MADE_AGAIN}{life})" if life else f"{topic}-{partition}"


def incarnation_of(key: str) -> tuple[str, int]:
    """Return the topic and the incarnation, from 0, of a partition's key; the reverse of `key_of`."""
    first, _, life = key.removesuffix(")").partition(MADE_AGAIN)
    return first.rpartition("-")[0], int(life or 0)


def prepend_former_sends(former: Operations, ops: Operations, deleted: int) -> Operations:
    """Return `ops` after the acknowledged sends of the deleted topic, as `Kind.FORMER`: they must not be read here."""
    gone = (former.kind == Kind.SEND) & (former.status == Status.OK) & (former.returned < deleted)
    columns = {}
    for name in Operations.__dataclass_fields__:
        old, new = getattr(former, name), getattr(ops, name)
        if name.startswith("record_") and name != "record_count":
            columns[name] = new
        elif new.strides != (0,) or name in {"invoked", "kind"}:
            columns[name] = np.concatenate([old[gone], new])
    columns["kind"][: int(gone.sum())] = Kind.FORMER
    return Operations(**columns)

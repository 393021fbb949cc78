"""A topic that is deleted and made again is another topic: every partition has a key for each of its lives."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from highwater.reports.columns import NEVER, Kind, Operations, Status

MADE_AGAIN: Final = " (topic made again, "


@dataclass(slots=True)
class Window:
    """From when its deletion was asked for until it was there again, in event indices."""

    deleted: int
    created: int = int(NEVER)


class Former(NamedTuple):
    """The partition that had the name before; in event indices, until when."""

    key: str
    deleted: int


@dataclass(slots=True)
class Lives:
    windows: dict[str, list[Window]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    told: dict[str, dict[str, int]] = field(default_factory=dict)  # by topic, ids that metadata told

    def delete(self, topic: str, index: int) -> None:
        windows = self.windows.setdefault(topic, [])
        if not windows or windows[-1].created < NEVER:
            windows.append(Window(index))

    def keep(self, topic: str) -> None:
        """The deletion was refused."""
        self.windows[topic].pop()
        if not self.windows[topic]:
            del self.windows[topic]

    def create(self, topic: str, index: int) -> None:
        windows = self.windows.get(topic)
        if windows and windows[-1].created == NEVER:
            windows[-1].created = index

    def of(self, topic: str, topic_id: str | None, invoked: int, returned: int) -> int | None:
        """Which life, from 0 on, an operation belongs to; None when it may be of either."""
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

    def former(self, key: str) -> Former | None:
        """Of a later life of a partition: its first, and when that was deleted."""
        first, marked, number = key.removesuffix(")").partition(MADE_AGAIN)
        windows = self.windows.get(first.rpartition("-")[0])
        return Former(first, windows[int(number) - 1].deleted) if marked and windows else None

    def rename(self, key: str, topic_id: str | None, invoked: int, returned: int) -> str:
        """The key of its life; while it is between two, one of its own for each moment.

        Of a topic of which nobody saw the deletion each id is a life.
        """
        topic, _, partition = key.rpartition("-")
        if topic not in self.windows and topic_id is not None:
            ids = self.told.setdefault(topic, {})
            return key_of(topic, int(partition), ids.setdefault(topic_id, len(ids)))
        life = self.of(topic, topic_id, invoked, returned)
        return f"{key} (event {invoked})" if life is None else key_of(topic, int(partition), life)


def key_of(topic: str, partition: int, life: int) -> str:
    return f"{topic}-{partition}{MADE_AGAIN}{life})" if life else f"{topic}-{partition}"


def after(former: Operations, ops: Operations, deleted: int) -> Operations:
    """With what was acknowledged in the deleted topic put first: it must not be read here."""
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

"""A model of a fetch session (KIP-227): which partitions it has, and what was reported of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from highwater.conformance.models.log import ModelLog

Key = tuple[str, int]
"""Topic name and partition."""
Reported = tuple[int, int] | None
"""High watermark and log start of the last reply; None after an error, or if there was none."""
R = TypeVar("R")


@dataclass(slots=True)
class FetchSession(Generic[R]):
    """The last request for each partition of a session, and what was reported of it."""

    reads: dict[Key, R] = field(default_factory=dict)
    reported: dict[Key, Reported] = field(default_factory=dict)

    def begin(self, reads: Mapping[Key, R]) -> None:
        """Begin with these partitions, of which nothing was reported yet; also a last request reports each of them."""
        self.reads, self.reported = dict(reads), dict.fromkeys(reads)

    def change(self, changed: Mapping[Key, R], forgotten: Iterable[Key]) -> None:
        """Add and change partitions, then remove others; one that is not there may be forgotten."""
        self.reads |= changed
        for key in changed:
            self.reported.setdefault(key, None)
        for key in forgotten:
            self.reads.pop(key, None)
            self.reported.pop(key, None)

    def report(self, key: Key, log: ModelLog | None) -> None:
        """Note that a reply has the partition; without a log it has an error, which is returned every time."""
        self.reported[key] = (log.end, log.start) if log is not None else None

    def must_report(self, key: Key, log: ModelLog | None) -> bool:
        """Return whether a reply has the partition even without records: an end of its log has moved."""
        return log is None or self.reported[key] != (log.end, log.start)

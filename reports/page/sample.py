"""Enough of a long sequence to look at: every n-th, n doubling whenever there are too many. No chance is involved."""

from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Sample(Generic[Item]):
    """Keeps between `limit` / 2 and `limit` items of any number; all of them while they are few.

    `wants` is asked of each item, `keep` given those that it wants: others need not be made.
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

"""Counters of a broker, with the names of Apache Kafka's meters; the reader computes rates."""

from collections import Counter

Labels = tuple[tuple[str, str], ...]


class Meters:
    """Counters that only increase, by meter name and labels."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, Labels]] = Counter()

    def mark(self, meter: str, count: int = 1, **labels: str) -> None:
        self.counts[meter, tuple(sorted(labels.items())) if labels else ()] += count

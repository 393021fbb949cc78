"""What a broker counts, under the names of Apache Kafka's meters; rates are the reader's to compute."""

from collections import Counter

Labels = tuple[tuple[str, str], ...]


class Meters:
    """Counters that only grow."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, Labels]] = Counter()

    def mark(self, meter: str, count: int = 1, **labels: str) -> None:
        self.counts[meter, tuple(sorted(labels.items())) if labels else ()] += count

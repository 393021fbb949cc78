"""Which partition a record goes to: by the hash of its key, or where the last one without a key went."""

from typing import Final

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Murmur 2 with Kafka's seed, 32 bits, unsigned."""
    value = SEED ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * MULTIPLIER & MASK
        k = (k ^ k >> 24) * MULTIPLIER & MASK
        value = (value * MULTIPLIER & MASK) ^ k
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    return value ^ value >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """As Kafka's default partitioner: equal keys meet in one partition as long as there are as many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Records without a key fill one batch before the next partition has its turn (KIP-480)."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, partitions: int) -> int:
        if key is not None:
            return partition_of_key(key, partitions)
        return self._turns.get(topic, 0) % partitions

    def batch_is_full(self, topic: str) -> None:
        self._turns[topic] = self._turns.get(topic, 0) + 1

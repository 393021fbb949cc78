"""Random numbers without state: the n-th draw for a purpose depends on the seed, the purpose and n alone."""

from zlib import crc32

MASK = (1 << 64) - 1


class Chance:
    """`draw("delay a->b", 7, 10)` is the seventh number below ten for that purpose (SplitMix64)."""

    __slots__ = ("_keys", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._keys: dict[str, int] = {}

    def draw(self, purpose: str, n: int, below: int) -> int:
        key = self._keys.get(purpose)
        if key is None:
            key = self._keys[purpose] = (crc32(purpose.encode()) << 32) ^ (self.seed * 0x9E3779B97F4A7C15 & MASK)
        value = (key + n * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
        return (value ^ (value >> 31)) % below

"""Random numbers without state: the n-th draw for a purpose depends only on the seed, the purpose and n."""

from zlib import crc32

MASK = (1 << 64) - 1


class Stream:
    """The random numbers of one purpose: SplitMix64 of a key and a count."""

    __slots__ = ("_key",)

    def __init__(self, key: int) -> None:
        self._key = key

    def draw(self, n: int, below: int) -> int:
        value = (self._key + n * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
        return (value ^ (value >> 31)) % below


class Chance:
    """A source of random numbers; `draw("delay a->b", 7, 10)` is the seventh number below 10 for that purpose."""

    __slots__ = ("_streams", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, Stream] = {}

    def stream(self, purpose: str) -> Stream:
        found = self._streams.get(purpose)
        if found is None:
            key = (crc32(purpose.encode()) << 32) ^ (self.seed * 0x9E3779B97F4A7C15 & MASK)
            found = self._streams[purpose] = Stream(key)
        return found

    def draw(self, purpose: str, n: int, below: int) -> int:
        return self.stream(purpose).draw(n, below)

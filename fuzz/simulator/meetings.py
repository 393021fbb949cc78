"""Which faults, kinds of clients and requests met: what never met was never tested together."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final

from highwater.fuzz.simulator.cluster import Load
from highwater.fuzz.simulator.invariants.loads import LOADS, OF_0_7, loads_of

AFTERMATH_MS: Final = 500
"""For so long a fault at a single moment, such as a bounce, can meet a request."""
SHOWN: Final = 12
Pair = tuple[str, str]


class Meetings:
    """The pairs of one run: each fault with each request that was sent during it, and both with the clients."""

    def __init__(self, load: Load) -> None:
        self._loads = loads_of(load)
        self._until_ms: dict[str, int] = {}
        self._changes_ms = 0  # when the next fault ends
        self._requests: dict[frozenset[str], set[type]] = {}
        self._sent: set[type] = set()  # those of `_requests` for the faults of this time

    def began(self, fault: str, now_ms: int, for_ms: int) -> None:
        """Note that a fault begins."""
        self._until_ms[fault] = max(self._until_ms.get(fault, 0), now_ms + max(for_ms, AFTERMATH_MS))
        self._update(now_ms)

    def requested(self, request: type, now_ms: int) -> None:
        """Note that a client or a broker sends a request."""
        if now_ms >= self._changes_ms:
            self._update(now_ms)
        self._sent.add(request)

    def _update(self, now_ms: int) -> None:
        lasting = {fault: end_ms for fault, end_ms in self._until_ms.items() if end_ms > now_ms}
        self._sent = self._requests.setdefault(frozenset(lasting), set())
        self._changes_ms = min(lasting.values(), default=1 << 62)

    def pairs(self) -> set[Pair]:
        """Return the pairs, in the order fault, kind of clients, request."""
        sent = {name_of(request) for requests in self._requests.values() for request in requests}
        found = {*product(self._until_ms, self._loads), *product(self._loads, sent)}
        for faults, requests in self._requests.items():
            found |= set(product(faults, map(name_of, requests)))
        return found


def name_of(request: type) -> str:
    """Return the name of an API, such as Fetch."""
    return request.__name__.removesuffix("Request")


def pair_lines(seen: Counter[Pair], faults: Iterable[str]) -> Iterator[str]:
    """Yield a line for each two kinds: how many pairs met in a run, and the pairs that never did."""
    kinds = sorted(set(faults))
    loads = [load for load in LOADS if load != OF_0_7]  # these have no broker
    requests = sorted({second for _, second in seen} - set(LOADS))
    for title, possible in {
        "fault and clients": list(product(kinds, loads)),
        "fault and request": list(product(kinds, requests)),
        "clients and request": list(product(loads, requests)),
    }.items():
        never = [f"{first} with {second}" for first, second in possible if not seen[first, second]]
        names = "; ".join(never[:SHOWN]) + (f" and {len(never) - SHOWN} more" if len(never) > SHOWN else "")
        yield f"  {title + ':':<22}{len(possible) - len(never):,} of {len(possible):,} pairs met" + (
            f", never {names}" if never else ""
        )

"""Comparisons that are repeated until a change has reached all brokers, and the versions that a walk uses."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.failures import TargetFailure
from highwater.conformance.models.comparison import compare
from highwater.reference.wire.registry import api_of


def eventually_equal(cluster: Cluster, what: str, expected: Any, read: Callable[[], Any], version: int) -> None:
    """Read a reply until it is as expected: a change reaches the brokers one after another.

    Raises the failure of the last reply after 10 s.
    """
    last: list[TargetFailure] = []

    def is_equal() -> bool:
        reply = read()
        try:
            compare(what, expected, reply, version)
        except TargetFailure as failure:
            last[:] = [failure]
            return False
        return True

    try:
        cluster.eventually(what, is_equal)
    except TargetFailure as failure:
        raise (last or [failure])[0] from None


def eventually_passes(cluster: Cluster, what: str, check: Callable[[], None]) -> None:
    """Repeat a check until it passes; raises the failure of its last repetition after 10 s."""

    def passes() -> bool:
        with suppress(TargetFailure):
            check()
            return True
        return False

    with suppress(TargetFailure):
        cluster.eventually(what, passes)
    check()


def spread(broker: Broker, request: type[Any], first: int = 0, last: int | None = None) -> list[int]:
    """Return the oldest, a middle and the newest version that both sides support, without duplicates.

    Raises Unsupported if there is none between `first` and `last`.
    """
    api = api_of(request)
    lowest, highest = broker.advertised.get(api.key, (0, -1))
    start = max(lowest, api.min_version, first)
    end = min(highest, api.max_version, api.max_version if last is None else last)
    if end < start:
        broker.need(request, start)
    return sorted({start, (start + end) // 2, end})

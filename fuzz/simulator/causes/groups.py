"""Follow a consumer group, or one committed offset of it: who joined, left and committed, and what was answered."""

from collections.abc import Iterable
from typing import Final

from highwater.fuzz.simulator.causes.lines import Line, by_time
from highwater.fuzz.simulator.causes.offsets import PartitionLife
from highwater.fuzz.simulator.causes.words import line_of
from highwater.fuzz.simulator.exchanges import SimulatedExchange
from highwater.spec.formats.trace import Step

OF_COMMITS: Final = {"OffsetCommit", "OffsetFetch", "TxnOffsetCommit", "OffsetDelete", "DeleteGroups"}
UNREMARKABLE: Final = {"Heartbeat", "ConsumerGroupHeartbeat", "FindCoordinator", "OffsetCommit", "OffsetFetch"}
"""Requests about membership are shown if these succeed; these are shown if they fail."""
WHOLE: Final = -1


def lines_of_group(
    group: str, partition: str, exchanges: Iterable[SimulatedExchange], steps: Iterable[Step], offsets_partition: str
) -> list[Line]:
    """Return the lines about a group by time: its requests, and the leaders of the partition that stores it.

    With `partition` only requests about committed offsets of that partition are shown.
    """
    chosen = (each for each in exchanges if group in each.groups and _is_shown(each, partition))
    return by_time(
        [*PartitionLife(offsets_partition, WHOLE).lines(steps), *(line_of(each, partition) for each in chosen)]
    )


def _is_shown(exchange: SimulatedExchange, partition: str) -> bool:
    if partition:
        return exchange.name in OF_COMMITS and (not exchange.partitions or partition in exchange.partitions)
    return exchange.name not in UNREMARKABLE or exchange.error != "NONE"

"""ListOffsets (key 2) for many partitions, each asked of its leader."""

from collections.abc import Iterable
from typing import Final

from reference.drivers.client import ClusterClient, refuse
from reference.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from spec.formats.verdict import UsageError

LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER: Final = -1
Offsets = dict[tuple[str, int], int]


def leaders(cluster: ClusterClient, topics: Iterable[str]) -> Offsets:
    """The broker that leads each partition; UsageError for one without a leader."""
    found: Offsets = {}
    names = sorted(set(topics))
    for topic in cluster.metadata(*names).topics if names else ():
        for part in topic.partitions:
            if part.leader_id < 0:
                raise UsageError("no leader", where=f"{topic.name}-{part.partition_index}", mend="see highwater elect")
            found[str(topic.name), part.partition_index] = part.leader_id
    return found


def offsets_at(cluster: ClusterClient, partitions: Iterable[tuple[str, int]], timestamp: int) -> Offsets:
    """The first offset at or after a time in milliseconds, -1 if none is; or the ends, `LATEST` and `EARLIEST`."""
    keys = sorted(partitions)
    led_by = leaders(cluster, (topic for topic, _ in keys))
    found: Offsets = {}
    for key in keys:
        topic, number = key
        part = ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=CONSUMER, topics=(ListOffsetsTopic(name=topic, partitions=(part,)),))
        (answer,) = cluster.broker(led_by[key]).call(request).topics[0].partitions
        refuse(answer.error_code, f"{topic}-{number}")
        found[key] = answer.offset
    return found

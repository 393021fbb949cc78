"""`highwater replicas verify`: check that all replicas of a partition are identical (kafka-replica-verification.sh).

The tool reads every replica as a debugging consumer, which followers serve too, from the log start to the lowest high
watermark of the replicas. It compares base offset and checksum of every batch; the checksum covers the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, Final

import typer

from highwater.errors import ExitCode
from highwater.reference.client.cluster import BrokerConnection, refuse
from highwater.reference.tools.output import (
    EARLIEST,
    BootstrapOption,
    CommandConfigOption,
    JsonOption,
    connect,
    offsets_at,
    print_json,
    print_table,
)
from highwater.reference.wire.log_entries import entries
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

app = typer.Typer(no_args_is_help=True)

DEBUGGING_CONSUMER: Final = -2
FETCH_BYTES: Final = 1 << 20
Batch = tuple[int, int]  # base offset, checksum


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result for one partition: the number of equal batches below `until`, and the first difference (-1: none)."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    until: int
    batches: int
    differs_at: int = -1
    differing: tuple[int, ...] = ()


@app.command("verify")
def verify_command(
    bootstrap: BootstrapOption,
    topic: Annotated[list[str] | None, typer.Argument(help="Topics; default: all.")] = None,
    json_: JsonOption = False,
    command_config: CommandConfigOption = None,
) -> None:
    """Compare the replicas of every partition by checksum. Exit code 1 if two of them differ.

    Example: highwater replicas verify orders --bootstrap-server localhost:9092
    """
    with connect(bootstrap, command_config) as cluster:
        addresses, found = cluster.addresses(), []
        for described in sorted(cluster.metadata(*(topic or [])).topics, key=lambda described: str(described.name)):
            for part in sorted(described.partitions, key=lambda part: part.partition_index):
                alive = {node: cluster.to(addresses[node]) for node in part.replica_nodes if node in addresses}
                key = (str(described.name), part.partition_index)
                found.append(_compare(alive, key, offsets_at(cluster, [key], EARLIEST)[key]))
    _print(found, json_=json_)
    raise typer.Exit(ExitCode.VIOLATED if any(comparison.differing for comparison in found) else ExitCode.HELD)


def _compare(replicas: dict[int, BrokerConnection], key: tuple[str, int], start: int) -> Comparison:
    until = min(_fetch(replica, key, start).high_watermark for replica in replicas.values())
    streams = [_batches(replica, key, start, until) for replica in replicas.values()]
    same, ids = 0, tuple(replicas)
    for batches in zip_longest(*streams):
        differing = tuple(node for node, batch in zip(ids, batches, strict=True) if batch != batches[0])
        if differing:
            differs_at = min(batch[0] for batch in batches if batch is not None)
            return Comparison(*key, ids, until, same, differs_at, (ids[0], *differing))
        same += 1
    return Comparison(*key, ids, until, same)


def _batches(replica: BrokerConnection, key: tuple[str, int], start: int, until: int) -> Iterator[Batch]:
    """Yield the complete batches below `until`; fewer if the replica's log ends earlier."""
    offset = start
    while offset < until:
        headers = [header for _, header in entries(_fetch(replica, key, offset).records or b"")]
        if not headers:
            return
        for header in headers:
            if offset <= header.last_offset and header.base_offset < until:
                yield header.base_offset, header.crc
        offset = headers[-1].next_offset


def _fetch(replica: BrokerConnection, key: tuple[str, int], offset: int) -> PartitionData:
    part = FetchPartition(partition=key[1], fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    topic = FetchTopic(topic=key[0], partitions=(part,))
    reply = replica.call(FetchRequest(replica_id=DEBUGGING_CONSUMER, min_bytes=0, topics=(topic,)))
    refuse(reply.error_code, replica.address)
    found: PartitionData = reply.responses[0].partitions[0]
    refuse(found.error_code, f"{key[0]}-{key[1]} at {replica.address}")
    return found


def _print(found: list[Comparison], *, json_: bool) -> None:
    head = ("topic", "partition", "replicas", "until", "batches", "result")
    rows = [
        (
            comparison.topic, comparison.partition, comparison.replicas, comparison.until, comparison.batches,
            f"{list(comparison.differing)} differ at offset {comparison.differs_at}"
            if comparison.differing
            else "same",
        )
        for comparison in found
    ]  # fmt: skip
    if json_:
        print_json({"partitions": [dict(zip(head, row, strict=True)) for row in rows]})
    else:
        print_table(head, rows)

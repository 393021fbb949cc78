"""Shared parts of the command-line tools: options, tables, JSON, ListOffsets."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from highwater.errors import UsageError
from highwater.reference.client.access import Access
from highwater.reference.client.cluster import ClusterClient, refuse
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

BootstrapOption = Annotated[
    str, typer.Option("--bootstrap-server", help="Brokers to connect to, HOST:PORT[,HOST:PORT].")
]
CommandConfigOption = Annotated[
    Path | None,
    typer.Option("--command-config", help="Properties file for TLS and SASL, as for Apache Kafka's tools."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def connect(bootstrap: str, command_config: Path | None) -> ClusterClient:
    return ClusterClient(bootstrap, Access.from_file(command_config) if command_config is not None else Access())


def print_json(value: dict[str, Any]) -> None:
    json.dump(value, sys.stdout)
    sys.stdout.write("\n")


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows as columns, each as wide as its widest cell."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or "-"
    return "-" if value is None else str(value)


def pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Parse KEY=VALUE texts into a dict; raise UsageError for another format."""
    found: dict[str, str] = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"expected KEY=VALUE, not {text!r}", where=option)
        found[key] = value
    return found


def numbers(text: str, where: str) -> tuple[int, ...]:
    """Parse a list like `1,2,3`; raise UsageError for another format."""
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise UsageError(f"expected numbers like 1,2,3, not {text!r}", where=where)
    return tuple(int(part) for part in parts)


# --------------------------------------------------------------------------------------------------
# ListOffsets (key 2) for many partitions, sent to the leader of each.


LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER: Final = -1
Offsets = dict[tuple[str, int], int]


def leaders(cluster: ClusterClient, topics: Iterable[str]) -> Offsets:
    """Return the leader's broker id of every partition; raise UsageError for a partition without a leader."""
    found: Offsets = {}
    names = sorted(set(topics))
    for topic in cluster.metadata(*names).topics if names else ():
        for part in topic.partitions:
            if part.leader_id < 0:
                raise UsageError(
                    "the partition has no leader",
                    where=f"{topic.name}-{part.partition_index}",
                    hint="start its replicas, or see highwater elect",
                )
            found[str(topic.name), part.partition_index] = part.leader_id
    return found


def offsets_at(cluster: ClusterClient, partitions: Iterable[tuple[str, int]], timestamp: int) -> Offsets:
    """Return the first offset at or after a timestamp in ms (-1 if none) of every partition.

    `LATEST` and `EARLIEST` as timestamp return the log end and the log start.
    """
    keys = sorted(partitions)
    leader_ids = leaders(cluster, (topic for topic, _ in keys))
    found: Offsets = {}
    for key in keys:
        topic, number = key
        part = ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=CONSUMER, topics=(ListOffsetsTopic(name=topic, partitions=(part,)),))
        (answer,) = cluster.broker(leader_ids[key]).call(request).topics[0].partitions
        refuse(answer.error_code, f"{topic}-{number}")
        found[key] = answer.offset
    return found

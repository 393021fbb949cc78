"""Read the data folder of an Apache Kafka broker: segments, leader epochs and checkpoints.

Nothing is repaired: what a broker would have to recover is counted as skipped, with the reason.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from highwater.errors import UsageError
from highwater.reference.storage.checkpoints import parse_offsets
from highwater.reference.storage.leader_epochs import parse_epochs
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.log_entries import MIN_ENTRY, decode_entry, entries, entry_crc_valid
from highwater.reference.wire.records import BatchHeader, Record

META: Final = "meta.properties"
EPOCHS: Final = "leader-epoch-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
METADATA_LOG: Final = "__cluster_metadata-0"
PARTITION: Final = re.compile(r"([A-Za-z0-9._-]+)-(\d+)")
Partition = tuple[str, int]


@dataclass(slots=True)
class Seen:
    """What was read, by kind, and what was skipped, by reason; with anything skipped no verdict is complete."""

    read: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class ReplicaFolder:
    """One replica as its folder has it: `runs` are (leader epoch, first offset), ascending by offset."""

    start: int
    end: int
    runs: tuple[tuple[int, int], ...]
    epochs: tuple[tuple[int, int], ...]
    high_watermark: int


@dataclass(frozen=True, slots=True)
class BrokerFolder:
    """The data folder of one broker."""

    node: int
    cluster: str
    path: Path

    def partitions(self) -> Iterator[tuple[Partition, Path]]:
        """Yield each partition with a replica here, and its folder."""
        for folder in sorted(self.path.iterdir()):
            found = PARTITION.fullmatch(folder.name)
            if found and folder.is_dir():
                yield (found[1], int(found[2])), folder


def open_folder(path: Path) -> BrokerFolder:
    """Return a broker's data folder; raise UsageError if it is none."""
    try:
        lines = (path / META).read_text().splitlines()
    except OSError as error:
        raise UsageError(
            f"no {META} here ({error.strerror})", where=str(path), hint="give the log.dirs of each broker of a cluster"
        ) from error
    values = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    node = values.get("node.id", values.get("broker.id", ""))
    if not node.isdigit():
        raise UsageError("names no node.id and no broker.id", where=str(path / META))
    return BrokerFolder(int(node), values.get("cluster.id", ""), path)


def read_batches(folder: Path, seen: Seen) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Yield each batch of a log as its segment's bytes, position and header; stop where the log is damaged."""
    for segment in sorted(folder.glob("*.log")):
        data, end = segment.read_bytes(), 0
        seen.read["segments"] += 1
        try:
            for position, header in entries(data):
                if not entry_crc_valid(data, position, header):
                    seen.skipped["segment from a batch with a wrong checksum on"] += 1
                    return
                yield data, position, header
                end = position + header.size
        except DecodeError as error:
            seen.skipped[f"segment from damaged bytes on ({error})"] += 1
            return
        # Kafka allocates no space ahead for segments on Linux; zeroes are what is left of a lost write.
        if len(data) - end >= MIN_ENTRY or data[end:].strip(b"\0"):
            seen.skipped["incomplete last batch of a segment"] += 1
            return


def read_records(folder: Path, seen: Seen) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yield each batch of a log with its records."""
    for data, position, _ in read_batches(folder, seen):
        try:
            yield decode_entry(data, position)
        except DecodeError as error:
            seen.skipped[f"batch with records that cannot be decoded ({error})"] += 1


def read_replica(broker: BrokerFolder, partition: Partition, folder: Path, seen: Seen) -> ReplicaFolder:
    """Return a replica's log by leader epochs, its leader epoch checkpoint and its high watermark checkpoint."""
    runs: list[tuple[int, int]] = []
    start, end = None, int(min((path.stem for path in folder.glob("*.log")), default="0"))
    for _, _, header in read_batches(folder, seen):
        start = header.base_offset if start is None else start
        if not runs or runs[-1][0] != header.partition_leader_epoch:
            runs.append((header.partition_leader_epoch, header.base_offset))
        end = header.next_offset
        seen.read["record batches"] += 1
    epochs = _read_epochs(folder, seen)
    marks = _read_offsets(broker.path / HIGH_WATERMARKS)
    return ReplicaFolder(end if start is None else start, end, tuple(runs), epochs, marks.get(partition, 0))


def _read_epochs(folder: Path, seen: Seen) -> tuple[tuple[int, int], ...]:
    path = folder / EPOCHS
    if not path.exists() or not path.stat().st_size:  # a broker that is killed may leave an empty file
        return ()
    found = parse_epochs(path.read_bytes())
    if found is None:
        seen.skipped[f"{EPOCHS} that is damaged"] += 1
    return tuple(found or ())


def _read_offsets(path: Path) -> dict[Partition, int]:
    return (parse_offsets(path.read_bytes()) or {}) if path.exists() else {}

"""`highwater log`: dump or verify log files on this machine, ours or Apache Kafka's, without a broker."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from highwater.errors import ExitCode
from highwater.reference.tools.segment_files import Batch, Finding, find_segments, read_batches, verify_segment
from highwater.reference.wire.records import NOT_UTF_8

app = typer.Typer(no_args_is_help=True)

PathArgument = Annotated[Path, typer.Argument(help="A segment's .log file, a partition's folder, or a data folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@app.command("dump")
def dump_command(
    path: PathArgument,
    records: Annotated[bool, typer.Option("--records/--no-records", help="Also print every record.")] = True,
    json_: JsonOption = False,
) -> None:
    """Print batches and records. Exit code 1 if something cannot be read.

    Examples: highwater log dump data/orders-0 · highwater log dump --json data/orders-0/00000000000000000000.log
    """
    found = [(segment, list(read_batches(segment))) for segment in find_segments(path)]
    if json_:
        _print_json({"segments": [_segment_json(*segment, records=records) for segment in found]})
    else:
        for path_of_segment, batches in found:
            print(path_of_segment)
            for line in _lines(batches, records=records):
                print(line)
    corrupt = any(_is_corrupt(batch) for _, batches in found for batch in batches)
    raise typer.Exit(ExitCode.VIOLATED if corrupt else ExitCode.HELD)


@app.command("verify")
def verify_command(path: PathArgument, json_: JsonOption = False) -> None:
    """Check checksums, offsets, records and indexes. Exit code 1 for any finding.

    Example: highwater log verify data
    """
    segments = find_segments(path)
    findings = [finding for segment in segments for finding in verify_segment(segment)]
    if json_:
        rows = [{"path": str(finding.path), "position": finding.position, "what": finding.what} for finding in findings]
        _print_json({"segments": len(segments), "findings": rows})
    else:
        for finding in findings:
            print(finding)
        print(f"{len(segments)} segments, {len(findings)} findings")
    raise typer.Exit(ExitCode.VIOLATED if findings else ExitCode.HELD)


def _is_corrupt(found: Batch | Finding) -> bool:
    return isinstance(found, Finding) or not found.crc_valid or bool(found.trouble)


def _lines(found: list[Batch | Finding], *, records: bool) -> Iterator[str]:
    for batch in found:
        if isinstance(batch, Finding):
            yield f"  byte {batch.position}: {batch.what}"
            continue
        yield "  " + " ".join(f"{key} {value}" for key, value in _batch_fields(batch).items())
        if records:
            for record in _records(batch):
                yield "    " + " ".join(f"{key} {value}" for key, value in record.items())


def _batch_fields(batch: Batch) -> dict[str, Any]:
    header = batch.header
    fields: dict[str, Any] = {
        "base_offset": batch.records[0].offset if header.magic < 2 and batch.records else header.base_offset,
        "last_offset": header.last_offset,
        "position": batch.position,
        "size": header.size,
        "magic": header.magic,
        "codec": header.compression.name.lower() if not batch.trouble else header.attributes & 7,
        "records": len(batch.records),
        "max_timestamp": header.max_timestamp,
        "crc": "valid" if batch.crc_valid else "INVALID",
    }
    if header.partition_leader_epoch >= 0:
        fields["leader_epoch"] = header.partition_leader_epoch
    if header.producer_id >= 0:
        fields |= {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
        fields |= {"base_sequence": header.base_sequence, "transactional": header.is_transactional}
    if header.is_control:
        fields["control"] = True
    if header.delete_horizon_ms is not None:
        fields["delete_horizon_ms"] = header.delete_horizon_ms
    return fields | ({"trouble": batch.trouble} if batch.trouble else {})


def _records(batch: Batch) -> Iterator[dict[str, Any]]:
    for record in batch.records:
        headers = {_text(name.encode(errors=NOT_UTF_8)): _text(value) for name, value in record.headers}
        yield {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _text(record.key),
            "value": _text(record.value),
            **({"headers": headers} if headers else {}),
        }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _segment_json(segment: Path, found: list[Batch | Finding], *, records: bool) -> dict[str, Any]:
    batches = [batch for batch in found if isinstance(batch, Batch)]
    return {
        "path": str(segment),
        "batches": [
            _batch_fields(batch) | ({"records": list(_records(batch))} if records else {}) for batch in batches
        ],
        "findings": [
            {"position": finding.position, "what": finding.what} for finding in found if isinstance(finding, Finding)
        ],
    }


def _print_json(value: dict[str, Any]) -> None:
    json.dump(value, sys.stdout)
    sys.stdout.write("\n")

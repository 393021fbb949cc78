"""Measure the auditor: rates and memory by size, and Porcupine on the same histories.

Every measurement runs in its own process: `python -m highwater.experiments.figures.audits WHAT FOLDER` prints its cost.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

from highwater.reports.columns import Ints, Kind, Operations, concatenate_operations
from highwater.temporary import temporary_folder

SIZES: Final = (1_000_000, 10_000_000, 30_000_000)
COMPARED: Final = (1_000, 10_000, 100_000, 1_000_000)
PARTITIONS: Final = (1, 16)
CLIENTS: Final = 8
READ_RECORDS: Final = 500
LIMIT_S: Final = 60
MEMORY_BYTES: Final = 6 << 30
"""Memory limit of Porcupine, which needs over 8 GB for a million operations in one partition."""
SAMPLE_S: Final = 0.5
SPARK_SIZE: Final = 10_000_000
MANY: Final = 20_000
"""Partitions with ten operations each."""
READERS: Final = 4
BLOCK: Final = 500_000
MEASURED: Final = {"partitions": "per-partition rules", "audit": "all rules", "spark": "all rules, on Spark"}


# -- one measurement ---------------------------------------------------------------------------------


def measure(what: str, folder: Path) -> dict[str, Any]:
    """Return the verdict and the seconds it took."""
    from highwater.reports.audit import audit
    from highwater.reports.dataset.reader import Partitions
    from highwater.reports.execution.engines import Pool, engine_for
    from highwater.reports.rules.division import FirstPass
    from highwater.reports.rules.findings import Promise
    from highwater.reports.synth.healthy import CONFIG

    started = time.perf_counter()
    if what == "partitions":
        partitions = Partitions(folder)
        found = sum(len(findings) for _, findings in Pool().map_dataset(partitions, Promise.of(CONFIG), FirstPass()))
        verdict = f"{found} candidates"
    else:
        verdict = str(audit(folder, engine=engine_for("spark" if what == "spark" else "local")).verdict)
    return {"verdict": verdict, "seconds": time.perf_counter() - started}


def measured(what: str, folder: Path) -> dict[str, Any]:
    """Measure in a new process; adds CPU seconds and peak memory (MB) of its process tree."""
    command = [sys.executable, "-m", "highwater.experiments.figures.audits", what, str(folder)]
    most_kb, cpu_s = 0, dict[int, float]()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        while child.poll() is None:
            process_ids = _process_tree(child.pid)
            most_kb = max(most_kb, sum(_memory_kb(pid) for pid in process_ids))
            cpu_s |= {pid: max(cpu_s.get(pid, 0.0), _cpu_s(pid)) for pid in process_ids}
            time.sleep(SAMPLE_S)
        assert child.stdout is not None
        result: dict[str, Any] = json.loads(child.stdout.read())
    return result | {"cpu_s": sum(cpu_s.values()), "memory_mb": most_kb / 1e3}


def _process_tree(pid: int) -> list[int]:
    """Return a process and its descendants."""
    try:
        below = [children_file.read_text().split() for children_file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # the process has ended
        return []
    return [pid, *(member for children in below for child in children for member in _process_tree(int(child)))]


def _memory_kb(pid: int) -> int:
    """Return proportional memory (PSS), which divides shared pages among processes."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _cpu_s(pid: int) -> float:
    try:
        cells = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(cells[11]) + int(cells[12])) / os.sysconf("SC_CLK_TCK")


# -- by size -----------------------------------------------------------------------------------------


def by_size(sizes: tuple[int, ...] = SIZES) -> str:
    """Measure audits of Parquet datasets, including the start of Python and Spark."""
    from highwater.reports.synth.tiles import synth_tiles

    rows = ["| operations | | s | operations/s | CPU µs each | MB |", "|---|---|---|---|---|---|"]
    with temporary_folder("bench-") as place:
        for size in sizes:
            folder = place / str(size)
            count = synth_tiles(folder, operations=size)
            for what, words in MEASURED.items():
                if what != "spark" or size == SPARK_SIZE:
                    rows.append(_row(count, words, measured(what, folder)))
            shutil.rmtree(folder)
        folder = place / "many"
        write_dataset(folder, [{f"t-{number}": followed_log(0, 10) for number in range(MANY)}], 10 * MANY)
        rows.append(_row(10 * MANY, f"{MEASURED['audit']}, {MANY:,} partitions", measured("audit", folder)))
        folder = place / "skewed"
        skewed(folder, SPARK_SIZE)
        for what in ("audit", "spark"):
            words = f"{MEASURED[what]}, one partition with nine tenths"
            rows.append(_row(SPARK_SIZE, words, measured(what, folder)))
    return "\n".join(rows)


def _row(count: int, words: str, result: dict[str, Any]) -> str:
    return (
        f"| {count:,} | {words} | {result['seconds']:.1f} | {count / result['seconds']:,.0f} "
        f"| {result['cpu_s'] / count * 1e6:.2f} | {result['memory_mb']:,.0f} |"
    )


def followed_log(first: int, end: int) -> Operations:
    """Return operations of a producer and four readers of one partition; every other one is a send.

    After each send one reader fetches the last four records, so each reader receives every record once.
    """
    rows = np.arange(first, end)
    send, offset = rows % 2 == 0, rows // 2
    position = np.maximum(offset - READERS + 1, 0)
    count = np.where(send, 0, offset - position + 1)
    unknown, zero = np.full(len(rows), -1), np.zeros(len(rows), np.int64)
    place = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    record_number = np.repeat(position, count) + place
    return Operations(
        invoked=2 * rows, returned=2 * rows + 1, process=np.where(send, 0, 1 + offset % READERS), run=zero,
        kind=np.where(send, Kind.SEND, Kind.READ).astype(np.int64), status=zero, offset=np.where(send, offset, unknown),
        value=np.where(send, offset, unknown), position=np.where(send, unknown, position),
        high_watermark=np.where(send, unknown, offset + 1), leader_epoch=zero, quiet=zero, record_count=count,
        record_offset=record_number, record_value=record_number,
    )  # fmt: skip


def skewed(folder: Path, operations: int) -> None:
    """Write a dataset with nine tenths of the operations in one of ten partitions."""
    shares = {f"t-{number}": operations * (90 if number == 0 else 1) // 198 * 2 for number in range(10)}
    pieces = (
        {key: followed_log(first, min(first + BLOCK, share))}
        for key, share in shares.items()
        for first in range(0, share, BLOCK)
    )
    write_dataset(folder, pieces, sum(shares.values()))


# -- Porcupine ---------------------------------------------------------------------------------------


def simple_log(operations: int) -> Operations:
    """Return linearizable appends and ListOffsets of eight concurrent clients in one partition."""
    chance = np.random.default_rng(operations)
    place = np.arange(operations)
    append = chance.random(operations) < 0.5
    length: Ints = np.cumsum(append) - append
    called, returned = (10 * place + sign * chance.integers(1, 36, operations) for sign in (-1, 1))
    order = np.argsort(np.concatenate([called, returned]), kind="stable")
    moment = np.empty(2 * operations, np.int64)
    moment[order] = np.arange(2 * operations)
    unknown, zero = np.full(operations, -1), np.zeros(operations, np.int64)
    return Operations(
        invoked=moment[:operations], returned=moment[operations:], process=place % CLIENTS, run=zero, status=zero,
        kind=np.where(append, Kind.SEND, Kind.LIST_OFFSETS).astype(np.int64), offset=np.where(append, length, -1),
        value=np.where(append, length, -1), position=unknown, high_watermark=np.where(append, -1, length),
        leader_epoch=zero, quiet=zero, record_count=zero, record_offset=zero[:0], record_value=zero[:0],
    )  # fmt: skip


def read_once(ops: Operations) -> Operations:
    """Return the operations, and a reader that receives the whole log at the end: an unread log is never valid."""
    length = int((ops.kind == Kind.SEND).sum())
    begin = np.arange(0, length, READ_RECORDS)
    count = np.minimum(READ_RECORDS, length - begin)
    called = int(ops.returned.max()) + 1 + 2 * np.arange(len(begin))
    zero, unknown, offsets = np.zeros(len(begin), np.int64), np.full(len(begin), -1), np.arange(length)
    reads = Operations(
        invoked=called, returned=called + 1, process=zero + CLIENTS, run=zero, status=zero, kind=zero + Kind.READ,
        offset=unknown, value=unknown, position=begin, high_watermark=zero + length, leader_epoch=zero, quiet=zero + 1,
        record_count=count, record_offset=offsets, record_value=offsets,
    )  # fmt: skip
    return concatenate_operations([ops, reads])


def _lines(partition: int, ops: Operations) -> Ints:
    return np.column_stack(
        [ops.process, np.full(len(ops), partition), ops.invoked, ops.returned, ops.offset, ops.high_watermark]
    )


def _porcupine(program: Path, history: Path, partitions: int) -> str:
    """Return seconds and memory of Porcupine, or the limit that it exceeded, if possible one partition at a time."""
    together = _checked_by_porcupine(program, history)
    if together.endswith("MB") or partitions == 1:
        return together
    return f"{together}; one at a time: {_checked_by_porcupine(program, history, 'one at a time')}"


def _checked_by_porcupine(program: Path, history: Path, *mode: str) -> str:
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    with history.open("rb") as lines:
        command = ["/usr/bin/env", sys.executable, "-c", CHILD, str(program), f"{LIMIT_S}s", *mode]
        output = subprocess.run(command, stdin=lines, capture_output=True, text=True, check=False, preexec_fn=bound)
    if output.returncode:
        return f"out of {MEMORY_BYTES >> 30} GB"
    verdict, seconds, memory_kb = output.stdout.split()
    return f"{float(seconds):.2f} s, {int(memory_kb) / 1e3:,.0f} MB" if verdict == "Ok" else f"over {LIMIT_S} s"


CHILD: Final = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print(done.stdout.strip(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


def beside_porcupine(sizes: tuple[int, ...] = COMPARED) -> str:
    """Compare Porcupine, with its model of a log, to an audit by every rule that includes Parquet and a reader."""
    from highwater.artefacts import build

    program = build(Path(__file__).with_name("porcupine"), "go", "build", "-o", "porcupine", ".")
    rows = ["| operations | partitions | Porcupine | Highwater |", "|---|---|---|---|"]
    with temporary_folder("bench-") as place:
        for size in sizes:
            for partitions in PARTITIONS:
                parts = {f"t-{number}": simple_log(size // partitions) for number in range(partitions)}
                history = place / "history.txt"
                with history.open("w") as lines:
                    for number, ops in enumerate(parts.values()):
                        np.savetxt(lines, _lines(number, ops), fmt="%d")
                folder = place / f"{size}-{partitions}"
                read = {key: read_once(ops) for key, ops in parts.items()}
                write_dataset(folder, [read], sum(map(len, read.values())))
                ours = measured("audit", folder)
                assert ours["verdict"] == "valid", ours
                rows.append(
                    f"| {size:,} | {partitions} | {_porcupine(program / 'porcupine', history, partitions)} "
                    f"| {ours['seconds']:.2f} s, {ours['memory_mb']:,.0f} MB |"
                )
    return "\n".join(rows)


def write_dataset(folder: Path, pieces: Iterable[dict[str, Operations]], count: int) -> None:
    from highwater.reports.dataset.schema import Manifest
    from highwater.reports.dataset.writer import Writer
    from highwater.reports.importers.quarantine import Quarantine
    from highwater.reports.synth.healthy import CONFIG

    with Writer(folder) as writer:
        for parts in pieces:
            writer.add(parts, [])
        manifest = Manifest(
            source=("bench", 0, 0), format="ndjson", config=CONFIG, quarantine=Quarantine(), operations=count,
            inventory=writer.inventory(), faults=[],
        )  # fmt: skip
        writer.close(manifest, ([], np.zeros(0, np.int64), np.zeros(0, np.int64)), [], lambda _: None)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))

"""The auditor's figures: rates and memory by size, and Porcupine on the same histories.

Every measurement is a process of its own: `python -m reports.bench_audit WHAT FOLDER` prints what it took.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from reports.columns import Ints, Kind, Operations

SIZES: Final = (1_000_000, 10_000_000, 30_000_000)
COMPARED: Final = (1_000, 10_000, 100_000, 1_000_000)
PARTITIONS: Final = (1, 16)
CLIENTS: Final = 8
LIMIT_S: Final = 20
MEMORY_BYTES: Final = 6 << 30
"""Porcupine's limit: a million operations in one partition took all of 8 GB and more."""
MEASURED: Final = {"partitions": "per-partition rules", "audit": "all 38 rules"}


# -- one measurement ---------------------------------------------------------------------------------


def measure(what: str, folder: Path) -> dict[str, Any]:
    """Wall and CPU seconds, and the peak of this process and all its workers together, in MB."""
    from reports.audit import audit
    from reports.dataset.reader import Partitions
    from reports.engines import WORKERS, Pool, engine_for
    from reports.rules.found import Promise
    from reports.rules.run import first_look
    from reports.synth.healthy import CONFIG

    started = time.perf_counter()
    if what == "partitions":
        partitions = Partitions(folder)
        found = sum(len(each) for _, each in Pool().checked(partitions, Promise.of(CONFIG), first_look))
        verdict = f"{found} candidates"
    else:
        verdict = str(audit(folder, engine=engine_for("spark" if what == "spark" else "local")).verdict)
    mine, workers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "verdict": verdict,
        "seconds": time.perf_counter() - started,
        "cpu_s": sum(each.ru_utime + each.ru_stime for each in (mine, workers)),
        "memory_mb": (mine.ru_maxrss + WORKERS * workers.ru_maxrss) / 1e3,
    }


def measured(what: str, folder: Path) -> dict[str, Any]:
    """In a process of its own."""
    command = [sys.executable, "-m", "reports.bench_audit", what, str(folder)]
    told: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return told


# -- by size -----------------------------------------------------------------------------------------


def by_size(sizes: tuple[int, ...] = SIZES) -> str:
    """From Parquet, two processes; the seconds include the start of Python."""
    from reports.synth.tiles import synth_tiles

    rows = ["| operations | rules | s | operations/s | CPU µs each | MB |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory(prefix="highwater-bench-") as place:
        for size in sizes:
            folder = Path(place) / str(size)
            count = synth_tiles(folder, operations=size)
            for what, words in MEASURED.items():
                told = measured(what, folder)
                rows.append(
                    f"| {count:,} | {words} | {told['seconds']:.1f} | {count / told['seconds']:,.0f} "
                    f"| {told['cpu_s'] / count * 1e6:.2f} | {told['memory_mb']:,.0f} |"
                )
    return "\n".join(rows)


# -- Porcupine ---------------------------------------------------------------------------------------


def simple_log(operations: int) -> Operations:
    """Appends and looks at the end by eight clients that overlap, of one partition, linearizable."""
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


def _lines(partition: int, ops: Operations) -> Ints:
    return np.column_stack(
        [ops.process, np.full(len(ops), partition), ops.invoked, ops.returned, ops.offset, ops.high_watermark]
    )


def _porcupine(program: Path, history: Path) -> str:
    """Seconds to check, and memory, or why not."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    with history.open("rb") as lines:
        command = ["/usr/bin/env", sys.executable, "-c", CHILD, str(program), f"{LIMIT_S}s"]
        told = subprocess.run(command, stdin=lines, capture_output=True, text=True, check=False, preexec_fn=bound)
    if told.returncode:
        return f"out of {MEMORY_BYTES >> 30} GB"
    verdict, seconds, memory_kb = told.stdout.split()
    return f"{float(seconds):.2f} s, {int(memory_kb) / 1e3:,.0f} MB" if verdict == "Ok" else f"over {LIMIT_S} s"


CHILD: Final = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print(done.stdout.strip(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


def beside_porcupine(sizes: tuple[int, ...] = COMPARED) -> str:
    """The same appends and looks: Porcupine with its model of a log, ours with every rule, reading Parquet included."""
    from spec.builds import build

    program = build(Path(__file__).with_name("programs") / "porcupine", "go", "build", "-o", "porcupine", ".")
    rows = ["| operations | partitions | Porcupine | Highwater |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory(prefix="highwater-bench-") as place:
        for size in sizes:
            for partitions in PARTITIONS:
                parts = {f"t-{number}": simple_log(size // partitions) for number in range(partitions)}
                history = Path(place) / "history.txt"
                with history.open("w") as lines:
                    for number, ops in enumerate(parts.values()):
                        np.savetxt(lines, _lines(number, ops), fmt="%d")
                folder = Path(place) / f"{size}-{partitions}"
                _dataset(folder, parts)
                ours = measured("audit", folder)
                assert ours["verdict"] == "valid", ours
                rows.append(
                    f"| {size:,} | {partitions} | {_porcupine(program / 'porcupine', history)} "
                    f"| {ours['seconds']:.2f} s, {ours['memory_mb']:,.0f} MB |"
                )
    return "\n".join(rows)


def _dataset(folder: Path, parts: dict[str, Operations]) -> None:
    from reports.dataset.schema import Manifest
    from reports.dataset.writer import Writer
    from reports.importers.quarantine import Quarantine
    from reports.synth.healthy import CONFIG

    count = sum(len(ops) for ops in parts.values())
    with Writer(folder) as writer:
        writer.add(parts, [])
        manifest = Manifest(
            source=("bench", 0, 0), format="ndjson", config=CONFIG, quarantine=Quarantine(), operations=count, faults=[]
        )
        writer.close(manifest, ([], np.zeros(0, np.int64), np.zeros(0, np.int64)), [], lambda _: None)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))

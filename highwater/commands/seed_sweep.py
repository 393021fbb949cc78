"""Seeds of the simulator in bulk: one Parquet row a seed, here or as a Spark job, and only those that are missing.

`highwater simulate --seeds 0:1000000 --master spark://... --out DIR` comes here. The driver hands out chunks of seeds
and writes each chunk when it is back, so that a sweep that was stopped goes on where it stood. A row depends on its
seed and on the settings alone, which `highwater/soak/seed_recheck.py` checks.
"""

import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from highwater import fuzz, reference
from highwater.errors import UsageError
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.findings import options
from highwater.fuzz.simulator.search import run_seed
from highwater.results import progress

CHUNK: Final = 50  # seeds: some tens of seconds of work, lost when a sweep is stopped
WAVE: Final = 4  # chunks for each core between two visits to the driver
ABOUT: Final = "sweep.json"
SOURCES: Final = (Path(fuzz.__path__[0]), Path(reference.__path__[0]))
ROW: Final = pa.schema(
    [
        ("seed", pa.int64()), ("verdict", pa.string()), ("events", pa.int64()), ("simulated_ms", pa.int64()),
        ("acknowledged", pa.int64()), ("seen", pa.list_(pa.string())), ("trace_hash", pa.string()),
        ("invariant", pa.string()), ("operator", pa.string()), ("message", pa.string()),
        ("faults", pa.list_(pa.string())), ("replay", pa.string()), ("worker", pa.string()),
    ]
)  # fmt: skip
"""`seen`: situations, by name. From `invariant` to `replay` null when the seed is clean. `worker`: host and process."""

Row = dict[str, Any]
Chunk = list[int]


def row_of(seed: int, settings: Settings) -> Row:
    """Play a seed; the same row wherever that is, but for the worker."""
    result = run_seed(seed, settings, tracing=True)
    row: Row = dict.fromkeys(ROW.names) | {
        "seed": seed, "verdict": "violated" if result.violation else "held", "events": result.events,
        "simulated_ms": result.simulated_ms, "acknowledged": result.acked, "seen": sorted(result.seen),
        "trace_hash": result.trace_hash, "worker": f"{socket.gethostname()}:{os.getppid()}",
    }  # fmt: skip
    if result.violation is not None:
        row |= {
            "invariant": result.violation.invariant, "operator": result.violation.operator,
            "message": str(result.violation), "faults": result.faults,
            "replay": f"highwater simulate --seeds {seed}:{seed + 1}{options(settings)}",
        }  # fmt: skip
    return row


def rows_of(chunk: Chunk, settings: Settings) -> list[Row]:
    return [row_of(seed, settings) for seed in chunk]


# -- engines -----------------------------------------------------------------------------------------


def play_here(chunks: list[Chunk], settings: Settings, jobs: int) -> Iterator[list[Row]]:
    """Over processes, 0 for one a core."""
    with ProcessPoolExecutor(min(jobs or os.cpu_count() or 1, len(chunks))) as pool:
        yield from pool.map(partial(rows_of, settings=settings), chunks)


def play_on_spark(chunks: list[Chunk], settings: Settings, master: str) -> Iterator[list[Row]]:
    """One task a chunk; a worker that is lost costs its chunks, which Spark plays elsewhere."""
    from highwater.reports.execution.spark import spark_session

    with_spark = spark_session(master, "highwater-seeds")
    try:
        context = with_spark.sparkContext
        wave = WAVE * context.defaultParallelism
        for first in range(0, len(chunks), wave):
            some = chunks[first : first + wave]
            yield from context.parallelize(some, len(some)).map(partial(rows_of, settings=settings)).collect()
    finally:
        with_spark.stop()


# -- the folder --------------------------------------------------------------------------------------


class About(msgspec.Struct, frozen=True):
    """`sweep.json`: what made the rows, besides their seeds."""

    settings: Settings
    code: str


def _code() -> str:
    """A digest of the broker and the simulator: rows of two versions say nothing together."""
    digest = sha256()
    for folder in SOURCES:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder.parent).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _claim(out: Path, settings: Settings) -> None:
    """UsageError if the folder holds seeds of other settings, or of another version of the code."""
    out.mkdir(parents=True, exist_ok=True)
    about, mine = out / ABOUT, About(settings, _code())
    if about.exists() and about.read_bytes() != msgspec.json.encode(mine):
        raise UsageError(
            "these seeds were played with other settings, or by another version of the code",
            where=str(out),
            hint="give another --out",
        )
    about.write_bytes(msgspec.json.encode(mine))


def _write(out: Path, rows: list[Row]) -> None:
    """Whole or not at all."""
    path = out / f"{rows[0]['seed']:010}-{rows[-1]['seed']:010}.parquet"
    hidden = path.with_suffix(".tmp")
    pq.write_table(pa.Table.from_pylist(rows, schema=ROW), hidden)
    hidden.rename(path)


def settings_of_sweep(out: Path) -> Settings:
    try:
        return msgspec.json.decode((out / ABOUT).read_bytes(), type=About).settings
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"not the folder of a sweep: {error}", where=str(out)) from error


def read_rows(out: Path, columns: list[str] | None = None) -> Iterator[Row]:
    """Every row of a sweep, by seed."""
    for path in sorted(out.glob("*.parquet")):
        yield from pq.read_table(path, columns=columns).to_pylist()


def sweep(
    seeds: range, settings: Settings, out: Path, *, master: str = "", jobs: int = 0, quiet: bool = False,
    chunk: int = CHUNK,
) -> Row:  # fmt: skip
    """Play the seeds that the folder has not yet, and sum up all of them as `highwater simulate` does."""
    _claim(out, settings)
    done = {row["seed"] for row in read_rows(out, ["seed"])}
    missing = [seed for seed in seeds if seed not in done]
    chunks = [missing[at : at + chunk] for at in range(0, len(missing), chunk)]
    with progress("simulating", len(missing), quiet=quiet) as step:
        engine = play_on_spark(chunks, settings, master) if master else play_here(chunks, settings, jobs)
        for rows in engine if chunks else ():
            _write(out, rows)
            for _ in rows:
                step()
    return summary(row for row in read_rows(out) if row["seed"] in seeds)


def summary(rows: Iterable[Row]) -> Row:
    """What `highwater simulate` prints of its seeds, from rows; without a speed, since nobody knows when they ran."""
    seeds = events = simulated_ms = acknowledged = 0
    seen: Counter[str] = Counter()
    findings = []
    for row in rows:
        seeds += 1
        events += row["events"]
        simulated_ms += row["simulated_ms"]
        acknowledged += row["acknowledged"]
        seen.update(row["seen"])
        if row["verdict"] == "violated":
            findings.append(
                {name: row[name] for name in ("seed", "invariant", "operator", "message", "faults", "replay")}
            )
    return {
        "seeds": seeds, "events": events, "simulated_seconds": round(simulated_ms / 1000, 1),
        "acknowledged": acknowledged, "seen": dict(sorted(seen.items(), key=lambda item: (-item[1], item[0]))),
        "findings": findings,
    }  # fmt: skip

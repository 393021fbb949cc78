"""Run simulator seeds in bulk, here or as a Spark job: one Parquet row a seed, only missing ones.

Used by `highwater simulate --seeds 0:1000000 --master spark://... --out DIR`. The driver distributes chunks of seeds
and writes each finished chunk, so that an interrupted sweep can be resumed. A row depends only on its seed and the
settings, which `highwater/soak/seed_recheck.py` checks.
"""

import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from highwater import fuzz, reference
from highwater.commands.run_audit import audit_run
from highwater.errors import UsageError
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.findings import options
from highwater.fuzz.simulator.search import run_seed
from highwater.pools import process_pool
from highwater.results import progress

CHUNK: Final = 50  # seeds: some tens of seconds of work, lost when a sweep is interrupted
WAVE: Final = 4  # chunks for each core in one Spark job
ABOUT: Final = "sweep.json"
SOURCES: Final = (Path(fuzz.__path__[0]), Path(reference.__path__[0]))
ROW: Final = pa.schema(
    [
        ("seed", pa.int64()), ("verdict", pa.string()), ("events", pa.int64()), ("simulated_ms", pa.int64()),
        ("acknowledged", pa.int64()), ("audited", pa.int64()),
        ("seen", pa.list_(pa.string())), ("trace_hash", pa.string()),
        ("invariant", pa.string()), ("operator", pa.string()), ("message", pa.string()),
        ("faults", pa.list_(pa.string())), ("replay", pa.string()), ("worker", pa.string()),
    ]
)  # fmt: skip
"""`seen`: situations, by name. From `invariant` to `replay` null when the seed is clean. `worker`: host and process."""

Row = dict[str, Any]
Chunk = list[int]


def row_of(seed: int, settings: Settings) -> Row:
    """Run a seed and return its row, the same on every machine except for `worker`."""
    result = run_seed(seed, settings, tracing=True, audit=audit_run)
    row: Row = dict.fromkeys(ROW.names) | {
        "seed": seed, "verdict": "violated" if result.violation else "held", "events": result.events,
        "simulated_ms": result.simulated_ms, "acknowledged": result.acked, "audited": result.audited,
        "seen": sorted(result.situations),
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


def run_locally(chunks: list[Chunk], settings: Settings, jobs: int) -> Iterator[list[Row]]:
    """Run chunks in local processes; `jobs` 0 means one for each core."""
    with process_pool(min(jobs or os.cpu_count() or 1, len(chunks))) as pool:
        yield from pool.map(partial(rows_of, settings=settings), chunks)


def run_on_spark(chunks: list[Chunk], settings: Settings, master: str) -> Iterator[list[Row]]:
    """Run chunks as Spark tasks; Spark runs the chunks of a lost worker again."""
    from highwater.reports.execution.spark_session import spark_session

    session = spark_session(master, "highwater-seeds")
    try:
        context = session.sparkContext
        wave = WAVE * context.defaultParallelism
        for first in range(0, len(chunks), wave):
            wave_chunks = chunks[first : first + wave]
            yield from (
                context.parallelize(wave_chunks, len(wave_chunks)).map(partial(rows_of, settings=settings)).collect()
            )
    finally:
        session.stop()


# -- the folder --------------------------------------------------------------------------------------


class About(msgspec.Struct, frozen=True):
    """`sweep.json`: the settings and code version of the rows."""

    settings: Settings
    code: str


def code_digest() -> str:
    """Return a digest of the broker and simulator code: rows of two versions must not be mixed."""
    digest = sha256()
    for folder in SOURCES:
        for path in sorted(path for path in folder.rglob("*.py") if "tests" not in path.relative_to(folder).parts):
            digest.update(path.relative_to(folder.parent).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _claim(out: Path, settings: Settings) -> None:
    """Mark the folder as ours. Raises UsageError if it holds seeds of other settings or code."""
    out.mkdir(parents=True, exist_ok=True)
    about, mine = out / ABOUT, About(settings, code_digest())
    if about.exists() and about.read_bytes() != msgspec.json.encode(mine):
        raise UsageError(
            "these seeds were run with other settings, or by another version of the code",
            where=str(out),
            hint="give another --out",
        )
    about.write_bytes(msgspec.json.encode(mine))


def _write(out: Path, rows: list[Row]) -> None:
    """Write a chunk atomically."""
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
    """Yield every row of a sweep, by seed."""
    for path in sorted(out.glob("*.parquet")):
        yield from pq.read_table(path, columns=columns).to_pylist()


def sweep(
    seeds: range, settings: Settings, out: Path, *, master: str = "", jobs: int = 0, quiet: bool = False,
    chunk: int = CHUNK,
) -> Row:  # fmt: skip
    """Run the seeds that the folder lacks, and summarise all as `highwater simulate` does."""
    _claim(out, settings)
    done = {row["seed"] for row in read_rows(out, ["seed"])}
    missing = [seed for seed in seeds if seed not in done]
    chunks = [missing[at : at + chunk] for at in range(0, len(missing), chunk)]
    with progress("simulating", len(missing), quiet=quiet) as step:
        engine = run_on_spark(chunks, settings, master) if master else run_locally(chunks, settings, jobs)
        for rows in engine if chunks else ():
            _write(out, rows)
            for _ in rows:
                step()
    return summary(row for row in read_rows(out) if row["seed"] in seeds)


def summary(rows: Iterable[Row]) -> Row:
    """Return the summary that `highwater simulate` prints, without a speed: rows have no duration."""
    seeds = events = simulated_ms = acknowledged = audited = 0
    seen: Counter[str] = Counter()
    findings = []
    for row in rows:
        seeds += 1
        events += row["events"]
        simulated_ms += row["simulated_ms"]
        acknowledged += row["acknowledged"]
        audited += row["audited"]
        seen.update(row["seen"])
        if row["verdict"] == "violated":
            findings.append(
                {name: row[name] for name in ("seed", "invariant", "operator", "message", "faults", "replay")}
            )
    return {
        "seeds": seeds, "events": events, "simulated_seconds": round(simulated_ms / 1000, 1),
        "acknowledged": acknowledged, "audited": audited,
        "seen": dict(sorted(seen.items(), key=lambda item: (-item[1], item[0]))), "findings": findings,
    }  # fmt: skip

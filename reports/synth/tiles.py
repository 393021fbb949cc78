"""Generate datasets of any size quickly by repeating a small healthy history side by side and in time.

Copies side by side use different partitions. Copies that follow in time continue the same partitions: offsets, values,
epochs, transactions and clock start at the end of the previous tile.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from highwater.reports.columns import EPOCH_BITS, NEVER, OPTIONAL, UNKNOWN, Ints, Operations, producer_of
from highwater.reports.dataset.schema import Manifest
from highwater.reports.dataset.writer import Writer
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.ingest.events import Ingest
from highwater.reports.ingest.history import Ingested
from highwater.reports.synth.healthy import CONFIG, generate_history
from highwater.reports.tables import Step

TILE: Final = 20_000
COPIES: Final = 5  # of 12 partitions each
STEPS_EVERY: Final = 16
"""Only every 16th tile has steps of groups and transactions: clients commit less often than they poll."""
NUMBERED: Final = ("process", "key", "node", "group")
OFFSETS: Final = ("offset", "position", "high_watermark", "last_stable_offset")
IDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Tile:
    """How far each counter advances in one tile."""

    history: Ingested
    events: int
    numbers: int
    values: int
    epochs: int
    transactions: int
    ms: int
    ends: dict[str, int]

    @classmethod
    def of(cls, history: Ingested) -> "Tile":
        parts = history.partitions.values()

        def most(*names: str) -> int:
            return 1 + max(int(getattr(ops, name).max(initial=0)) for ops in parts for name in names)

        steps = [step for partition_steps in history.tables.steps.values() for step in partition_steps]
        return cls(
            history,
            events=most("invoked") * 2,
            numbers=max(most(*NUMBERED), 1 + (most("producer") >> EPOCH_BITS), 1 + max(step.process for step in steps)),
            values=most("value", "record_value"),
            epochs=most("leader_epoch"),
            transactions=len(history.tables.transactions.names),
            ms=most("at_ms"),
            ends={key: int(ops.high_watermark.max()) for key, ops in history.partitions.items()},
        )


def _moved(column: Ints, by: int) -> Ints:
    return np.where(column == UNKNOWN, column, column + by)


def _times(column: Ints, tile: Tile, turn: int, copy: int) -> Ints:
    return np.where((column < 0) | (column >= NEVER), column, (column + turn * tile.events) * COPIES + copy)


def _operations(ops: Operations, tile: Tile, key: str, turn: int, copy: int) -> Operations:
    which, end = turn * COPIES + copy, turn * tile.ends[key]
    moves = dict.fromkeys(OFFSETS, end) | dict.fromkeys(NUMBERED, which * tile.numbers) | {
        "producer": producer_of(which * tile.numbers, 0),
        "value": which * tile.values, "leader_epoch": turn * tile.epochs, "txn": which * tile.transactions,
        "at_ms": turn * tile.ms, "calm_ms": turn * tile.ms,
    }  # fmt: skip
    present = {name: by for name, by in moves.items() if name not in OPTIONAL or ops.has_values(name)}
    return replace(
        ops,
        **{name: _moved(getattr(ops, name), by) for name, by in present.items()},
        **{name: _times(getattr(ops, name), tile, turn, copy) for name in ("invoked", "returned")},
        quiet=np.zeros_like(ops.quiet),
        record_offset=ops.record_offset + end,
        record_value=ops.record_value + which * tile.values,
    )


def _key(key: str, copy: int) -> str:
    topic, _, number = key.rpartition("-")
    return f"{topic}.{copy}-{number}"


def _steps(tile: Tile, turn: int, copy: int) -> Iterator[Step]:
    which = turn * COPIES + copy
    for step in (step for partition_steps in tile.history.tables.steps.values() for step in partition_steps):
        times = _times(np.array([step.invoked, step.returned]), tile, turn, copy).tolist()
        moved = step._replace(
            invoked=times[0], returned=times[1], process=step.process + which * tile.numbers,
            txn=step.txn + which * tile.transactions if step.txn != UNKNOWN else UNKNOWN,
            at_ms=step.at_ms + turn * tile.ms, group=f"{step.group}.{which}" if step.group else "",
        )  # fmt: skip
        if step.f == "init_producer":
            yield moved._replace(number=step.number + which * IDS if step.number != UNKNOWN else UNKNOWN)
        elif step.f == "metadata":
            yield moved._replace(subject=_key(step.subject, copy), epoch=step.epoch + turn * tile.epochs)
        else:
            end = turn * tile.ends.get(step.subject, 0)
            yield moved._replace(
                subject=_key(step.subject, copy) if step.subject in tile.ends else step.subject,
                number=step.number + end if step.number != UNKNOWN else UNKNOWN,
                position=step.position + end if step.position != UNKNOWN else UNKNOWN,
            )


def synth_tiles(folder: Path, *, operations: int, seed: int = 1, tile: int = TILE) -> int:
    """Write a dataset of about `operations` operations; return the exact number."""
    reading = Ingest()
    generate_history(seed, tile, reading.take)
    base = Tile.of(reading.ingested(CONFIG))
    steps_per_tile = sum(len(partition_steps) for partition_steps in base.history.tables.steps.values()) / STEPS_EVERY
    turns = round(operations / (COPIES * (base.history.rows + steps_per_tile))) or 1
    fate, ended = base.history.tables.transactions.columns()
    count = 0
    with Writer(folder) as writer:
        for turn in range(turns):
            steps: list[Step] = []
            partitions = {}
            for copy in range(COPIES):
                for key, ops in base.history.partitions.items():
                    partitions[_key(key, copy)] = _operations(ops, base, key, turn, copy)
                if turn % STEPS_EVERY == 0:
                    steps += _steps(base, turn, copy)
            writer.add(partitions, steps)
            count += sum(len(ops) for ops in partitions.values()) + len(steps)
        pieces = [(turn, copy) for turn in range(turns) for copy in range(COPIES)]
        names = (f"{name}.{turn}.{copy}" for turn, copy in pieces for name in base.history.tables.transactions.names)
        ends = np.concatenate([_times(ended[:-1], base, turn, copy) for turn, copy in pieces])
        manifest = Manifest(
            source=(f"tiles {seed}", 0, 0), format="ndjson", config=CONFIG, quarantine=Quarantine(), operations=count,
            inventory=writer.inventory(), faults=[],
        )  # fmt: skip
        writer.close(manifest, (names, np.tile(fate[:-1], len(pieces)), ends), [], lambda _: None)
    return count

"""Write a generated history as NDJSON or as Parquet buckets."""

from pathlib import Path

import msgspec

from highwater.errors import UsageError
from highwater.reports.dataset.writer import Writer
from highwater.reports.execution.reading import AT_ONCE
from highwater.reports.importers.formats import History
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.ingest.events import Ingest
from highwater.reports.synth.healthy import CONFIG, Plant, generate_history
from highwater.reports.synth.plants import PLANTS, SETTINGS, plant
from highwater.spec.formats.history import Config, Event, header, trailer


def synth(path: Path, *, operations: int, seed: int, planted: dict[int, int]) -> Config:
    """Write NDJSON; `planted` maps rules to the number of anomalies. Raises UsageError on I/O errors."""
    config, plants = _planted(planted)
    encoder = msgspec.json.Encoder()
    hidden = path.with_name(f".{path.name}")
    try:
        with hidden.open("wb", buffering=1 << 20) as sink:
            events = 0

            def write(event: Event) -> None:
                nonlocal events
                events += 1
                sink.write(encoder.encode(event) + b"\n")

            write(header(config))
            generate_history(seed, operations, write, plants)
            write(trailer(events))
        hidden.replace(path)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        hint = "free disk space or write elsewhere"
        raise UsageError(f"cannot write ({error.strerror})", where=str(path), hint=hint) from error
    return config


def synth_dataset(folder: Path, *, operations: int, seed: int, planted: dict[int, int]) -> Config:
    """Write the history as Parquet buckets."""
    config, plants = _planted(planted)
    reading = Ingest()
    with Writer(folder) as writer:

        def take(event: Event) -> None:
            reading.take(event)
            if reading.pending >= AT_ONCE:
                writer.append(reading)

        generate_history(seed, operations, take, plants)
        writer.finish(reading, History("ndjson", config, iter(()), Quarantine()), (f"synth {seed}", 0, 0))
    return config


def _planted(planted: dict[int, int]) -> tuple[Config, list[Plant]]:
    unknown = [rule for rule in planted if rule not in PLANTS]
    if unknown:
        raise UsageError(f"no rule {unknown[0]}", where="--plant", hint=f"1 to {max(PLANTS)}; see spec/anomalies.toml")
    config = CONFIG
    for rule in planted:
        config = msgspec.structs.replace(config, **SETTINGS.get(rule, {}))
    rules = [rule for rule, count in sorted(planted.items()) for _ in range(count)]
    return config, [plant(rule, number) for number, rule in enumerate(rules)]

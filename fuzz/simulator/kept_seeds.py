"""Read and write kept seeds: for each guard a schedule that violates an invariant without it (`fuzz/seeds`)."""

from pathlib import Path
from typing import Final, Self

import msgspec

from highwater.errors import UsageError
from highwater.fuzz.schedule import Option, Schedule, check
from highwater.fuzz.simulator.cluster import Load, Settings
from highwater.fuzz.simulator.search import SeedResult, run_seed

FOLDER: Final = Path(__file__).parents[1] / "seeds"


class KeptSeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A schedule with the guard, the settings and the invariant that it violates while the guard is off.

    `also_off` are guards that would mask this one. `load` replaces the clients that the seed draws.
    """

    guard: str
    invariant: str
    schedule: Schedule
    also_off: tuple[str, ...] = ()
    min_insync_replicas: int = 2
    isr_update: str = ""
    load: Load | None = None
    broker_settings: dict[str, Option] = {}
    assigned: tuple[int, ...] = ()

    @classmethod
    def from_run(cls, guard: str, settings: Settings, invariant: str, schedule: Schedule) -> Self:
        """Return the kept seed of a run with these settings that violated the invariant."""
        return cls(
            guard=guard, invariant=invariant, schedule=schedule, load=settings.load,
            also_off=tuple(other for other in settings.guards_off if other != guard),
            min_insync_replicas=settings.min_insync_replicas, broker_settings=settings.broker_settings,
            assigned=settings.assigned,
        )  # fmt: skip

    def settings(self, *, off: bool = True) -> Settings:
        """Return the settings of the run; with `off` False the guard stays on."""
        return Settings(
            guards_off=((self.guard,) if off else ()) + self.also_off,
            min_insync_replicas=self.min_insync_replicas,
            load=self.load,
            assigned=self.assigned,
            swarm=True,
            broker_settings=self.broker_settings | ({"isr_update": self.isr_update} if self.isr_update else {}),
        )

    def run(self, *, off: bool = True, tracing: bool = False) -> SeedResult:
        """Run the schedule; with `off` False the guard stays on."""
        return run_seed(self.schedule.seed, self.settings(off=off), schedule=self.schedule, tracing=tracing)


def read_kept_seed(path: Path) -> KeptSeed:
    """Return the kept seed in a file; raises UsageError if the file has none or its schedule is invalid."""
    try:
        kept_seed = msgspec.json.decode(path.read_bytes(), type=KeptSeed)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"this is not a kept seed: {error}", where=str(path)) from error
    check(kept_seed.schedule, where=str(path))
    return kept_seed


def write_kept_seed(kept_seed: KeptSeed, folder: Path = FOLDER) -> Path:
    """Write `<guard>.json` in the folder, which is created if missing; return its path."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{kept_seed.guard}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept_seed)) + b"\n")
    return path


def kept_seeds() -> list[Path]:
    """Return the files of `fuzz/seeds`, sorted by guard."""
    return sorted(FOLDER.glob("*.json"))

"""The kept seeds: of each guard a schedule that breaks an invariant once it is off (`fuzz/seeds/<guard>.json`)."""

from pathlib import Path
from typing import Final, Self

import msgspec

from highwater.errors import UsageError
from highwater.fuzz.schedule import Option, Schedule, check
from highwater.fuzz.simulator.cluster import Load, Settings
from highwater.fuzz.simulator.search import SeedResult, run_seed

FOLDER: Final = Path(__file__).parents[1] / "seeds"


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`also_off`: guards that would mask this one. `load`, where the one that the seed draws would not do."""

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
    def of(cls, guard: str, settings: Settings, invariant: str, schedule: Schedule) -> Self:
        """What a run found under these settings."""
        return cls(
            guard=guard, invariant=invariant, schedule=schedule, load=settings.load,
            also_off=tuple(each for each in settings.guards_off if each != guard),
            min_insync_replicas=settings.min_insync_replicas, broker_settings=settings.broker_settings,
            assigned=settings.assigned,
        )  # fmt: skip

    def settings(self, *, off: bool = True) -> Settings:
        """Those of the run; with `off` False the guard is on."""
        return Settings(
            guards_off=((self.guard,) if off else ()) + self.also_off,
            min_insync_replicas=self.min_insync_replicas,
            load=self.load,
            assigned=self.assigned,
            swarm=True,
            broker_settings=self.broker_settings | ({"isr_update": self.isr_update} if self.isr_update else {}),
        )

    def run(self, *, off: bool = True, tracing: bool = False) -> SeedResult:
        return run_seed(self.schedule.seed, self.settings(off=off), schedule=self.schedule, tracing=tracing)


def read_kept(path: Path) -> Kept:
    """UsageError for a file that is none."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"not a kept seed: {error}", where=str(path)) from error
    check(kept.schedule, where=str(path))
    return kept


def write_kept(kept: Kept, folder: Path = FOLDER) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{kept.guard}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
    return path


def kept_seeds() -> list[Path]:
    return sorted(FOLDER.glob("*.json"))

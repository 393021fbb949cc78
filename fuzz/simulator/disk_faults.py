"""What disks do without an error: which stored bytes rot, and what a run has of it.

`SILENT_DAMAGE` has a row for each promise of a broker in docs/simulation.md. Every second run with brokers has some of
them besides its other faults. They are drawn with keys of their own, so that they change no other draw.
"""

from typing import Final

from highwater.fuzz.schedule import ROTTING_FILES, Fault, Option
from highwater.fuzz.simulator.cluster import OFFSETS_TOPIC, TOPIC, TRANSACTIONS_TOPIC, Settings
from highwater.reference.drivers.simulation.chance import Chance
from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.wire.records import HEADER_SIZE

LOGS: Final = {"data": TOPIC, "offsets": OFFSETS_TOPIC, "transactions": TRANSACTIONS_TOPIC}
"""The topics whose first partition a fault can damage, by their names in a schedule."""

ROT: Final[list[tuple[str, dict[str, Option]]]] = [("rot_file", {"file": file}) for file in ROTTING_FILES]
SILENT_DAMAGE: Final[tuple[tuple[str, dict[str, Option]], ...]] = (
    ("volatile_disk", {"about": "flushes"}),
    ("volatile_disk", {"about": "names"}),
    ("misdirect", {}),
    *ROT,
)
SILENT_KINDS: Final = tuple(dict.fromkeys(kind for kind, _ in SILENT_DAMAGE))
MAX_SILENT: Final = 3
BITS: Final = 8 * 4096
LONGEST_MS: Final = 2_000

LOST: Final = {"flushes": "flushed data lost", "names": "renames undone"}
MISDIRECTED: Final = "misdirected write"
REJECTED: Final = "rejected log deleted"
SILENT_SITUATIONS: Final = (
    *LOST.values(), REJECTED, MISDIRECTED, *(f"rotten {log} log" for log in LOGS),
    *(f"rotten {file}" for file in ROTTING_FILES),
)  # fmt: skip
"""The situations in which a disk had damaged something that the broker had stored."""

CRC_COVERS: Final = 21  # offset in a batch (the attributes) from which the CRC covers it
BATCH_OVERHEAD: Final = 12  # bytes of base offset and length, which the length field does not count
NOT_TEXT: Final = 0x80
CHECKPOINTS: Final = "checkpoints"
OF_ABORTS: Final = "transaction index"  # internal topics have none
SUFFIXES: Final = {
    "offset index": ".index", "time index": ".timeindex", OF_ABORTS: ".txnindex",
    "producer snapshot": ".snapshot", "leader epochs": "leader-epoch-checkpoint", CHECKPOINTS: "-offset-checkpoint",
}  # fmt: skip
"""The files of a partition, and those of all partitions (`checkpoints`), by the end of their names."""
TEXT: Final = frozenset({"leader epochs", CHECKPOINTS})


def rot_newest_segment(disk: SimulatedDisk, folder: str, bit: int) -> bool:
    """Flip a bit that a CRC covers in the newest segment; return False if it has no batch.

    Base offset and leader epoch are not covered by the CRC of a batch, so such a change could not be detected.
    """
    paths = [f"{folder}/{name}" for name in disk.names(folder) if name.endswith(".log")]
    covered: list[int] = []
    position, size = 0, disk.size(paths[-1]) if paths else 0
    while position + HEADER_SIZE <= size:
        length = int.from_bytes(disk.read(paths[-1], position + 8, 4), "big")
        covered += range(position + CRC_COVERS, min(position + BATCH_OVERHEAD + length, size))
        position += BATCH_OVERHEAD + length
    if covered:
        disk.rot(paths[-1], covered[bit // 8 % len(covered)], 1 << bit % 8)
    return bool(covered)


def rot_file(disk: SimulatedDisk, folder: str, kind: str, bit: int) -> bool:
    """Flip a bit of each file of a kind; return False if there is none with content.

    In a file of text it is the highest bit of a byte: a wrong digit could not be detected, in Apache Kafka either.
    """
    where = "" if kind == CHECKPOINTS else folder
    paths = [f"{where}/{name}".lstrip("/") for name in disk.names(where) if name.endswith(SUFFIXES[kind])]
    sizes = {path: disk.size(path) for path in paths if disk.size(path)}
    for path, size in sizes.items():
        disk.rot(path, bit // 8 % size, NOT_TEXT if kind in TEXT else 1 << bit % 8)
    return bool(sizes)


def draw_silent_damage(chance: Chance, settings: Settings, load_ms: int) -> list[Fault]:
    """Draw the silent damage of a run: none, or up to `MAX_SILENT` rows of `SILENT_DAMAGE`."""
    if not settings.brokers or not chance.draw("silent damage", 0, 2):
        return []
    drawn = range(1 + chance.draw("silent faults", 0, MAX_SILENT))
    return [fault for n in drawn for fault in _draw_damage(chance, n, settings, load_ms)]


def _draw_damage(chance: Chance, n: int, settings: Settings, load_ms: int) -> list[Fault]:
    kind, options = SILENT_DAMAGE[chance.draw("damage", n, len(SILENT_DAMAGE))]
    at_ms, lasts_ms = (
        chance.draw("damage at", n, load_ms - LONGEST_MS),
        400 + chance.draw("damage lasts", n, LONGEST_MS - 400),
    )
    which = chance.draw("damaged node", n, settings.brokers + 2)
    if kind == "volatile_disk":
        return _lose_power(chance, n, str(1 + which % settings.brokers), at_ms, lasts_ms, options)
    role = "coordinator(g)" if settings.clients.members else "leader(t,0)"
    node = str(1 + which) if which < settings.brokers else role
    logs = ("data", "data", *(log for log, topic in LOGS.items() if topic in settings.internal_topics))
    if options.get("file") == OF_ABORTS:
        logs = ("data",)
    options = {
        **options,
        "bit": chance.draw("damaged bit", n, BITS),
        "of": logs[chance.draw("damaged log", n, len(logs))],
    }
    if kind == "misdirect":
        options["instead"] = logs[chance.draw("instead of log", n, len(logs))]
    return [Fault(at_ms=at_ms, for_ms=lasts_ms // 4, kind=kind, nodes=(node,), options=options)]


def _lose_power(
    chance: Chance, n: int, node: str, at_ms: int, lasts_ms: int, options: dict[str, Option]
) -> list[Fault]:
    """Return a disk that acknowledges what it does not store, and a loss of power before it stores again."""
    lost_ms = at_ms + lasts_ms // 3 + chance.draw("power fails", n, lasts_ms // 2)
    return [
        Fault(at_ms=at_ms, for_ms=lasts_ms, kind="volatile_disk", nodes=(node,), options=options),
        Fault(at_ms=lost_ms, for_ms=lasts_ms // 4, kind="kill", nodes=(node,), options={"lose": "unflushed"}),
    ]

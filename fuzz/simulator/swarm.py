"""Draw the network, the clients and the fault schedule of a run from its seed.

Swarm testing: first draw which kinds of fault a run may have, then the time and the node of each fault. Every draw is
keyed by its purpose and number, so removing one fault changes no other.
"""

from dataclasses import replace
from typing import Final

from msgspec import structs

from highwater.fuzz.schedule import KINDS as KINDS_OF_FAULT
from highwater.fuzz.schedule import Fault, Option, Schedule
from highwater.fuzz.simulator.cluster import (
    CLASSIC,
    Load,
    Settings,
)
from highwater.fuzz.simulator.disk_faults import SILENT_KINDS, draw_silent_damage
from highwater.reference.drivers.simulation.chance import Chance

LOAD_MS: Final = 6_000
MAX_FAULTS: Final = 8
SHIFT_MS: Final = 300
LASTS_MS: Final = (40, 150, 700, 2_000)

KINDS: Final = (
    "kill", "kill", "kill", "pause", "bounce", "cut", "clog", "delay", "loss", "disconnect", "duplicate", "slow_flush",
    "fail_flush", "full_disk", "rot", "clock", "expire", "stall",
)  # fmt: skip
"""The kinds that a schedule draws from; `kill` has three entries because most violations need it."""

ALL_KINDS: Final = (*KINDS, *SILENT_KINDS)
ASSIGNORS: Final = ("range", "cooperative-sticky", "sticky", "cooperative-sticky+range")

OF_LINKS: Final = frozenset({"cut", "clog", "delay", "loss", "disconnect", "duplicate"})
OF_CLIENTS: Final = OF_LINKS | {"kill", "pause"}
OF_ONE_BROKER: Final = frozenset({"bounce", "rot", "fail_flush", "full_disk", "expire", *SILENT_KINDS})
ROLES: Final = ("leader(t,0)", "followers(t,0)", "controller", "store")


def settings_of(seed: int, base: Settings) -> Settings:
    """Return `base` with the network that the seed draws; with `swarm` also its clients and its kind of ISR update."""
    chance = Chance(seed)
    settings = replace(
        base,
        spread_ms=(1, 4, 20)[chance.draw("spread", 0, 3)],
        loss_per_mille=(0, 0, 2, 8)[chance.draw("loss", 0, 4)],
    )
    return _swarm(chance, settings) if base.swarm else settings


def _swarm(chance: Chance, base: Settings) -> Settings:
    load = base.load or draw_load(chance)
    if load.old_consumers:
        return replace(base, load=load, brokers=0, partitions=0, pace=1)
    isr_update = ("zookeeper", "alter_partition")[chance.draw("isr update", 0, 2)]
    return replace(
        base,
        load=load,
        partitions=3
        if load.transactional or load.group_readers or load.members or load.transforms
        else base.partitions,
        brokers=max((base.brokers + load.administrator, *base.assigned)),
        replication_factor=len(base.assigned) or base.replicas,
        reorder=chance.draw("reorder", 0, 2) > 0,
        broker_settings={"isr_update": isr_update, **base.broker_settings},
    )


def draw_load(chance: Chance) -> Load:
    """Draw the clients of a run: only producers, producers and a group, or producers and an administrator.

    Readers of some kind are in most of them, transactions and a group together in some. One run in sixteen has only
    consumers of Kafka 0.7; of the others one in eight has an intruder, too.
    """
    if chance.draw("old consumers", 0, 16) == 0:
        return Load(producers=0, old_consumers=3)
    load = _draw_readers(chance, _draw_main_load(chance))
    return replace(load, intruder=chance.draw("intruder", 0, 8) == 0)


def _draw_readers(chance: Chance, load: Load) -> Load:
    """Add readers to a load, and transactions to some loads with a group."""
    with_group = bool(load.members) and chance.draw("group and transactions", 0, 3) == 0
    return replace(
        load,
        transactional=1 if with_group else load.transactional,
        readers=(0, 1, 2, 2)[chance.draw("readers", 0, 4)],
        group_readers=(0, 0, 2)[chance.draw("group readers", 0, 3)],
        transforms=("", "", "", "", CLASSIC, "v2")[chance.draw("transforms", 0, 6)],
    )


def _draw_main_load(chance: Chance) -> Load:
    idempotent, transactional = chance.draw("idempotent", 0, 2), int(chance.draw("transactional", 0, 3) == 0)
    match chance.draw("load", 0, 3):
        case 0:
            return Load(idempotent=idempotent, transactional=transactional)
        case 1:
            assignors = ASSIGNORS[chance.draw("assignor", 0, len(ASSIGNORS))]
            twins = (0, 0, 1, 2)[chance.draw("twins", 0, 4)]
            return Load(idempotent=idempotent, members=(assignors,) * (2 + chance.draw("members", 0, 2)), twins=twins)
        case _:
            deletes = chance.draw("deletes", 0, 2) == 0
            beside = chance.draw("administrator and transactions", 0, 3) == 0
            return Load(idempotent=idempotent, transactional=int(beside), administrator=True, deletes=deletes)


def draw_schedule(seed: int, settings: Settings) -> Schedule:
    """Draw one to eight faults and silent damage, or only the times of the faults in `Focus.faults` if there are any.

    A run whose `Focus` names kinds of faults has no others.
    """
    chance, focus = Chance(seed), settings.focus
    if focus.faults:
        faults = [_shift_fault(chance, n, fault) for n, fault in enumerate(focus.faults)]
    else:
        known = focus.kinds or KINDS
        kinds = [kind for n, kind in enumerate(known) if chance.draw("kinds", n, 3) == 0] or [known[0]]
        faults = [_draw_fault(chance, n, kinds, settings) for n in range(1 + chance.draw("faults", 0, MAX_FAULTS))]
        faults += [] if focus.kinds else draw_silent_damage(chance, settings, LOAD_MS)
    duration_ms = max([LOAD_MS, *(fault.at_ms + fault.for_ms for fault in faults)])
    if not focus.faults:
        duration_ms = LOAD_MS
    faults = [_paced(fault, settings.pace) for fault in sorted(faults, key=lambda fault: fault.at_ms)]
    return Schedule(seed=seed, duration_ms=duration_ms * settings.pace, faults=tuple(faults))


def _paced(fault: Fault, pace: int) -> Fault:
    """Return the fault with its times multiplied, except for the jump of a clock."""
    options = {name: value * pace if name in {"ms", "spread_ms"} else value for name, value in fault.options.items()}
    return structs.replace(fault, at_ms=fault.at_ms * pace, for_ms=fault.for_ms * pace, options=options)


def _shift_fault(chance: Chance, n: int, fault: Fault) -> Fault:
    """Return the fault delayed and prolonged by up to `SHIFT_MS`, as message delays also depend on the seed.

    A fault at 0 ms stays there, and a fault without duration gets none.
    """
    return structs.replace(
        fault,
        at_ms=fault.at_ms + chance.draw("at", n, SHIFT_MS) if fault.at_ms else 0,
        for_ms=fault.for_ms + chance.draw("lasts more", n, SHIFT_MS) if fault.for_ms else 0,
    )


def client_names(load: Load) -> tuple[str, ...]:
    """Return the names of the group members and other consumers, which faults may stop or disconnect."""
    amounts = {
        "member": len(load.members),
        "old": load.old_consumers,
        "group-reader": load.group_readers,
        "transformer": int(bool(load.transforms)),
    }
    return tuple(f"{kind}:{number}" for kind, amount in amounts.items() for number in range(amount))


def _draw_fault(chance: Chance, n: int, kinds: list[str], settings: Settings) -> Fault:
    clients = client_names(settings.clients)
    kind = kinds[chance.draw("kind", n, len(kinds))]
    if kind == "stall" and not settings.clients.members:
        kind = "pause"
    lasts_ms = LASTS_MS[chance.draw("lasts", n, len(LASTS_MS))] + chance.draw("lasts more", n, 60)
    return Fault(
        at_ms=chance.draw("at", n, LOAD_MS),
        for_ms=lasts_ms if KINDS_OF_FAULT[kind].lasts else 0,
        kind=kind,
        nodes=(_draw_node(chance, n, kind, settings, clients),),
        options=_draw_options(chance, n, kind, settings),
    )


def _draw_node(chance: Chance, n: int, kind: str, settings: Settings, clients: tuple[str, ...]) -> str:
    if kind == "stall":
        return clients[chance.draw("client", n, len(settings.clients.members))]
    if not settings.brokers:
        return (*clients, "store")[chance.draw("client", n, 1 + len(clients))]
    if clients and kind in OF_CLIENTS and chance.draw("of clients", n, 3) == 0:
        return clients[chance.draw("client", n, len(clients))]
    roles = ROLES if kind not in OF_ONE_BROKER else ROLES[:1] + ROLES[2:3]
    which = chance.draw("target", n, settings.brokers + len(roles))
    return str(1 + which) if which < settings.brokers else roles[which - settings.brokers]


def _draw_options(chance: Chance, n: int, kind: str, settings: Settings) -> dict[str, Option]:
    options: dict[str, Option] = {}
    if kind in OF_LINKS:
        peers = ("others", "others", "brokers", "store", *map(str, range(1, settings.brokers + 1)))
        options["of"] = peers[chance.draw("of", n, len(peers))]
        options["direction"] = ("both", "both", "out", "in")[chance.draw("direction", n, 4)]
        if settings.focus.messages:
            options["what"] = settings.focus.messages[chance.draw("what", n, len(settings.focus.messages))]
    match kind:
        case "kill":
            options["lose"] = ("nothing", "unflushed", "unflushed", "torn")[chance.draw("lose", n, 4)]
        case "delay":
            options["ms"], options["spread_ms"] = chance.draw("ms", n, 300), chance.draw("more ms", n, 300)
        case "loss" | "duplicate":
            options["per_mille"] = (10, 50, 200)[chance.draw("rate", n, 3)]
        case "slow_flush":
            options["ms"] = chance.draw("ms", n, 800)
        case "rot":
            options["bit"] = chance.draw("bit", n, 8 * 4096)
            options["of"] = ("data", "data", "offsets", "transactions")[chance.draw("rotten log", n, 4)]
        case "clock":
            options["by_ms"], options["back"] = chance.draw("ms", n, 3_600_000), chance.draw("back", n, 2)
    return options

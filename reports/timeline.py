"""What a page shows of a history: lanes of clients, fault windows, latencies and throughput, in seconds."""

from dataclasses import dataclass, field
from pathlib import Path

from spec.formats.history import NEMESIS, Event, read_history

NS = 1e9
OUTCOMES = ("ok", "info", "fail")
ENDS = {"kill": "restart", "bounce": "restart", "pause": "resume"}
SLICES = 400  # what a screen can tell apart


@dataclass(frozen=True, slots=True)
class Window:
    """A node was down, paused or cut off from `start_s` to `end_s`; what takes no time ends as it begins."""

    kind: str
    node: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Block:
    """Operations of one lane that look like one on the screen: `count` of them, the worst outcome wins."""

    start_s: float
    end_s: float
    outcome: str
    f: str
    count: int


@dataclass(slots=True)
class Lane:
    name: str
    client: str
    blocks: list[Block] = field(default_factory=list)


@dataclass(slots=True)
class Timeline:
    duration_s: float
    lanes: list[Lane]
    windows: list[Window]
    latencies: list[tuple[float, float, str]]  # when it completed (s), how long it took (ms), outcome
    event_times_s: list[float]
    processes: dict[int | str, str]  # history process -> lane name


def read_timeline(path: Path) -> Timeline:
    """One pass over the history."""
    _, events = read_history(path)
    opened: dict[int | str, Event] = {}
    spans: dict[int | str, list[Block]] = {}
    clients: dict[int | str, str] = {}
    latencies: list[tuple[float, float, str]] = []
    faults: list[Event] = []
    times = [0.0]
    for event in events:
        times.append(event.time_ns / NS)
        if event.process == NEMESIS:
            faults.append(event)
            continue
        if event.client:
            clients[event.process] = event.client
        if event.type == "invoke":
            opened[event.process] = event
        elif event.f not in {"assign", "revoke"} and event.process in opened:
            begun = opened.pop(event.process)
            block = Block(begun.time_ns / NS, event.time_ns / NS, event.type, event.f, 1)
            spans.setdefault(event.process, []).append(block)
            if event.f == "send":
                latencies.append((block.end_s, (block.end_s - block.start_s) * 1000, event.type))
    duration_s = max(times)
    names = _lane_names(spans, clients)
    lanes = {
        name: Lane(name, clients.get(process, ""))
        for process, name in sorted(names.items(), key=lambda i: str(i[0]).zfill(6))
    }
    for process, blocks in spans.items():
        lanes[names[process]].blocks += blocks
    for lane in lanes.values():
        lane.blocks = _merge(lane.blocks, duration_s)
    return Timeline(duration_s, list(lanes.values()), _windows(faults, duration_s), latencies, times, names)


def _lane_names(spans: dict[int | str, list[Block]], clients: dict[int | str, str]) -> dict[int | str, str]:
    """Records in flight of one producer share a lane: only together they are one client."""
    names: dict[int | str, str] = {}
    for process, blocks in spans.items():
        kinds = sorted({block.f for block in blocks})
        what = "sends" if kinds == ["send"] else "reads"
        client = clients.get(process, "client")
        names[process] = f"{client} {what}" if what == "sends" else f"{client} {what} {process}"
    return names


def _merge(blocks: list[Block], duration_s: float) -> list[Block]:
    """Neighbours of the same outcome become one block where a screen could not tell them apart."""
    slice_s = max(duration_s / SLICES, 1e-6)
    merged: list[Block] = []
    for block in sorted(blocks, key=lambda each: each.start_s):
        last = merged[-1] if merged else None
        if last is not None and last.outcome == block.outcome and block.start_s - last.end_s < slice_s:
            merged[-1] = Block(
                last.start_s, max(last.end_s, block.end_s), last.outcome, last.f, last.count + block.count
            )
        else:
            merged.append(block)
    return merged


def _windows(faults: list[Event], duration_s: float) -> list[Window]:
    """From each fault to what ends it on that node: `restart`, `resume`, `FAULT over`, a kill, or the end of all."""
    overs = {*ENDS.values(), *(f.f for f in faults if f.f.endswith(" over"))}
    windows = []
    for number, fault in enumerate(faults):
        if fault.node is None or fault.f in overs:
            continue
        enders = {ENDS.get(fault.f, f"{fault.f} over"), "kill"}
        later = (f.time_ns / NS for f in faults[number + 1 :] if f.f in enders and f.node == fault.node)
        momentary = fault.f not in ENDS and f"{fault.f} over" not in overs
        end = fault.time_ns / NS if momentary else next(later, duration_s)
        windows.append(Window(fault.f, fault.node or "?", fault.time_ns / NS, end))
    return windows

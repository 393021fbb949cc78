"""Each fault of the simulator by itself: on the disk, on the network and on the wall clock."""

from typing import Any

import pytest

from highwater.reference.drivers.simulation.chance import Chance
from highwater.reference.drivers.simulation.disk import PAGE, SimulatedDisk
from highwater.reference.drivers.simulation.world import WALL_CLOCK_START_MS, World
from highwater.reference.effects import Effect, Flush, Instant, Request, Send, SetTimer


class Probe:
    """A host that records messages, timers, completed flushes and closed connections."""

    def __init__(self) -> None:
        self.received: list[tuple[int, int, Any]] = []
        self.closed_by: list[tuple[int, str]] = []
        self.fired_ms: list[int] = []
        self.completed: list[str] = []

    def start(self, now: Instant) -> list[Effect]:
        return []

    def receive(self, now: Instant, source: str, message: Any) -> list[Effect]:
        self.received.append((now.monotonic_ms, now.wall_ms - WALL_CLOCK_START_MS, getattr(message, "body", message)))
        return []

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        self.fired_ms.append(now.monotonic_ms)
        return []

    def complete(self, now: Instant, token: str) -> list[Effect]:
        self.completed.append(token)
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        self.closed_by.append((now.monotonic_ms, peer))
        return []

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.received]


class Pair:
    """Two hosts, `a` and `b`, in one simulated world."""

    def __init__(self, **settings: Any) -> None:
        self.world = World(1, **{"spread_ms": 0, **settings})
        self.a, self.b = Probe(), Probe()
        for name, probe in (("a", self.a), ("b", self.b)):
            self.world.add(name, lambda disk, probe=probe: probe)  # type: ignore[misc]
            self.world.start(name)

    def send(self, *bodies: Any, source: str = "a", target: str = "b") -> None:
        sends: list[Effect] = [Send(target, Request(n, 0, body)) for n, body in enumerate(bodies)]
        self.world.enter(source, lambda now: sends)

    def run(self, ms: int) -> None:
        self.world.run_until(self.world.now_ms + ms)


def test_a_cut_in_one_direction_closes_the_connection_and_leaves_the_other_direction_open() -> None:
    pair = Pair()
    pair.world.network.add_faults("a", "b", cut=1)
    pair.send("lost")
    pair.send("heard", source="b", target="a")
    pair.run(100)
    assert (pair.b.received, pair.a.bodies) == ([], ["heard"])
    pair.world.network.add_faults("a", "b", cut=-1)
    pair.send("after")
    pair.run(100)
    assert pair.b.bodies in ([], ["after"]), "the lost message of the closed connection never arrives"
    assert {peer for _, peer in pair.a.closed_by + pair.b.closed_by} == {"a", "b"}
    assert not pair.world.network._faults


def test_a_host_behind_a_cut_does_not_notice_that_its_peer_crashed() -> None:
    pair = Pair()
    for link in (("a", "b"), ("b", "a")):
        pair.world.network.add_faults(*link, cut=1)
    pair.world.crash("b")
    pair.run(50)
    assert pair.a.closed_by == []
    pair.world.network.add_faults("b", "a", cut=-1)
    pair.run(50)
    assert [peer for _, peer in pair.a.closed_by] == ["b"]


def test_clogged_messages_arrive_later_in_order_and_clogs_may_overlap() -> None:
    pair = Pair()
    pair.world.network.add_faults("a", "b", clog=1)
    pair.world.network.add_faults("a", "b", clog=1, delay_ms=30)
    pair.send(1, 2, 3)
    pair.run(40)
    pair.world.network.add_faults("a", "b", clog=-1)
    pair.run(40)
    assert pair.b.received == []
    pair.world.network.add_faults("a", "b", clog=-1, delay_ms=-30)
    pair.run(40)
    assert [(at, body) for at, _, body in pair.b.received] == [(81, 1), (81, 2), (81, 3)]


def test_a_duplicated_request_arrives_twice_but_not_after_a_restart_of_its_sender() -> None:
    pair = Pair()
    pair.world.network.add_faults("a", "b", duplicate_per_mille=1000)
    pair.send("once more")
    pair.run(2_000)
    assert pair.b.bodies == ["once more", "once more"]
    pair.send("never again")
    pair.world.crash("a")
    pair.world.start("a")
    pair.run(2_000)
    assert "never again" not in pair.b.bodies


def test_reordering_keeps_the_order_of_requests_of_one_kind() -> None:
    def bodies(**settings: Any) -> list[Any]:
        pair = Pair(spread_ms=40, **settings)
        pair.send(*[f"{n}" if n % 2 else n for n in range(20)])
        pair.run(100)
        return pair.b.bodies

    assert bodies() == [f"{n}" if n % 2 else n for n in range(20)]
    mixed = bodies(reorder=True)
    assert mixed != bodies()
    assert [body for body in mixed if isinstance(body, int)] == list(range(0, 20, 2))


def test_a_jump_of_the_wall_clock_moves_no_timer() -> None:
    pair = Pair()
    pair.world.enter("b", lambda now: [SetTimer("t", 100)])
    pair.world.hosts["b"].wall_offset_ms = 3_600_000
    pair.send("x")
    pair.run(200)
    assert pair.b.fired_ms == [100]
    assert [wall for _, wall, _ in pair.b.received] == [3_600_001]


@pytest.mark.parametrize(("flush_ms", "fails", "completed", "up"), [(5, False, ["f"], True), (5, True, [], False)])
def test_a_flush_that_fails_ends_the_process(flush_ms: int, *, fails: bool, completed: list[str], up: bool) -> None:
    pair = Pair()
    disk = pair.world.hosts["a"].disk
    disk.flush_fails = fails
    disk.append("log", b"x")
    pair.world.enter("a", lambda now: [Flush(("log",), "f")])
    pair.run(flush_ms)
    assert (pair.a.completed, pair.world.is_up("a")) == (completed, up)
    disk.heal()
    disk.lose_unflushed()
    assert disk.exists("log") is (not fails)


# Disks.


def test_a_crash_loses_unflushed_data() -> None:
    disk = SimulatedDisk()
    disk.append("log", b"kept")
    disk.flush("log")
    disk.append("log", b" lost")
    disk.append("never", b"flushed")
    disk.write("config", b"old")
    disk.flush("config")
    disk.write("config", b"new, not flushed")
    disk.lose_unflushed()
    assert disk.read("log", 0, 99) == b"kept"
    assert not disk.exists("never")
    assert disk.read("config", 0, 99) == b"old"


def test_a_flush_covers_the_data_written_before_it_began() -> None:
    disk = SimulatedDisk()
    disk.append("log", b"first")
    flushing = disk.begin_flush("log")
    disk.truncate("log", 2)
    disk.append("log", b"xx and later")
    disk.end_flush(flushing)
    disk.lose_unflushed()
    assert disk.read("log", 0, 99) == b"fi"


def test_a_torn_tail_has_kept_zeroed_and_missing_pages() -> None:
    outcomes = set()
    for seed in range(20):
        disk = SimulatedDisk()
        disk.append("log", b"f")
        disk.flush("log")
        disk.append("log", b"x" * (3 * PAGE))
        disk.lose("torn", Chance(seed).stream("torn"))
        content = disk.read("log", 0, 4 * PAGE)
        assert content[:1] == b"f"
        pages = [content[1 + n * PAGE : 1 + (n + 1) * PAGE] for n in range(3)]
        assert all(page in (b"", b"x" * PAGE, bytes(PAGE)) for page in pages)
        outcomes.add(tuple(page[:1] for page in pages))
    assert (b"x", b"\0", b"x") in outcomes
    assert (b"", b"", b"") in outcomes


def test_rot_changes_what_is_read_until_the_disk_is_healed() -> None:
    disk = SimulatedDisk()
    disk.append("log", b"abc")
    disk.rot("log", 1, 1)
    assert disk.read("log", 0, 3) == b"acc"
    assert disk.read("log", 2, 1) == b"c"
    disk.heal()
    assert disk.read("log", 0, 3) == b"abc"

"""Disks that lose what they acknowledged, or rot: acknowledged records survive, and no damaged one is returned.

`docs/simulation.md` states the promises. Each run has the fault at a leader, then at the coordinator of the group.
"""

from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from highwater.fuzz.schedule import ROTTING_FILES, Fault, Schedule
from highwater.fuzz.simulator import faults
from highwater.fuzz.simulator.cluster import Load, Settings
from highwater.fuzz.simulator.disk_faults import LOST, MISDIRECTED, REJECTED, rot_newest_segment
from highwater.fuzz.simulator.invariants.derived_files import _batch_of
from highwater.fuzz.simulator.search import SeedResult, run_seed
from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.storage import checkpoints, recovery, segment
from highwater.reference.storage.log import Log, LogConfig
from highwater.reference.storage.producer_state import ProducerStates
from highwater.reference.storage.segment import Segment
from highwater.reference.wire.log_entries import entry_crc_valid
from highwater.reference.wire.records import batch_headers, build_batch

LOAD = Load(idempotent=1, members=("range",) * 2, transactional=1, readers=1)
NODES = ("leader(t,0)", "coordinator(g)")


def damage(kind: str, **options: Any) -> tuple[Fault, ...]:
    return tuple(
        Fault(at_ms=3_000 + 1_200 * n, for_ms=400, kind=kind, nodes=(node,), options={"bit": 40_123, **options})
        for n, node in enumerate(NODES)
    )


def losses(about: str) -> tuple[Fault, ...]:
    """Return faults in which brokers lose what their disks have acknowledged for 700 ms."""
    return tuple(
        fault
        for at_ms, node in ((1_200, NODES[0]), (2_700, NODES[1]), (4_200, "2"))
        for fault in (
            Fault(at_ms=at_ms - 700, for_ms=1_300, kind="volatile_disk", nodes=(node,), options={"about": about}),
            Fault(at_ms=at_ms, for_ms=300, kind="kill", nodes=(node,), options={"lose": "unflushed"}),
        )
    )


def run(drawn: tuple[Fault, ...], seed: int = 0, **settings: Any) -> SeedResult:
    schedule = Schedule(seed=seed, duration_ms=6_000, faults=drawn)
    changes = {"isr_update": "zookeeper"}
    return run_seed(seed, Settings(swarm=True, load=LOAD, broker_settings=changes, **settings), schedule=schedule)


@pytest.mark.parametrize("file", ROTTING_FILES)
def test_no_file_beside_the_segments_is_trusted_when_it_rots(file: str) -> None:
    result = run(damage("rot_file", file=file))
    assert str(result.violation) == "None"
    assert result.situations[f"rotten {file}"] > 0


@pytest.mark.parametrize("log", ["offsets", "transactions"])
def test_the_leader_epochs_of_internal_topics_may_rot(log: str) -> None:
    result = run(damage("rot_file", file="leader epochs", of=log))
    assert str(result.violation) == "None"
    assert result.situations["rotten leader epochs"] > 0


def test_a_write_that_hits_another_log_damages_no_answer() -> None:
    result = run(damage("misdirect", instead="offsets"))
    assert str(result.violation) == "None"
    assert result.situations[MISDIRECTED] > 0


@pytest.mark.parametrize("about", ["flushes", "names"])
def test_a_broker_that_lost_what_was_flushed_has_all_acknowledged_records_again(about: str) -> None:
    result = run(losses(about))
    assert str(result.violation) == "None"
    assert result.situations[LOST[about]] > 1


def strictly(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return the parser of a broker that does not expect damage."""

    def parse_or_raise(data: bytes) -> Any:
        found = parse(data)
        if found is None:
            raise ValueError("damaged")
        return found

    return parse_or_raise


@pytest.mark.parametrize(
    ("module", "name", "file"),
    [(checkpoints, "parse_offsets", "checkpoints"), (recovery, "parse_epochs", "leader epochs")],
)
def test_a_broker_that_expects_no_damage_is_found(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, file: str
) -> None:
    monkeypatch.setattr(module, name, strictly(getattr(module, name)))
    violation = run(damage("rot_file", file=file)).violation
    assert violation is not None
    assert violation.invariant == "NodeGoesOn"


@pytest.mark.parametrize(
    ("file", "owner", "check", "bit"),
    [
        ("offset index", Segment, "_has_batch_at", 40_123),
        ("time index", Segment, "_has_timestamp", 16),
        ("transaction index", Log, "_has_abort", 40_123),
    ],
)
def test_a_broker_that_does_not_compare_an_index_with_its_log_is_found(
    monkeypatch: pytest.MonkeyPatch, file: str, owner: type, check: str, bit: int
) -> None:
    monkeypatch.setattr(owner, check, lambda *_: True)
    violation = run(damage("rot_file", file=file, bit=bit)).violation
    assert violation is not None
    assert violation.invariant in {"FilesMatchLog", "NodeGoesOn"}, str(violation)


def test_a_broker_that_trusts_a_snapshot_without_its_checksum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    restore = ProducerStates.restore

    def restore_any(states: ProducerStates, data: bytes) -> bool:
        checksum: int = crc32c(data[6:])
        return restore(states, data[:2] + checksum.to_bytes(4, "big") + data[6:])

    monkeypatch.setattr(ProducerStates, "restore", restore_any)
    violation = run(damage("rot_file", file="producer snapshot")).violation
    assert violation is not None
    assert violation.invariant == "FilesMatchLog", str(violation)


@pytest.mark.parametrize("kind", ["misdirect", "rot"])
def test_a_broker_that_checks_no_crc_after_a_crash_is_found(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(segment, "entry_crc_valid", lambda *_: True)
    violation = run(damage(kind)).violation
    assert violation is not None
    assert violation.invariant in {"DamageIsRemoved", "ReadIsWhatWasSent"}, str(violation)


@pytest.mark.parametrize("about", ["flushes", "names"])
def test_a_broker_that_stays_in_the_isr_after_a_loss_is_found(about: str) -> None:
    violation = run(losses(about), seed=1, guards_off=("UncleanRestartLeavesIsr",)).violation
    assert violation is not None
    assert violation.invariant in {"AckedSurvives", "CommittedOnEligible", "LogMatching"}


# -- the disk itself -------------------------------------------------------------------------------------------------


def disk_with(content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.write("a", content)
    disk.flush("a")
    return disk


def crash(disk: SimulatedDisk) -> dict[str, bytes]:
    """Return the files after a power failure."""
    disk.lose("unflushed", None)  # type: ignore[arg-type]  # only torn writes draw
    return {name: disk.read(name, 0, 100) for name in disk.names("")}


def test_a_volatile_flush_stores_nothing() -> None:
    disk = disk_with(b"old")
    disk.volatile.add("flushes")
    disk.append("a", b" new")
    disk.flush("a")
    assert crash(disk) == {"a": b"old"}


@pytest.mark.parametrize(
    ("change", "honest"),
    [
        (lambda disk: disk.rename("a", "b"), {"b": b"old"}),
        (lambda disk: disk.delete("a"), {}),
        (lambda disk: disk.truncate("a", 1), {"a": b"o"}),
    ],
)
def test_changes_of_names_and_sizes_are_undone(
    change: Callable[[SimulatedDisk], None], honest: dict[str, bytes]
) -> None:
    disk = disk_with(b"old")
    disk.volatile.add("names")
    change(disk)
    assert crash(disk) == {"a": b"old"}
    disk = disk_with(b"old")
    disk.volatile.add("names")
    change(disk)
    disk.store_again("names")
    assert crash(disk) == honest


def test_files_that_return_are_named() -> None:
    disk = disk_with(b"old")
    disk.volatile.add("names")
    disk.delete("a")
    assert not disk.returned
    crash(disk)
    assert disk.returned == {"a"}


def test_a_deletion_that_a_disk_undoes_is_not_the_fault_of_the_broker() -> None:
    result = run_seed(482, Settings(swarm=True, pace=30))  # broker 3 forgets that it deleted its replica of `side`
    assert LOST["names"] in result.situations
    assert result.violation is None


def test_a_disk_names_what_it_acknowledged_and_did_not_store() -> None:
    disk = disk_with(b"old")
    disk.volatile.add("flushes")
    disk.flush("a")
    assert disk.unstored == set(), "nothing was written since the last flush"
    disk.append("a", b" new")
    assert disk.unstored == set(), "no flush was acknowledged"
    disk.flush("a")
    assert disk.unstored == {"flushes"}
    disk.store_again("flushes")
    assert disk.unstored == {"flushes"}, "the lost bytes are stored by the next flush only"
    disk.flush("a")
    assert disk.unstored == set()
    disk.volatile.add("names")
    disk.rename("a", "b")
    assert disk.unstored == {"names"}


def test_a_flipped_bit_is_gone_once_its_byte_is_lost() -> None:
    disk = disk_with(b"old")
    for path, position in (("a", 1), ("a", 5), ("b", 0)):
        disk.append(path, b"lost")
        disk.rot(path, position, 1)
    assert crash(disk) == {"a": b"omd"}
    disk.append("a", b" new")
    disk.append("b", b"new")
    assert (disk.read("a", 0, 100), disk.read("b", 0, 100)) == (b"omd new", b"new")


def test_a_misdirected_write_damages_both_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first log alone was damaged once, because the loop over both stopped there."""
    damaged: set[str] = set()

    def flip(disk: SimulatedDisk, folder: str, bit: int) -> bool:
        found = rot_newest_segment(disk, folder, bit)
        damaged.update({folder} if found else ())
        return found

    monkeypatch.setattr(faults, "rot_newest_segment", flip)
    run(damage("misdirect", instead="offsets"))
    assert damaged == {"t-0", "__consumer_offsets-0"}


def test_a_truncation_whose_place_was_flushed_again_is_not_undone() -> None:
    disk = disk_with(b"old")
    disk.volatile.add("names")
    disk.truncate("a", 1)
    disk.append("a", b"ther")
    disk.flush("a")
    assert crash(disk) == {"a": b"other"}


def test_a_clean_stop_does_not_forget_an_unclean_start() -> None:
    """Broker 3 lost acknowledged records, started and stopped again while no controller was there to see it.

    Its second stop was clean. It was then taken for a broker that has all records, and stayed the leader in its epoch.
    """
    result = run_seed(2063, Settings(swarm=True, pace=30))
    assert result.violation is None
    assert {"misdirected write", "bounce", "controller change"} <= set(result.situations)


def test_a_replica_that_was_never_readable_counts_as_one_that_may_hold_the_record() -> None:
    """Broker 3 joined the ISR while its log could not be read, and was not among the replicas that were counted."""
    result = run_seed(3425, Settings(swarm=True, pace=30))
    assert result.violation is None
    assert {"rotten offsets log", "isr expansion"} <= set(result.situations)


@pytest.mark.parametrize(
    ("seed", "situation"),
    [
        # A deletion was undone, and the old segment began inside a new one.
        pytest.param(3716, LOST["names"], id="returned-segment"),
        # The broker refuses flushed data that is damaged; the folder is deleted, as its error says.
        pytest.param(3919, REJECTED, id="rejected-log"),
        # A broker left in a controlled shutdown; the member that stayed had restarted without its newest records.
        pytest.param(3487, "lost tail", id="shutdown-beside-a-restart", marks=pytest.mark.long),
        # The flipped bit in the index made an aborted transaction begin where a committed one of its producer begins.
        pytest.param(5474, "rotten transaction index", id="index-over-two-transactions", marks=pytest.mark.long),
        # A leader was elected a millisecond before the end; the check of the last stable offsets asked for broker -1.
        pytest.param(4998, "leader change", id="election-at-the-end", marks=pytest.mark.long),
    ],
)
def test_runs_of_the_ledger_that_were_wrong_once(seed: int, situation: str) -> None:
    result = run_seed(seed, Settings(swarm=True, pace=30))
    assert result.violation is None
    assert situation in result.situations


def test_a_batch_in_which_the_log_begins_is_read_whole() -> None:
    log = Log(SimulatedDisk(), "t-0", LogConfig())
    data = build_batch([(1_000 + number, None, b"v", ()) for number in range(3)])
    log.append_as_leader(data, next(batch_headers(data))[1], 0)
    log.advance_log_start(1)
    (header,) = log.headers(log.log_start_offset)
    assert entry_crc_valid(_batch_of(log, header), 0, header)

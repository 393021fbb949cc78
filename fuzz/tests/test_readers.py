"""Readers of the simulator: each invariant of what they see fails for a broker with the bug that it is for."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

import pytest

from highwater.fuzz.schedule import Fault, Schedule
from highwater.fuzz.simulator.clients.readers import ConsumedBatch
from highwater.fuzz.simulator.cluster import Load, Settings
from highwater.fuzz.simulator.invariants.committed_offsets import CommittedOffsets
from highwater.fuzz.simulator.invariants.contents import CommittedContents
from highwater.fuzz.simulator.invariants.readers import ObservedReaders
from highwater.fuzz.simulator.invariants.violations import SituationCounts, Violation, ViolationError
from highwater.fuzz.simulator.search import run_seed
from highwater.reference.clients.fetched_records import FetchedRecords
from highwater.reference.groups import store
from highwater.reference.groups.group import Group
from highwater.reference.groups.records import OffsetCommitKey, unpack_key
from highwater.reference.guards import Guards
from highwater.reference.replication import fetch, offsets
from highwater.reference.replication.partition import Partition
from highwater.reference.storage.log import Log, OffsetOutOfRangeError
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.log_entries import entries
from highwater.reference.wire.messages.fetch import PartitionData


def dirty_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetch, "_readable_until", lambda partition, body, guards: partition.log.log_end_offset)


def no_aborted_list(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetch, "_aborted", lambda partition, offset, records: ())


def no_stable_end(patch: pytest.MonkeyPatch) -> None:
    def readable_until(partition: Partition, body: Any, guards: Guards) -> int:
        return partition.log.log_end_offset if body.replica_id >= 0 else partition.high_watermark

    patch.setattr(fetch, "_readable_until", readable_until)


def lost_record(patch: pytest.MonkeyPatch) -> None:
    """Consumers of every seventh read begin one record late."""
    read_one, reads = fetch.FetchHandler._read_one, 0

    def read(handler: Any, read_pass: Any, partition: Partition, requested: Any) -> Any:
        nonlocal reads
        reads += read_pass.body.replica_id < 0
        data, urgent = read_one(handler, read_pass, partition, requested)
        if read_pass.body.replica_id < 0 and reads % 7 == 0:
            size = next((header.size for _, header in entries(data.records or b"")), 0)
            data = replace(data, records=bytes(data.records or b"")[size:])
        return data, urgent

    patch.setattr(fetch.FetchHandler, "_read_one", read)


def end_below_epoch_start(patch: pytest.MonkeyPatch) -> None:
    """ListOffsets does not wait for the high watermark of a new leader (before KIP-207)."""
    list_one = offsets.OffsetsHandler._list_one

    def list_at_once(handler: Any, topic: str, requested: Any, body: Any, version: int) -> Any:
        partition = handler._replicas.partitions.get((topic, requested.partition_index))
        if partition is None or requested.timestamp != offsets.LATEST:
            return list_one(handler, topic, requested, body, version)
        before, partition.epoch_start_offset = partition.epoch_start_offset, 0
        try:
            return list_one(handler, topic, requested, body, version)
        finally:
            partition.epoch_start_offset = before

    patch.setattr(offsets.OffsetsHandler, "_list_one", list_at_once)


def out_of_range(patch: pytest.MonkeyPatch) -> None:
    """A leader returns OFFSET_OUT_OF_RANGE above its high watermark, which lags after its election (KAFKA-2334)."""
    read = Log.read

    def read_below(log: Log, offset: int, max_bytes: int, until: int, *, at_least_one: bool) -> bytes:
        if offset > until:
            raise OffsetOutOfRangeError(offset)
        return read(log, offset, max_bytes, until, at_least_one=at_least_one)

    patch.setattr(Log, "read", read_below)


def forgotten_offsets(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator does not load the offsets of its partition."""
    replay = store._replay

    def replay_groups(groups: Any, record: Any, producer_id: int) -> None:
        if not isinstance(unpack_key(record.key or b""), OffsetCommitKey):
            replay(groups, record, producer_id)

    patch.setattr(store, "_replay", replay_groups)


async def _accept(*arguments: Any) -> ErrorCode:
    return ErrorCode.NONE


def unwritten_offsets(patch: pytest.MonkeyPatch) -> None:
    """OffsetCommit is acknowledged and stored nowhere."""
    patch.setattr(store.GroupStore, "save_offsets", _accept)


def unwritten_transactional_offsets(patch: pytest.MonkeyPatch) -> None:
    """TxnOffsetCommit is acknowledged and stored nowhere, so the next process reads the same records again."""
    patch.setattr(store.GroupStore, "save_transactional_offsets", _accept)


def reads_end(patch: pytest.MonkeyPatch) -> None:
    """Consumers receive no record beyond the fortieth, however long they ask."""
    readable_until = fetch._readable_until

    def at_most(partition: Partition, body: Any, guards: Guards) -> int:
        end = readable_until(partition, body, guards)
        return end if body.replica_id >= 0 else min(end, 40)

    patch.setattr(fetch, "_readable_until", at_most)


def always_unstable(patch: pytest.MonkeyPatch) -> None:
    """OffsetFetch takes every offset for that of an open transaction, so no member of a group begins to read."""
    patch.setattr(Group, "is_unstable", lambda group, key: True)


KILL = Fault(at_ms=700, for_ms=400, kind="kill", nodes=("leader(t,0)",))
PAUSE_FOLLOWER = Fault(at_ms=720, for_ms=1_500, kind="pause", nodes=("2",))
KILL_COORDINATOR = Fault(at_ms=2_500, for_ms=400, kind="kill", nodes=("coordinator(readers)",))
KILL_MEMBERS = Fault(at_ms=2_500, for_ms=300, kind="kill", nodes=("group-reader:0", "group-reader:1"))
KILL_TRANSFORMER = Fault(at_ms=1_000, for_ms=100, kind="kill", nodes=("transformer:0",))
TRANSACTIONAL = Load(producers=1, transactional=1, readers=2)
SLOW = Load(producers=0, idempotent=1, readers=4)  # a follower learns of a commit with the next record, 20 ms later
GROUP = Load(producers=1, group_readers=2)


@pytest.mark.sample(2)
@dataclass(frozen=True)
class Bug:
    """A bug of the broker, the invariant that it breaks, and a run that shows it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    invariant: str
    load: Load
    faults: tuple[Fault, ...] = ()
    seed: int = 1


BUGS = [
    Bug(dirty_read, "ReadIsCommitted", TRANSACTIONAL),
    Bug(no_aborted_list, "AbortedStaysHidden", TRANSACTIONAL),
    Bug(no_stable_end, "LastStableOffset", TRANSACTIONAL),
    Bug(lost_record, "ReadIsWhatWasSent", TRANSACTIONAL),
    Bug(end_below_epoch_start, "EndNeverFalls", SLOW, (KILL, PAUSE_FOLLOWER)),
    Bug(out_of_range, "ReadableStays", SLOW, (KILL, PAUSE_FOLLOWER), seed=9),
    Bug(forgotten_offsets, "CommittedOffsetStays", GROUP, (KILL_COORDINATOR, KILL_MEMBERS)),
    Bug(reads_end, "ReadersGoOn", Load(producers=1, readers=2)),
    Bug(always_unstable, "ReadersGoOn", GROUP),
    Bug(unwritten_offsets, "CommittedOffsetStays", GROUP),
    Bug(
        unwritten_transactional_offsets, "TransformedOnce", Load(producers=1, transforms="classic"), (KILL_TRANSFORMER,)
    ),
    Bug(unwritten_transactional_offsets, "TransformedOnce", Load(producers=1, transforms="v2"), (KILL_TRANSFORMER,)),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.plant.__name__}-{bug.load.transforms}".rstrip("-"))
def test_a_bug_that_only_a_reader_sees_is_found(monkeypatch: pytest.MonkeyPatch, bug: Bug) -> None:
    schedule = Schedule(seed=bug.seed, duration_ms=6_000, faults=bug.faults)
    settings = Settings(load=bug.load)
    assert str(run_seed(bug.seed, settings, schedule=schedule).violation) == "None"
    bug.plant(monkeypatch)
    violation = run_seed(bug.seed, settings, schedule=schedule).violation
    assert violation is not None
    assert violation.invariant == bug.invariant, str(violation)


@pytest.mark.parametrize(("position", "end", "found"), [(3, 3, ""), (2, 3, "ReadIsCommitted"), (1, 2, "")])
def test_a_response_without_records_shows_nothing_about_its_position(position: int, end: int, found: str) -> None:
    """The position may be from a leader whose disk flipped bits, and of which it is unknown what it committed."""

    def violated(invariant: str, message: str, about: object = None) -> NoReturn:
        raise ViolationError(Violation(invariant, 0, 0, "", message))

    contents = CommittedContents("t-0", violated, values=[b"a", b"b"], visible=[True, True])
    readers = ObservedReaders({0: contents}, cast("CommittedOffsets", None), set(), SituationCounts(), violated)
    records = tuple((offset, (b"a", b"b", b"c")[offset]) for offset in range(position, end))
    read = ConsumedBatch(
        "reader", 1, 0, 0, position, True, PartitionData(last_stable_offset=2), FetchedRecords(records, end)
    )
    with pytest.raises(ViolationError, match=found) if found else nullcontext():
        readers.read(read)

"""Content of acknowledged records: a broker that acknowledges what it does not store is a violation."""

from typing import Any

import pytest

from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.invariants.contents import CommittedContents
from highwater.fuzz.simulator.search import run_seed
from highwater.reference.replication.partition import Partition
from highwater.reference.replication.produce import ProduceHandler
from highwater.reference.wire.records import BatchHeader


@pytest.mark.parametrize("beyond", [0, 1], ids=["last-record", "next-record"])
def test_a_broker_that_drops_every_third_write_is_found(monkeypatch: pytest.MonkeyPatch, beyond: int) -> None:
    """The broker acknowledges the dropped write at the offset of its last record, or of the next one."""
    append, writes = ProduceHandler._append, 0

    def append_most(
        handler: ProduceHandler, partition: Partition, batch: bytes, header: BatchHeader, *others: Any
    ) -> tuple[int, int]:
        nonlocal writes
        writes += header.producer_id < 0
        if header.producer_id < 0 and writes % 3 == 0:
            return partition.log.log_end_offset - 1 + beyond, -1
        return append(handler, partition, batch, header, *others)

    monkeypatch.setattr(ProduceHandler, "_append", append_most)
    violation = run_seed(1, Settings()).violation
    assert violation is not None
    assert violation.invariant == ("CommittedOnEligible" if beyond else "AckedAreWhatWasSent")


def test_an_offset_is_not_acknowledged_for_two_values() -> None:
    found: list[str] = []
    contents = CommittedContents("t-0", lambda invariant, message, about=None: found.append(f"{invariant}: {message}"))
    contents.acknowledged(3, b"7")
    contents.acknowledged(3, b"7")
    assert found == []
    contents.acknowledged(3, b"8")
    assert found == ["AckedAreWhatWasSent: offset 3 of t-0 was acknowledged for b'7' and for b'8'"]


def test_an_acknowledged_record_has_an_offset() -> None:
    """A broker that drops the first record of a partition may return -1."""
    found: list[str] = []
    contents = CommittedContents("t-0", lambda invariant, message, about=None: found.append(f"{invariant}: {message}"))
    contents.acknowledged(-1, b"7")
    assert found == ["AckedAreWhatWasSent: b'7' was acknowledged in t-0 at the offset -1"]

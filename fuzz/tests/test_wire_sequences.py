"""Sequences: the reference without defects violates none of them, and each detects its planted defects."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from highwater.conformance.targets.reference import ReferenceTarget
from highwater.errors import UsageError
from highwater.fuzz.wire.connection import advertised
from highwater.fuzz.wire.examination.sequence_triage import SequenceTriage
from highwater.fuzz.wire.examination.triage import Triage
from highwater.fuzz.wire.findings import read_finding
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.generate.requests import CLIENT_ID
from highwater.fuzz.wire.oracles.responses import Oracle
from highwater.fuzz.wire.replay import Replay, replay_finding
from highwater.fuzz.wire.self_test import run_defect, summary_of
from highwater.fuzz.wire.sequences.run import (
    SEQUENCES,
    replay_sequence,
    run_sequence,
    version_ranges,
)
from highwater.fuzz.wire.target import FuzzTarget
from highwater.mutants.node import node_with
from highwater.mutants.table import wire_rows
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

RUNS = 5


DEFECTS_OF_A_SEQUENCE = {
    "writes": ("ChecksumIgnored", "OffsetDeltaTrusted"),
    "deletions": ("WrongBaseOffset", "DeletesTooLittle", "LostRecord", "PastHighWatermark", "BeyondTheEnd"),
    "lookups": ("EndForNever",),
    "limits": ("EpochIgnored",),
    "producers": ("DuplicateAppended", "ProducerIdRepeats"),
    "rising-epochs": ("AbortedVisible", "StableOffsetBeyond", "AbortCommits"),
    "transactions": ("CraftedTransaction",),
    "rebalances": ("GenerationRepeats", "CommitForgotten", "SubscriptionLost", "AssignmentCut"),
    "offsets": ("CommitMetadataLost",),
    "topics": ("StaleLeader",),
    "relation": ("UnknownTagRefused", "SplitFrameHang"),
}


@pytest.fixture(scope="module")
def honest() -> Iterator[str]:
    target = ReferenceTarget(1)
    try:
        yield target.bootstrap
    finally:
        target.close()


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_reference_violates_no_model(honest: str, name: str) -> None:
    served = version_ranges(advertised(honest))
    results = [run_sequence(f"{name}:{number}", honest, served) for number in range(RUNS)]
    for number, (violation, finished, _, unfit) in enumerate(results):
        assert violation is None, f"{name}:{number}: {violation}: {violation and violation.transcript}"
        assert finished or unfit, f"{name}:{number} was abandoned, although nothing disturbs the broker"
    assert any(result.finished for result in results) is (name not in {"consumer-group", "quotas"})


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", DEFECTS_OF_A_SEQUENCE)
def test_the_model_detects_its_planted_defects(name: str) -> None:
    """All defects of a sequence are planted in one cluster, to save starts; any of them may show first."""
    names = DEFECTS_OF_A_SEQUENCE[name]
    target = ReferenceTarget(1, node_program=node_with(names))
    try:
        served = version_ranges(advertised(target.bootstrap))
        failure = None
        for number in range(10 * RUNS):
            violation = run_sequence(f"{name}:{number}", target.bootstrap, served).violation
            if violation is not None:
                failure = replay_sequence(f"{name}:{number}", target.bootstrap)
                break
    finally:
        target.close()
    assert failure is not None, names
    assert failure.api.name != "DeleteTopics", "the clean-up is no part of the sequence"
    assert failure.failure.oracle.value in {row.kind for row in wire_rows(names)}


def test_the_specification_detects_a_guard_that_is_off() -> None:
    """The model rejects late requests of an ended generation; the broker no longer does."""
    target = ReferenceTarget(1, guards_off=["FenceStaleGeneration"])
    try:
        served = version_ranges(advertised(target.bootstrap))
        result = (run_sequence(f"rebalances:{number}", target.bootstrap, served).violation for number in range(300))
        violation = next(filter(None, result), None)
    finally:
        target.close()
    assert violation is not None
    assert str(violation).startswith("error code of the commit: expected 22 (ILLEGAL_GENERATION)")


@pytest.mark.long
def test_a_sequence_is_minimised_to_the_steps_it_needs(tmp_path: Path) -> None:
    target = ReferenceTarget(1, node_program=node_with(["CommitForgotten"]))
    try:
        fuzz_target = FuzzTarget(target.bootstrap, target, "reference")
        served = version_ranges(advertised(target.bootstrap))
        triage = Triage(
            fuzz_target, tmp_path, 1, "reference", shrink_s=600
        )  # it ends earlier, when no step can be removed
        for number in range(50 * RUNS):
            result = run_sequence(f"offsets:{number}", target.bootstrap, served)
            if result.violation is not None and result.steps > 3:
                break
        finding = SequenceTriage(triage).confirm_sequence(f"offsets:{number}", result, 1)
        assert finding is not None
        remaining = result.steps - len(finding.without)
        assert 1 <= remaining <= 2, "a commit is enough, or two, so that the same field of the same version differs"
        again = replay_finding(fuzz_target, read_finding(tmp_path / finding.id))
        assert again is not None
        assert "committed_offset: expected" in again.message
    finally:
        target.close()


@pytest.mark.long
def test_a_crash_of_the_reference_is_found_with_its_source_line(tmp_path: Path) -> None:
    found = run_defect("FlexibleDecoderPanic", 1, tmp_path, seconds=600)  # it ends at the first finding
    assert found.found
    assert found.oracle == Oracle.ALIVE
    (folder,) = (tmp_path / "FlexibleDecoderPanic-1").glob("alive-*")
    assert "real_flexible_decoder.go" in (folder / "README.md").read_text()
    summary = summary_of([found])
    assert (summary["planted"], summary["found"]) == (1, 1)


@pytest.mark.long
def test_an_exception_in_a_handler_is_found_although_the_broker_continues() -> None:
    target = ReferenceTarget(1, node_program=node_with(["HandlerRaises"]))
    try:
        fuzz_target = FuzzTarget(target.bootstrap, target, "reference")
        failure = Replay(fuzz_target).run([listed(-100)])
        assert failure is not None
        assert (failure.oracle, failure.message.partition(",")[0]) == (
            Oracle.STACK, 'a handler raised an exception at offsets.py"',
        )  # fmt: skip
        assert fuzz_target.why_dead() is None
        assert Replay(fuzz_target).run([listed(-1)]) is None, "log lines of earlier runs are ignored"
    finally:
        target.close()


def listed(timestamp: int) -> Case:
    topics = (ListOffsetsTopic(name="t", partitions=(ListOffsetsPartition(timestamp=timestamp),)),)
    frame = encode_request(ListOffsetsRequest(replica_id=-1, topics=topics), 1, 1, CLIENT_ID)
    return Case(2, 1, (frame,))


def test_unknown_sequences_are_rejected(honest: str) -> None:
    with pytest.raises(UsageError, match="dance"):
        replay_sequence("dance:1", honest)
    with pytest.raises(UsageError, match="dance"):
        run_sequence("dance:1", honest, version_ranges(advertised(honest)))

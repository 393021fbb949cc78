"""Equivalent requests: the reference answers them alike, and a broker that does not is found and replayed."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from highwater.conformance.targets.reference import ReferenceTarget
from highwater.fuzz.wire.connection import advertised, version_ranges
from highwater.fuzz.wire.examination.relations import READS, Relations, draw_read, equivalents, is_equivalent
from highwater.fuzz.wire.examination.triage import Triage
from highwater.fuzz.wire.findings import read_finding
from highwater.fuzz.wire.generate.cases import Case, with_size
from highwater.fuzz.wire.generate.requests import CLIENT_ID
from highwater.fuzz.wire.oracles.responses import Oracle
from highwater.fuzz.wire.replay import Replay, replay_finding
from highwater.fuzz.wire.self_test import run_defect, summary_of
from highwater.fuzz.wire.target import FuzzTarget
from highwater.mutants.node import node_with
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

TRIES = 400


@pytest.fixture(scope="module")
def honest() -> Iterator[str]:
    target = ReferenceTarget(1)
    try:
        yield target.bootstrap
    finally:
        target.close()


def test_the_reference_answers_equivalent_requests_alike(honest: str) -> None:
    served, chance, seen = version_ranges(advertised(honest)), random.Random(1), set[int]()
    with Relations(honest) as relations:
        for _ in range(TRIES // 2):
            case = draw_read(chance, served)
            assert case is not None
            seen.add(case.key)
            assert relations.broken(case, served[case.key][1]) is None, case
    assert seen == READS & served.keys()


@pytest.mark.parametrize("defect", ["UnknownTagRefused", "SplitFrameHang"])
def test_a_broker_that_does_not_is_found_and_its_finding_repeats(defect: str, tmp_path: Path) -> None:
    target = ReferenceTarget(1, node_program=node_with([defect]))
    try:
        fuzz_target = FuzzTarget(target.bootstrap, target, "reference")
        served, chance = version_ranges(advertised(target.bootstrap)), random.Random(1)
        with Relations(target.bootstrap) as relations:
            drawn = (draw_read(chance, served) for _ in range(TRIES))
            broken = (relations.broken(case, served[case.key][1], pause_s=0.01) for case in drawn if case is not None)
            failure, cases = next(filter(None, broken))
        finding = Triage(fuzz_target, tmp_path, 1, "reference", shrink_s=3).confirm(failure, cases, 1)
        assert finding is not None
        assert (finding.oracle, finding.reproduced) == (Oracle.RELATION, True)
        assert 1 <= len(finding.steps) <= 2
        again = replay_finding(fuzz_target, read_finding(tmp_path / finding.id))
        assert again is not None
        assert again.oracle is Oracle.RELATION
    finally:
        target.close()


def test_requests_that_differ_in_more_are_not_equivalent() -> None:
    """A shrunk pair must stay equivalent: two requests for different things are answered differently."""
    case = draw_read(random.Random(3), {3: (9, 9)})
    assert case is not None
    others = [other for _, other in equivalents(case, 10)]
    assert all(is_equivalent(case, other) for other in others)
    assert not is_equivalent(case, case)
    for other in others:
        assert not is_equivalent(case, Case(3, 9, (with_size(other.frames[0][4:-1]),)))
    broken_off = Case(3, 9, (with_size(case.frames[0][4:-3]),))
    assert not is_equivalent(broken_off, others[2])


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

"""The models: an honest reference contradicts none of them, and planted defects are found by what shows them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.targets.reference import ReferenceTarget
from fuzz.wire.line import advertised
from fuzz.wire.oracles import Oracle
from fuzz.wire.self_test import hunt, summary_of
from fuzz.wire.sequences.playing import PLAYS, perform, possible, replay_sequence, spoken
from reference.drivers.defects.table import WIRE_DEFECTS, check_defects
from spec.formats.verdict import UsageError

PLAYED = 12


@pytest.fixture(scope="module")
def honest() -> Iterator[str]:
    target = ReferenceTarget(1)
    try:
        yield target.bootstrap
    finally:
        target.close()


@pytest.mark.parametrize("play", PLAYS)
def test_an_honest_broker_contradicts_no_model(honest: str, play: str) -> None:
    served = spoken(advertised(honest))
    assert play in possible(served)
    finished = number = 0
    while finished < PLAYED and number < 100 * PLAYED:  # the first find no coordinator yet
        violation, done = perform(f"{play}:{number}", honest, served)
        assert violation is None, f"{play}:{number}: {violation}: {violation and violation.said}"
        finished, number = finished + done, number + 1
    assert finished == PLAYED


DEFECTS_OF_A_PLAY = {
    "log": ("WrongBaseOffset", "ChecksumIgnored", "OffsetDeltaTrusted", "DuplicateAppended"),
    "group": ("GenerationRepeats", "CommitForgotten"),
    "transaction": ("AbortedVisible",),
    "relation": ("UnknownTagRefused", "SplitFrameHang"),
}


@pytest.mark.parametrize("play", DEFECTS_OF_A_PLAY)
def test_the_model_sees_the_defects_that_are_planted_for_it(play: str) -> None:
    """Each alone would start a cluster of its own: all of a play are planted at once, and any may show first."""
    names = DEFECTS_OF_A_PLAY[play]
    target = ReferenceTarget(1, hidden={"wire_defects": list(names)})
    try:
        served = spoken(advertised(target.bootstrap))
        broken = None
        for number in range(10 * PLAYED):
            violation, _ = perform(f"{play}:{number}", target.bootstrap, served)
            if violation is not None:
                broken = replay_sequence(f"{play}:{number}", target.bootstrap)
                break
    finally:
        target.close()
    assert broken is not None, names
    assert broken.oracle.value in {WIRE_DEFECTS[name].shows for name in names}


def test_a_crash_of_the_reference_is_found_and_named_by_its_place(tmp_path: Path) -> None:
    found = hunt("FlexibleDecoderPanic", 1, tmp_path, seconds=60)
    assert found.found
    assert found.oracle == Oracle.ALIVE
    (folder,) = (tmp_path / "FlexibleDecoderPanic-1").glob("alive-*")
    assert "real_flexible_decoder.go" in (folder / "README.md").read_text()
    summary = summary_of([found])
    assert (summary["planted"], summary["found"]) == (1, 1)


def test_a_defect_or_a_sequence_that_is_none_is_named(honest: str) -> None:
    check_defects(WIRE_DEFECTS)
    with pytest.raises(UsageError, match="NoSuchDefect"):
        check_defects(["NoSuchDefect"])
    with pytest.raises(UsageError, match="dance"):
        perform("dance:1", honest, spoken(advertised(honest)))

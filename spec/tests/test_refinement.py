"""Steps of a module are steps of the core that z3 proves; with a guard off, some step is not."""

from pathlib import Path

import pytest

from highwater.errors import Verdict
from highwater.spec.models import CONTRACTS, Model, load_models, with_constants
from highwater.spec.proofs.crosscheck import core_module
from highwater.spec.proofs.report import load
from highwater.spec.tlc.messages import TlcResult
from highwater.spec.tlc.run import Options, run_tlc

REFINEMENTS = {model.folder: model for model in load_models().values() if model.name.startswith("Ref")}
# The guards that act within the bounds of the row; without the others every step is still one of the core.
REFUSED = {
    "hw_truncation": (
        *("TruncateByEpoch", "FenceStaleFetch", "HwNeedsWholeIsr", "ExpandOnlyCaughtUp", "ExpandAfterEpochStart"),
        *("IsrCas", "FenceStaleLeaderAndIsr", "ElectFromIsr"),
    ),
    "isr_commit": ("HwNeedsWholeIsr", "HwWaitsForProposed", "ExpandOnlyCaughtUp", "IsrCas"),
    "controller_failover": (
        *("ClaimCas", "ControllerEpochCas", "VersionCas", "IsrCas", "PersistBeforeSend", "BumpLeaderEpoch"),
        *("FenceStaleLeaderAndIsr", "FenceOldBrokerEpoch"),
    ),
    "eager_rebalance": (
        *("RevokeBeforeJoin", "DropOnLost", "MatchReplies", "LeaderAssignsMembersOnly", "AwaitAllMembers"),
        *("RequireMemberId", "FenceStaleGeneration", "FenceStaleSync", "MembersCommitOnly"),
    ),
    "cooperative_rebalance": (
        *("WithholdClaimed", "HighestClaimWins", "ClaimsBearGeneration", "RevokeBeforeRejoin", "UnaffectedKeep"),
        *("DropOnLost", "ResetClaimOnLost", "MatchReplies"),
    ),
    "transactions": (
        *("InitBumpsEpoch", "InitAbortsOpen", "InitAwaitsMarkers", "AddAwaitsMarkers", "FenceStaleAdd"),
        *("FenceStaleEndTxn", "VerifyBeforeAppend", "FenceStaleProduce", "CompleteAwaitsMarkers", "FenceStaleMarker"),
        "MarkerNeedsNewEpoch",
    ),
    "sequence_window": (
        *("RefuseSequenceGap", "RefuseUsedSequence", "BeginAtZero", "LimitInFlight"),
        *("RetryKeepsSequence", "RebuildWindow", "ForgetTruncatedBatches", "AckAfterCommit"),
    ),
}
QUICK = [
    *(("hw_truncation", "HwNeedsWholeIsr"), ("isr_commit", "IsrCas"), ("controller_failover", "BumpLeaderEpoch")),
    *(("eager_rebalance", "RevokeBeforeJoin"), ("cooperative_rebalance", "MatchReplies")),
    *(("sequence_window", "ForgetTruncatedBatches"), ("transactions", "FenceStaleEndTxn")),
]


def without(model: Model, guard: str, tmp_path: Path) -> TlcResult:
    return refined(model, tmp_path, GuardsOff=f'{{"{guard}"}}')


def refined(model: Model, tmp_path: Path, **constants: str) -> TlcResult:
    config = tmp_path / "Ref.cfg"
    config.write_text(with_constants(model.config(), constants, where=model.name))
    return run_tlc(model.path, config, Options(library=(CONTRACTS, model.path.parent), small=True))


@pytest.mark.parametrize("folder", REFINEMENTS)
def test_a_row_compares_with_the_core_of_the_proof(folder: str) -> None:
    model = REFINEMENTS[folder]
    core = core_module(load(folder))
    assert f"INSTANCE {core.stem} WITH" in model.path.read_text()
    assert model.claims() == {"RefinesCore": "PROPERTY"}


@pytest.mark.parametrize(("folder", "guard"), QUICK)
def test_without_a_guard_some_step_is_none_of_the_core(folder: str, guard: str, tmp_path: Path) -> None:
    found = without(REFINEMENTS[folder], guard, tmp_path)
    assert (found.verdict, len(found.trace) > 2) == (Verdict.INVALID, True)


@pytest.mark.soak
@pytest.mark.parametrize(("folder", "guard"), [(folder, guard) for folder, names in REFUSED.items() for guard in names])
def test_each_guard_of_the_core_is_missed(folder: str, guard: str, tmp_path: Path) -> None:
    assert without(REFINEMENTS[folder], guard, tmp_path).verdict is Verdict.INVALID


def test_a_late_join_is_refused_by_the_core_whose_proof_assumes_that_there_is_none(tmp_path: Path) -> None:
    found = refined(REFINEMENTS["cooperative_rebalance"], tmp_path, LateJoins="TRUE")
    assert (found.verdict, len(found.trace) > 2) == (Verdict.INVALID, True)

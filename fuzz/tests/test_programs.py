"""Programs of the suite with drawn choices: in a world of their own, and as clients of a simulated run with faults."""

from collections import Counter

import pytest

from highwater.commands.run_audit import audit_run
from highwater.conformance.cases import programs
from highwater.conformance.cases.programs import PROGRAMS, run
from highwater.conformance.client.broker import advertised_versions
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.connection import access_to
from highwater.conformance.client.draws import Drawn
from highwater.conformance.expectations import expect, require
from highwater.conformance.failures import Disturbed, NotApplicable, Required, TargetFailure, Unsupported
from highwater.fuzz.schedule import Fault, Schedule
from highwater.fuzz.simulator.clients.programs import CALM, FAULTY
from highwater.fuzz.simulator.cluster import Load, Settings
from highwater.fuzz.simulator.search import run_seed
from highwater.fuzz.virtual.target import SimulatorTarget
from highwater.reference.wire.errors import ErrorCode

ONE_PRODUCER = Load(producers=1)
SCRIPTED = {
    "active-producers", "quotas", "topics", "extended-topics", "deleted-topics", "transaction-lists", "group-lists",
}  # fmt: skip
"""Programs that always send the same."""
CALM_RUN = Schedule(seed=1, duration_ms=6_000, faults=())


def carried_out(target: SimulatorTarget, name: str, draws: Drawn) -> list[bytes]:
    """Run a program in a new world; return the frames that it has sent."""
    target.begin_case(draws.seed)
    versions = advertised_versions(target.bootstrap, access=access_to(target))
    cluster = Cluster(target, versions, whole_log=True, prefix="same", draws=draws)
    try:
        run(name, cluster)
    except (Unsupported, NotApplicable) as error:
        pytest.skip(str(error))
    finally:
        cluster.close()
    return [event.data for event in cluster.log if event.api is None and event.data]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_passes_and_its_seed_decides_what_it_sends(name: str) -> None:
    target = SimulatorTarget(1)
    sent = carried_out(target, name, Drawn(f"{name}:1"))
    assert carried_out(target, name, Drawn(f"{name}:1")) == sent
    if name not in SCRIPTED:
        assert carried_out(target, name, Drawn(f"{name}:2")) != sent


def test_a_step_that_is_left_out_changes_no_other() -> None:
    whole, part = Drawn("writes:4"), Drawn("writes:4", frozenset({1}))
    every, fewer = (
        [(number, chance.random()) for number in draws.steps(50, chance)]
        for draws in (whole, part)
        for chance in [draws.generator(1)]
    )
    assert len(every) > 1
    assert fewer == every[:1] + every[2:]
    assert whole.begun == part.begun == len(every)


def test_an_error_after_which_a_client_tries_again_differs_from_others() -> None:
    with pytest.raises(Disturbed):
        expect("error code", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(Disturbed):
        expect("error code and offset", (0, 1), (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1))
    for what, actual in (("error code", ErrorCode.INVALID_REQUEST), ("number of partitions", 6)):
        with pytest.raises(TargetFailure) as failure:
            expect(what, 0, actual)
        assert not isinstance(failure.value, Disturbed)
    with pytest.raises(Required):
        require("error code", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def outcomes(ended: Counter[tuple[str, str]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, outcome), count in ended.items():
        found[outcome] += count
    return found


def test_programs_run_beside_the_load_and_repeat_with_the_seed() -> None:
    settings = Settings(swarm=True, load=ONE_PRODUCER, programs=2)
    first, second = run_seed(4, settings, audit=audit_run), run_seed(4, settings)
    assert first.violation is None
    assert first.audited
    assert first.fingerprint == second.fingerprint
    assert first.programs == second.programs
    found = outcomes(first.programs)
    assert found[CALM]
    assert found[FAULTY]


def test_a_calm_cluster_is_held_to_every_answer() -> None:
    settings = Settings(load=ONE_PRODUCER, programs=3, guards_off=("RequireMemberId",))
    violation = run_seed(1, settings, schedule=CALM_RUN).violation
    assert violation is not None
    assert violation.invariant == "AnswersFitModel"
    assert "MEMBER_ID_REQUIRED" in violation.message


@pytest.mark.parametrize("kind", [expect, require])
def test_under_faults_only_what_is_required_counts(monkeypatch: pytest.MonkeyPatch, kind: object) -> None:
    """A program that fails at once, while a link is cut all the time."""

    def fail(name: str, cluster: Cluster) -> None:
        assert callable(kind)
        kind("a number", 1, 2)

    monkeypatch.setattr(programs, "run", fail)
    fault = Fault(at_ms=0, for_ms=60_000, kind="cut", nodes=("1",), options={"of": "2", "direction": "both"})
    cut = Schedule(seed=1, duration_ms=60_000, faults=(fault,))
    result = run_seed(1, Settings(load=ONE_PRODUCER, programs=1), schedule=cut)
    assert result.violation is not None  # `expect` counts once the fault is over, for as long as the cluster needs
    assert (result.violation.at_ms < 60_000) is (kind is require)


def test_a_program_that_is_open_at_the_end_of_a_run_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "run", lambda name, cluster: cluster.clock.sleep(1e6))
    result = run_seed(1, Settings(load=ONE_PRODUCER, programs=2), schedule=CALM_RUN)
    assert result.violation is None
    assert not result.programs

"""Programs of the suite with drawn choices: in a world of their own, and as clients of a simulated run with faults."""

import random
from collections import Counter
from typing import Any

import pytest

from highwater.commands.run_audit import audit_run
from highwater.commands.simulate import _exit_code
from highwater.conformance.cases import programs
from highwater.conformance.cases.programs import PROGRAMS, run
from highwater.conformance.client.broker import advertised_versions
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.connection import access_to
from highwater.conformance.client.draws import Followed, Path, random_path
from highwater.conformance.client.exchange import Event, ExchangeLog
from highwater.conformance.expectations import expect, require
from highwater.conformance.failures import NotApplicable, Unsupported
from highwater.errors import ExitCode
from highwater.fuzz.schedule import Fault, Schedule
from highwater.fuzz.simulator.clients.programs import CALM, FAULTY
from highwater.fuzz.simulator.cluster import Load, Settings
from highwater.fuzz.simulator.search import run_seed
from highwater.fuzz.virtual.target import SimulatorTarget
from highwater.fuzz.wire.oracles import exchanges
from highwater.fuzz.wire.oracles.exchanges import misread
from highwater.fuzz.wire.oracles.responses import Failure, Oracle
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import encode_request, encode_response
from highwater.reference.wire.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from highwater.reference.wire.registry import api_of

ONE_PRODUCER = Load(producers=1)
SCRIPTED = {
    "active-producers", "quotas", "topics", "extended-topics", "deleted-topics", "transaction-lists", "group-lists",
    "consumer-group",
}  # fmt: skip
"""Programs that always send the same."""
METADATA_4 = b"\x00\x03\x00\x04"
CALM_RUN = Schedule(seed=1, duration_ms=6_000, faults=())


def carried_out(target: SimulatorTarget, name: str, seed: int) -> list[bytes]:
    """Run a program in a new world; return the frames that it has sent."""
    target.begin_case(f"{name}:{seed}")
    draws = Followed(random_path(random.Random(seed)))
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
    sent = carried_out(target, name, 1)
    assert carried_out(target, name, 1) == sent
    if name not in SCRIPTED:
        assert carried_out(target, name, 2) != sent


def test_a_step_that_is_left_out_changes_no_other() -> None:
    whole, count = random_path(random.Random(4)), 1 << 10
    loop = whole.loops[0]
    part = Path(whole.outside, ((loop[0], *loop[2:]), *whole.loops[1:]))
    every, fewer = (
        {number: chance.random() for number in draws.steps(count, chance)}
        for draws in (Followed(whole), Followed(part))
        for chance in [draws.generator(1)]
    )
    assert len(every) == len(loop) > 1
    assert fewer == {number: drawn for number, drawn in every.items() if number != loop[1].number}


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


def test_a_client_that_tidies_up_at_the_end_of_a_run_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def wait(name: str, cluster: Cluster) -> None:
        try:
            cluster.clock.sleep(1e6)
        finally:
            try:
                cluster.clock.sleep(1.0)
            finally:
                ended.append(name)

    monkeypatch.setattr(programs, "run", wait)
    run_seed(1, Settings(load=ONE_PRODUCER, programs=1), schedule=CALM_RUN)
    assert len(ended) == 1


@pytest.mark.parametrize("name", ["active-producers", "writes"])
def test_a_reply_that_violates_an_oracle_counts_however_the_program_ends(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A program that is disturbed, and one that does not fit, after a reply with a negative throttle time."""

    def end(_: str, cluster: Cluster) -> None:
        with cluster.connect() as broker:
            broker.call(MetadataRequest(topics=()), 4)
        if name == "writes":
            expect("error code", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise Unsupported("an API is missing")

    def throttled(frame: bytes, answer: bytes) -> tuple[Failure | None, tuple[int, ...]]:
        return Failure(Oracle.INVARIANT, "throttled for -1 ms") if frame[4:8] == METADATA_4 else None, ()

    monkeypatch.setattr(programs, "run", end)
    monkeypatch.setattr(exchanges, "judge", throttled)
    violation = run_seed(1, Settings(load=ONE_PRODUCER, programs=1), schedule=CALM_RUN).violation
    assert violation is not None
    assert "throttled" in violation.message


def test_replies_of_two_connections_with_equal_correlation_ids_are_distinguished() -> None:
    """The reply to the Metadata comes first, although the ApiVersions of the other connection was sent before it."""
    log = ExchangeLog(whole=True)
    requests: list[tuple[Any, int]] = [(ApiVersionsRequest(), 0), (MetadataRequest(topics=()), 1)]
    for request, version in requests:
        log.add(Event("a:1", "<- request", encode_request(request, version, 7, "c")))
    for (request, version), reply in zip(requests[::-1], (MetadataResponse(), ApiVersionsResponse()), strict=True):
        log.add(Event("a:1", "-> reply", encode_response(reply, version, 7), api_of(type(request)), version))
    assert misread(log) is None


def test_a_run_without_a_finished_program_decides_nothing() -> None:
    nothing: dict[str, Any] = {"findings": [], "seen": {}}
    assert _exit_code({**nothing, "programs": {"disturbed": 9}}, None) == ExitCode.UNDECIDED
    assert _exit_code({**nothing, "programs": {}}, None) == ExitCode.UNDECIDED
    assert _exit_code({**nothing, "programs": {FAULTY: 1}}, None) == ExitCode.HELD
    assert _exit_code({**nothing, "programs": None}, None) == ExitCode.HELD


def test_a_program_that_is_open_at_the_end_of_a_run_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "run", lambda name, cluster: cluster.clock.sleep(1e6))
    result = run_seed(1, Settings(load=ONE_PRODUCER, programs=2), schedule=CALM_RUN)
    assert result.violation is None
    assert not result.programs

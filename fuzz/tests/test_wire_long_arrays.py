"""Requests with a long array: which arrays are sent, how they differ, and what they may leave behind."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from highwater.fuzz.tests.test_wire import fake_broker, honest
from highwater.fuzz.wire.examination import searches, suspicions
from highwater.fuzz.wire.examination.searches import examine_slow, search_long
from highwater.fuzz.wire.examination.triage import RunEndedError, Triage
from highwater.fuzz.wire.findings import read_unexamined
from highwater.fuzz.wire.generate import long_arrays
from highwater.fuzz.wire.generate.cases import MANY, Case
from highwater.fuzz.wire.generate.long_arrays import ELEMENTS, FRAME_MAX, LASTING, LongArrays, arrays
from highwater.fuzz.wire.generate.requests import HARMFUL
from highwater.fuzz.wire.oracles.malformed import must_be_refused
from highwater.fuzz.wire.oracles.responses import Failure, Oracle, read_request
from highwater.fuzz.wire.replay import Replay, stall_of
from highwater.fuzz.wire.session import Bounds, Session
from highwater.fuzz.wire.target import FuzzTarget
from highwater.reference.wire.registry import APIS, Api
from highwater.reference.wire.schema import ZERO_UUID, message_layout

SEED = 3
RUN_LIMIT_S = 60.0
FEW = 400
SERVED = [(api, api.min_version, api.max_version) for key, api in APIS.items() if key not in HARMFUL]
CREATE_TOPICS, METADATA, DESCRIBE_GROUPS, DELETE_RECORDS = 19, 3, 15, 21
LEAVE_GROUP, JOIN_GROUP, FETCH, CREATE_PARTITIONS = 13, 11, 1, 37
LONGER = 1.5
"""Elements are longer than the first two by the digits of their numbers."""


def served(*keys: int) -> list[tuple[Api, int, int]]:
    return [(APIS[key], APIS[key].min_version, APIS[key].max_version) for key in keys]


def all_of(ranges: list[tuple[Api, int, int]]) -> list[Case]:
    drawn = LongArrays(random.Random(SEED), ranges)
    return [case for _ in range(len(drawn)) if (case := drawn.draw()) is not None]


def array_of(case: Case) -> list[Any]:
    """Return the array that the case has made long."""
    _, value = read_request(case.frames[0][4:])
    for name in case.field.split("."):
        value = value[0] if isinstance(value, tuple) else value
        value = getattr(value, name)
    return list(value)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Return all cases, with fewer elements than in a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_arrays, "ELEMENTS", FEW)
        return all_of(SERVED)


def test_every_array_of_every_api_is_sent_in_each_form(cases: list[Case]) -> None:
    """Except those in tag sections, and of requests that would create thousands of things."""
    expected = {
        (api.key, ".".join(path))
        for api, first, last in SERVED
        for version in range(first, last + 1)
        for path in arrays(message_layout(api.request, version))
        if api.key not in LASTING - {CREATE_TOPICS, METADATA}
    }
    sent = Counter((case.key, case.field) for case in cases)
    assert set(sent) == expected
    assert set(sent.values()) == {2, 3, 4}, "those without a string have no long names"
    assert sent[LEAVE_GROUP, "members"] == 4
    assert len(expected) > 100


def test_each_is_valid_and_long(cases: list[Case]) -> None:
    for case in cases:
        array = array_of(case)
        assert case.mutation == MANY
        assert must_be_refused(case.frames[0]) is None, case.field
        assert len(array) == FEW or len(case.frames[0]) > FRAME_MAX / 4, case.field
        assert len(case.frames[0]) <= LONGER * FRAME_MAX, case.field


def test_elements_differ_or_have_long_names_and_are_equal_in_the_end() -> None:
    *before, equal = [array_of(case) for case in all_of(served(DESCRIBE_GROUPS))]
    assert len(set(equal)) == 1
    different, long_names = sorted(before, key=len, reverse=True)
    assert len(set(different)) == len(different) == ELEMENTS
    assert {len(name) // 1_000 for name in long_names} == {32}
    assert len(set(long_names)) == len(long_names) > 10
    partitions = [case for case in all_of(served(DELETE_RECORDS)) if case.field == "topics.partitions"]
    assert [p.partition_index for p in array_of(partitions[0])][:3] == [0, 1, 2]


def test_members_may_differ_in_one_name_only() -> None:
    """With the same member id, as those without one that are named by their instance ids."""
    arrays_of_members = [array_of(case) for case in all_of(served(LEAVE_GROUP)) if case.field == "members"]
    others = [
        {(member.group_instance_id, member.reason) for member in array}
        for array in arrays_of_members
        if len({member.member_id for member in array}) == 1
    ]
    assert len(others) == 2, "equal ones, and those that differ in another name"
    assert min(map(len, others)) == 1
    assert max(map(len, others)) > 1_000


def test_what_is_beside_a_long_array_does_not_hide_it() -> None:
    """The number of partitions agrees with the assignments, a static member joins at once, most fetches are full."""
    for case in all_of(served(CREATE_PARTITIONS)):
        topic = read_request(case.frames[0][4:])[1].topics[0]
        assert case.field == "topics" or topic.count == 1 + len(topic.assignments)
    joins = [read_request(case.frames[0][4:])[1] for case in all_of(served(JOIN_GROUP)) * 3]
    assert any(join.member_id == "" and join.group_instance_id for join in joins)
    fetches = [read_request(case.frames[0][4:])[1] for case in all_of(served(FETCH))]
    assert sum(fetch.session_id == 0 and fetch.session_epoch == -1 for fetch in fetches) > len(fetches) / 3


def test_nothing_is_created() -> None:
    for case in all_of(served(CREATE_TOPICS)):
        assert read_request(case.frames[0][4:])[1].validate_only
    for case in all_of(served(METADATA)):
        assert not read_request(case.frames[0][4:])[1].allow_auto_topic_creation
    create_acls, credentials = 30, 51
    assert all_of(served(create_acls, credentials)) == []


def test_a_target_without_arrays_gets_none() -> None:
    api_versions = 18
    assert LongArrays(random.Random(SEED), served(api_versions)).draw() is None


def test_an_element_has_a_name_or_an_id(cases: list[Case]) -> None:
    """A topic with both is refused at once, and nothing is looked up."""
    named = [element for case in cases if (case.key, case.field) == (METADATA, "topics") for element in array_of(case)]
    assert named
    assert all(element.topic_id == ZERO_UUID or element.name is None for element in named)


# -- what is done with them ----------------------------------------------------------------------------


def stalls_for(culprit: Case | None) -> Callable[..., Failure | None]:
    """Return a replay that sees a stall if it sends that case."""

    def run(self: Replay, cases: list[Case], oracle: Oracle | None = None) -> Failure | None:
        return stall_of(3.0) if oracle is Oracle.STALL and any(case is culprit for case in cases) else None

    return run


def test_the_one_that_stalls_other_clients_is_found(
    cases: list[Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_broker(honest) as address:
        triage = Triage(FuzzTarget(address), tmp_path, SEED, "test", shrink_s=0.0)
        monkeypatch.setattr(Replay, "run", stalls_for(None))
        assert search_long(triage, cases[:8], 1) is None
        monkeypatch.setattr(Replay, "run", stalls_for(cases[5]))
        finding = search_long(triage, cases[:8], 1)
        assert finding is not None
        assert (finding.oracle, finding.mutation, finding.field) == (Oracle.STALL, MANY, cases[5].field)
        assert search_long(triage, cases[:8], 2) is None, "it is known"


def test_a_slow_answer_is_a_finding_only_if_others_wait_meanwhile(
    cases: list[Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "SLOW_S", 0.0)
    with fake_broker(honest) as address:
        for culprit in (None, cases[3]):
            monkeypatch.setattr(Replay, "run", stalls_for(culprit))
            triage = Triage(FuzzTarget(address), tmp_path, SEED, "test", shrink_s=0.0)
            finding = examine_slow(triage, cases[3], 5.0, 1)
            assert (finding and finding.oracle) == (culprit and Oracle.STALL)
            assert triage.fatal_cases == [cases[3]], "it is not sent again"


def test_a_run_says_how_many_it_has_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are sent alone, for a share of the time, and count only when they were sent."""
    monkeypatch.setattr(suspicions, "LONG_FIRST_S", 0.0)
    with fake_broker(honest) as address:
        session = Session(FuzzTarget(address), tmp_path, SEED, Bounds(RUN_LIMIT_S, deadline_s=0.5))
        assert session.summary()["oracles"]["stall"].endswith(" 0 of 3 requests with a long array were sent alone")
        session._long = LongArrays(random.Random(SEED), served(DESCRIBE_GROUPS))

        def watch(session: Session) -> None:
            if session.summary()["oracles"]["stall"].endswith(" 3 of 3 requests with a long array were sent alone"):
                session.totals.ended = "it was sent"

        assert session.run(watch)["ended"] == "it was sent"


def test_a_failure_that_the_run_has_no_time_for_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was behind it was not sent, and does not count as sent."""

    def over(triage: Triage, cases: list[Case], number: int) -> None:
        raise RunEndedError

    monkeypatch.setattr(suspicions, "LONG_FIRST_S", 0.0)
    monkeypatch.setattr(searches, "send_long", lambda triage, cases: stall_of(3.0))
    monkeypatch.setattr(searches, "search_long", over)
    with fake_broker(honest) as address:
        session = Session(FuzzTarget(address), tmp_path, SEED, Bounds(RUN_LIMIT_S, cases=200, deadline_s=0.5))
        summary = session.run()
        assert summary["unexamined"] == ["stall by long requests"]
        assert " 0 of 3 requests with a long array were sent" in summary["oracles"]["stall"], (
            "those that fail do not count"
        )
    (kept,) = read_unexamined(tmp_path)
    assert (kept.oracle, kept.mutation) == (Oracle.STALL, MANY)

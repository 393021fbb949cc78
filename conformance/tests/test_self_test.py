"""The self-test: real cases detect every kind of defect, and cases that detect nothing are reported."""

from pathlib import Path

import pytest

from highwater.conformance.defects import Reply, Setting, without_error
from highwater.conformance.runner import Options
from highwater.conformance.self_test.fake_servers import FAKE_SERVERS
from highwater.conformance.self_test.faults import replace_field
from highwater.conformance.self_test.runner import run_self_test
from highwater.conformance.self_test.trials import (
    NO_DECLARED_DEFECT,
    NO_DEFECT,
    Outcome,
    Trial,
    describe_defect,
    exit_code,
    judge,
    summary,
)
from highwater.errors import ExitCode
from highwater.reference.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ONE_OF_EACH_KIND = [
    "FRM-1", "FRM-2", "FRM-3[split]", "FRM-4", "FRM-12[padded]", "LST-7", "GRP-17", "OFF-3[member]",
]  # fmt: skip
WEAK = Path(__file__).with_name("weak_cases.py")


@pytest.mark.soak  # `.ci/run` plants every defect of every case
def test_cases_catch_every_kind_of_defect() -> None:
    report = run_self_test("simulator:1", Options(clauses=ONE_OF_EACH_KIND, jobs=2))
    assert report["complaints"] == []
    assert report["untested"] == []
    assert report["caught"] == report["total"] >= 8
    kinds = "Crash Garbled GuardOff HangUp OneSegment OutOfTurn Reply Request Setting Silence StaysOpen"
    assert list(report["planted"]) == kinds.split()
    assert exit_code(report) is ExitCode.HELD


def test_weak_cases_are_found() -> None:
    report = run_self_test("simulator:1", Options(jobs=1), cases=WEAK)
    found = {
        (complaint["case"], complaint["defect"].partition("(")[0], complaint["outcome"])
        for complaint in report["complaints"]
    }
    assert found == {
        ("PRD-3[looks away]", "Reply", "missed"),
        ("PRD-3[elsewhere]", "Request", "never planted"),
        ("PRD-3[no such field]", "Reply", "never planted"),
        ("PRD-3[stumbles]", "Reply", "error"),
        ("PRD-3[says none]", NO_DECLARED_DEFECT, "missed"),
        ("PRD-3[guard]", "GuardOff", "missed"),
        ("PRD-3[wrong]", NO_DEFECT, "error"),
        ("FRM-3[silence]", "answers nothing", "missed"),
        ("FRM-3[silence]", "echoes what it gets", "missed"),
        ("FRM-4[hangs up]", "Request", "never planted"),
        ("FRM-4[hangs up]", "closes every connection", "missed"),
        ("FRM-4[hangs up]", "closes after the first bytes", "missed"),
    }
    assert (report["caught"], report["total"]) == (0, 9)
    assert exit_code(report) is ExitCode.VIOLATED
    reasons = {complaint["case"]: complaint["message"] for complaint in report["complaints"]}
    assert "PartitionProduceResponse" not in reasons["PRD-3[no such field]"]
    assert "has no partitions" in reasons["PRD-3[no such field]"]


def _trial(item: str, defect: str, outcome: Outcome) -> Trial:
    return Trial(case="C", item=item, defect=defect, outcome=outcome)


def test_each_version_needs_a_defect_and_each_defect_a_version() -> None:
    caught, never = Outcome.CAUGHT, Outcome.NEVER_PLANTED
    old_and_new = [
        _trial("C[v1]", "old", caught), _trial("C[v1]", "new", never),
        _trial("C[v2]", "old", never), _trial("C[v2]", "new", caught),
    ]  # fmt: skip
    assert judge(old_and_new)[0].complaints == []
    undefended = _trial("C[v3]", "old", never)
    assert judge([*old_and_new, undefended])[0].complaints == [undefended]
    dishonest = _trial("C[v3]", next(iter(FAKE_SERVERS)), caught)
    assert judge([*old_and_new, undefended, dishonest])[0].complaints == [undefended]
    nowhere = _trial("C[v1]", "other", never)
    assert judge([*old_and_new, nowhere])[0].complaints == [nowhere]


def test_a_path_goes_through_every_element() -> None:
    parts = tuple(MetadataResponsePartition(leader_id=number) for number in (1, 2))
    reply = MetadataResponse(topics=(MetadataResponseTopic(name="t", partitions=parts),))
    mutated = replace_field(reply, "topics.partitions.leader_id", lambda leader: leader * 10)
    assert [part.leader_id for part in mutated.topics[0].partitions] == [10, 20]
    assert mutated.topics[0].name == "t"
    assert replace_field(MetadataRequest(topics=None), "topics.name", "x") == MetadataRequest(topics=None)


def test_a_defect_has_a_text() -> None:
    assert describe_defect(Reply(MetadataRequest, "topics.error_code", without_error(3))) == (
        "Reply(Metadata topics.error_code = without 3)"
    )
    assert describe_defect(Setting("group_max_size", 7)) == "Setting(group_max_size = 7)"


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([Outcome.CAUGHT], ExitCode.HELD),
        ([Outcome.CAUGHT, Outcome.ERROR], ExitCode.UNDECIDED),
        ([Outcome.ERROR, Outcome.MISSED], ExitCode.VIOLATED),
        ([], ExitCode.UNDECIDED),
    ],
)
def test_only_a_missed_defect_fails_the_self_test(outcomes: list[Outcome], code: ExitCode) -> None:
    trials = [_trial("C", f"defect {number}", outcome) for number, outcome in enumerate(outcomes)]
    assert exit_code(summary(trials)) is code

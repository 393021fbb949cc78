"""The suite's own test: real cases see every kind of defect, and it complains of cases that see nothing."""

from pathlib import Path

import pytest

from highwater.conformance.defects import Reply, Setting, forgives
from highwater.conformance.runner import Options
from highwater.conformance.self_test.faults import changed
from highwater.conformance.self_test.runner import run_self_test
from highwater.conformance.self_test.targets import BEHAVIOURS
from highwater.conformance.self_test.trials import (
    HONEST,
    UNDEFENDED,
    Outcome,
    Trial,
    exit_code,
    judge,
    summary,
    text_of,
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


def test_cases_catch_every_kind_of_defect() -> None:
    report = run_self_test("reference:1", Options(clauses=ONE_OF_EACH_KIND, jobs=2))
    assert report["complaints"] == []
    assert report["untested"] == []
    assert report["caught"] == report["total"] >= 8
    kinds = "Crash Garbled GuardOff HangUp OneSegment OutOfTurn Reply Request Setting Silence StaysOpen"
    assert list(report["planted"]) == kinds.split()
    assert exit_code(report) is ExitCode.HELD


def test_weak_cases_are_found() -> None:
    report = run_self_test("reference:1", Options(jobs=1), cases=WEAK)
    found = {(each["case"], each["defect"].partition("(")[0], each["outcome"]) for each in report["complaints"]}
    assert found == {
        ("PRD-3[looks away]", "Reply", "missed"),
        ("PRD-3[elsewhere]", "Request", "never planted"),
        ("PRD-3[no such field]", "Reply", "never planted"),
        ("PRD-3[stumbles]", "Reply", "error"),
        ("PRD-3[says none]", UNDEFENDED, "missed"),
        ("PRD-3[guard]", "GuardOff", "missed"),
        ("PRD-3[wrong]", HONEST, "error"),
        ("FRM-3[silence]", "answers nothing", "missed"),
        ("FRM-3[silence]", "echoes what it gets", "missed"),
        ("FRM-4[hangs up]", "Request", "never planted"),
        ("FRM-4[hangs up]", "closes every connection", "missed"),
        ("FRM-4[hangs up]", "closes after the first bytes", "missed"),
    }
    assert (report["caught"], report["total"]) == (0, 9)
    assert exit_code(report) is ExitCode.VIOLATED
    reasons = {each["case"]: each["message"] for each in report["complaints"]}
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
    dishonest = _trial("C[v3]", next(iter(BEHAVIOURS)), caught)
    assert judge([*old_and_new, undefended, dishonest])[0].complaints == [undefended]
    nowhere = _trial("C[v1]", "other", never)
    assert judge([*old_and_new, nowhere])[0].complaints == [nowhere]


def test_a_path_goes_through_every_element() -> None:
    parts = tuple(MetadataResponsePartition(leader_id=number) for number in (1, 2))
    reply = MetadataResponse(topics=(MetadataResponseTopic(name="t", partitions=parts),))
    spoiled = changed(reply, "topics.partitions.leader_id", lambda leader: leader * 10)
    assert [part.leader_id for part in spoiled.topics[0].partitions] == [10, 20]
    assert spoiled.topics[0].name == "t"
    assert changed(MetadataRequest(topics=None), "topics.name", "x") == MetadataRequest(topics=None)


def test_a_defect_has_a_text() -> None:
    assert text_of(Reply(MetadataRequest, "topics.error_code", forgives(3))) == (
        "Reply(Metadata topics.error_code = without 3)"
    )
    assert text_of(Setting("group_max_size", 7)) == "Setting(group_max_size = 7)"


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([Outcome.CAUGHT], ExitCode.HELD),
        ([Outcome.CAUGHT, Outcome.ERROR], ExitCode.UNDECIDED),
        ([Outcome.ERROR, Outcome.MISSED], ExitCode.VIOLATED),
        ([], ExitCode.UNDECIDED),
    ],
)
def test_only_a_defect_that_was_missed_counts_against_the_suite(outcomes: list[Outcome], code: ExitCode) -> None:
    trials = [_trial("C", f"defect {number}", outcome) for number, outcome in enumerate(outcomes)]
    assert exit_code(summary(trials)) is code

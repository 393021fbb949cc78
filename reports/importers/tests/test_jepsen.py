"""Jepsen's histories give events and verdicts: the Kafka workload, registers, sets and counters."""

from pathlib import Path
from typing import Any

import pytest

from highwater.errors import UsageError, Verdict
from highwater.reports.audit import audit
from highwater.reports.importers.edn import MAP, SET
from highwater.reports.importers.formats import History, open_history
from highwater.reports.importers.tests.jepsen_runs import FROM_THE_START, Op, Run, healthy, lines
from highwater.reports.verdicts import AuditResult
from highwater.spec.formats.history import Event

PROMISED = {"acks": "all", "unclean_election": False, "retention": False, "compaction": False, "idempotence": True}


def write(folder: Path, ops: list[Op], name: str = "history.edn") -> Path:
    (folder / name).write_bytes(lines(ops))
    return folder / name


def opened(folder: Path, run: Run) -> tuple[History, list[Event]]:
    history = open_history(str(write(folder, run.ops)))
    return history, list(history.events)


def audited(folder: Path, run: Run, **config: Any) -> AuditResult:
    return audit(write(folder, run.ops), overrides=PROMISED | config)


def violations(result: AuditResult) -> dict[str, int]:
    return {each.name: each.count for each in result.findings if each.severity == "violation"}


def test_a_healthy_run_is_valid(tmp_path: Path) -> None:
    run = healthy(400)
    result = audited(tmp_path, run)
    assert (result.verdict, result.operations, result.quarantine.count) == (Verdict.VALID, 411, 0)  # 11 final polls
    assert result.format == "jepsen-edn"


def test_a_lost_write_is_found(tmp_path: Path) -> None:
    run = Run()
    run.assign(5, 0, **FROM_THE_START)
    for value in range(3):
        run.send(0, 0, value, value)
    run.poll(5, 0, (0, 0), (2, 2))
    result = audited(tmp_path, run)
    assert result.verdict is Verdict.INVALID
    assert violations(result)["lost-write"] == 1


def test_a_transaction_gives_one_operation_per_send_and_one_poll(tmp_path: Path) -> None:
    run = Run()
    invoked = [[":send", 3, 1], [":poll"], [":send", "x", 2], [":poll"]]
    completed = [
        [":send", 3, [7, 1]],
        [":poll", [MAP, 4, [[0, 9]]]],
        [":send", "x", [None, 2]],
        [":poll", [MAP, 4, [[2, 8]]]],
    ]
    run.op(0, "txn", invoked, completed)
    _, events = opened(tmp_path, run)
    assert {event.txn for event in events} == {"txn 1"}
    ends = {(event.f, event.topic, event.offset): event.value for event in events if event.type == "ok"}
    assert ends == {
        ("send", "key", 7): None,
        ("send", "key:x", -1): None,
        ("poll", None, None): {"key-4": [[0, 9], [2, 8]]},
        ("end_txn", None, None): None,
    }
    assert [event.value for event in events if event.type == "invoke" and event.f == "send"] == [1, 2]
    assert len({event.process for event in events if event.type == "invoke"}) == 4


@pytest.mark.parametrize(
    ("kind", "offset", "outcome"),
    [("ok", 5, "ok"), ("info", 5, "ok"), ("info", None, "info"), ("fail", None, "fail"), ("fail", 5, "info")],
)
def test_the_outcome_of_a_send_follows_its_type_and_offset(
    tmp_path: Path, kind: str, offset: int | None, outcome: str
) -> None:
    run = Run()
    run.send(0, 0, 1, offset, kind)
    _, events = opened(tmp_path, run)
    assert [(event.type, event.offset) for event in events] == [("invoke", None), (outcome, offset)]


def test_the_outcome_of_a_transaction_is_the_type_of_its_completion(tmp_path: Path) -> None:
    for kind in ("ok", "fail", "info"):
        run = Run()
        run.op(0, "txn", [[":send", 0, 1]], [[":send", 0, [3, 1]]], kind)
        _, events = opened(tmp_path, run)
        assert [event.type for event in events if event.f == "end_txn"] == ["invoke", kind]
        assert [(event.type, event.offset) for event in events if event.f == "send"][1] == ("ok", 3)


def test_an_aborted_read_is_found(tmp_path: Path) -> None:
    run = Run()
    run.op(0, "txn", [[":send", 0, 1], [":send", 1, 2]], [[":send", 0, [3, 1]], [":send", 1, [4, 2]]], "fail")
    run.poll(5, 0, (3, 1))
    assert violations(audited(tmp_path, run, isolation="read_committed"))["aborted-read"] == 1


def going_back(how: str, **extra: Any) -> Run:
    run = Run()
    for value in range(3):
        run.send(0, 0, value, value)
    run.assign(5, 0, how=how)
    run.poll(5, 0, (0, 0), (1, 1), (2, 2), **extra)
    run.poll(5, 0, (1, 1), (2, 2), **extra)
    return run


def test_only_a_subscribed_consumer_may_go_back(tmp_path: Path) -> None:
    assert "nonmonotonic-poll" in violations(audited(tmp_path, going_back("assign")))
    assert violations(audited(tmp_path, going_back("subscribe"))) == {}
    nothing_moved: dict[str, Any] = {"rebalance-log": []}
    assert "nonmonotonic-poll" in violations(audited(tmp_path, going_back("subscribe", **nothing_moved)))
    moved: dict[str, Any] = {"rebalance-log": [[MAP, ":keys", [0], ":type", ":assign"]]}
    assert violations(audited(tmp_path, going_back("subscribe", **moved))) == {}


def test_within_a_rebalance_even_one_poll_may_go_back(tmp_path: Path) -> None:
    log: Any
    for log, rules in ([], {"int-nonmonotonic-poll"}), ([[MAP, ":keys", [0]]], set[str]()):
        extra: dict[str, Any] = {"rebalance-log": log}
        run = Run()
        run.send(0, 0, 0, 0)
        run.send(0, 0, 1, 1)
        run.assign(5, 0, how="subscribe")
        run.poll(5, 0, (0, 0), (1, 1), (0, 0), **extra)
        assert set(violations(audited(tmp_path, run))) == rules


def test_crashes_debugging_and_the_nemesis_are_not_operations(tmp_path: Path) -> None:
    run = healthy(20)
    run.op(5, "crash", None, None, "info")
    run.op(6, "debug-topic-partitions", [0], [MAP, 0, [MAP, ":leader", "n1"]])
    for _ in range(2):
        run.add(":nemesis", "info", "kill", ":primaries")
    history, events = opened(tmp_path, run)
    assert [event.f for event in events if event.process == "nemesis"] == ["kill"]
    assert [event.process for event in events if event.f == "crash"] == [5]
    assert history.quarantine.count == 0


@pytest.mark.parametrize(
    ("corrupt", "reason"),
    [
        (lambda ops: [*ops[:8], ops[9], ops[8], *ops[10:]], "repeated or out of order"),
        (lambda ops: [*ops[:9], *ops[10:]], "missing: 1 operation"),
        (lambda ops: [*ops, dict(ops[-1], **{":index": len(ops)})], "completed before"),
        (lambda ops: [{":index": 0, ":type": ":ok", ":process": 90, ":f": ":send", ":value": []}], "not invoked"),
        (lambda ops: [*ops, {":index": len(ops), ":type": ":what", ":process": 1, ":f": ":send"}], "without :type"),
    ],
)
def test_an_invalid_operation_makes_the_verdict_unknown(tmp_path: Path, corrupt: Any, reason: str) -> None:
    run = healthy(40)
    run.ops = corrupt(run.ops)
    if len(run.ops) == 1:
        with pytest.raises(UsageError, match=reason):
            audited(tmp_path, run)
        return
    result = audited(tmp_path, run)
    assert result.verdict is Verdict.UNKNOWN
    assert any(reason in bad.reason for bad in result.quarantine.lines)


@pytest.mark.parametrize("offset", [-1, 2**63, "x", 1.5, True])
def test_an_invalid_offset_is_quarantined(tmp_path: Path, offset: Any) -> None:
    run = healthy(40)
    run.send(0, 0, 99_999, offset)
    run.poll(7, 0, (offset, 5))
    result = audited(tmp_path, run)
    assert (result.verdict, result.quarantine.count) == (Verdict.UNKNOWN, 2)


@pytest.mark.parametrize("value", ["text", [1, [MAP, ":a", None]], 1.5, True, 2**70, [SET, 1], None])
def test_values_may_be_anything(tmp_path: Path, value: Any) -> None:
    run = Run()
    run.assign(5, 0)
    run.send(0, 0, value, 0)
    run.send(0, 0, "other", 1)
    run.poll(5, 0, (0, value), (1, "other"))
    assert audited(tmp_path, run).verdict is Verdict.VALID
    run.poll(6, 0, (0, "other"))
    assert "inconsistent-offsets" in violations(audited(tmp_path, run))


def test_a_clock_that_goes_back_is_counted_and_the_index_decides(tmp_path: Path) -> None:
    run = healthy(40)
    run.ops[20][":time"] = 5
    result = audited(tmp_path, run)
    assert (result.verdict, result.quarantine.clock_steps_back) == (Verdict.VALID, 1)


def test_quarantined_lines_make_only_explainable_findings_undecided(tmp_path: Path) -> None:
    run = going_back("assign")
    run.poll(6, 0, (0, "other"))
    path = write(tmp_path, run.ops)
    path.write_bytes(path.read_bytes() + b"{:process 3, :type :ok\n")
    found = {each.name: each.severity for each in audit(path, overrides=PROMISED).findings}
    assert found["inconsistent-offsets"] == "violation"
    assert found["nonmonotonic-poll"] == "undecided"


def test_tabs_of_history_txt_and_of_maelstrom(tmp_path: Path) -> None:
    text = '0\t:invoke\t:send\t[[:send "9" 1]]\n0\t:ok\t:send\t[[:send "9" [0 1]]]\n'
    text += ":nemesis\t:info\t:start-partition\t:majority\n3\t:invoke\t:poll\t[[:poll]]\n"
    text += '3\t:info\t:poll\t[[:poll {"9" [[0 1]]}]]\t:net-timeout\n4\t:invoke\t:crash\t\n'
    (tmp_path / "history.txt").write_text(text)
    history = open_history(str(tmp_path / "history.txt"))
    completed = [(event.process, event.type, event.f) for event in history.events]
    assert history.format == "jepsen-txt"
    assert completed[:2] == [(0, "invoke", "send"), (0, "ok", "send")]
    assert completed[-1] == (3, "info", "poll")
    assert [bad.line for bad in history.quarantine.lines] == [6]


OBJECTS: list[tuple[str, list[tuple[str, Any, Any]], list[tuple[str, Any, Any]]]] = [
    (
        "register",
        [("read", None, 3), ("write", 3, 3), ("cas", [3, 4], [3, 4])],
        [("read", None, 3), ("write", None, 3)],
    ),
    ("register", [("write", [7, 3], [7, 3]), ("read", [7, None], [7, 3])], [("write", 7, 3), ("read", 7, 3)]),
    ("register", [("cas", [7, [1, 2]], [7, [1, 2]])], [("cas", 7, [1, 2])]),
    ("set", [("add", 1, 1), ("read", None, [SET, 1])], [("add", None, 1), ("read", None, [1])]),
    ("set", [("add", 1, 1), ("read", None, [1])], [("add", None, 1), ("read", None, [1])]),
    ("counter", [("add", 5, 5), ("read", None, 5)], [("add", None, 5), ("read", None, 5)]),
]


@pytest.mark.parametrize(("workload", "ops", "expected"), OBJECTS)
def test_registers_sets_and_counters(
    tmp_path: Path, workload: str, ops: list[tuple[str, Any, Any]], expected: list[tuple[str, Any, Any]]
) -> None:
    run = Run()
    for f, invoked, completed in ops:
        run.op(0, f, invoked, completed)
    history, events = opened(tmp_path, run)
    assert history.config.workload == workload
    completions = [(event.f, event.key, event.value) for event in events if event.type == "ok"]
    assert completions[: len(expected)] == expected


def test_an_unknown_workload_is_an_error(tmp_path: Path) -> None:
    run = Run()
    run.op(0, "txn", [[":append", 1, 2]], [[":append", 1, 2]])
    with pytest.raises(UsageError, match="no known workload"):
        opened(tmp_path, run)


@pytest.mark.parametrize(("offsets", "blamed"), [((0, 1), False), ((1, 0), True), ((3, 3), True)])
def test_the_sends_of_one_operation_are_ordered(tmp_path: Path, offsets: tuple[int, int], *, blamed: bool) -> None:
    run = Run()
    completed = [[":send", 0, [offset, value]] for value, offset in enumerate(offsets)]
    run.op(0, "txn", [[":send", 0, 0], [":send", 0, 1]], completed)
    assert ("nonmonotonic-send" in violations(audited(tmp_path, run))) == blamed


@pytest.mark.parametrize(
    ("error", "blamed"),
    [(None, True), (":invalid-record", True), ("not-leader-or-follower", False), ("request timed out", False)],
)
def test_a_failure_with_an_ambiguous_error_is_indeterminate(tmp_path: Path, error: str | None, *, blamed: bool) -> None:
    run = Run()
    run.op(0, "send", [[":send", 0, 1]], [[":send", 0, 1]], "fail", **({"error": error} if error else {}))
    run.assign(5, 0, **FROM_THE_START)
    run.poll(5, 0, (0, 1))
    result = audited(tmp_path, run, isolation="read_committed")
    assert ("rejected-record-read" in violations(result)) == blamed

"""The parts around the fuzzing loop: processes, minimising, state, bad input, comparison, and clients under test."""

import os
import random
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from highwater.command_line import application
from highwater.conformance.self_test.faults import SentRequest
from highwater.errors import ExitCode, UsageError
from highwater.fuzz.tests.test_wire import SEED, fake_broker, fuzzed, honest, wrong_correlation_id
from highwater.fuzz.wire.clients.process import ClientProcess
from highwater.fuzz.wire.clients.served_replies import ServedReplies, apply_edits, reply_of
from highwater.fuzz.wire.clients.session import ClientSession
from highwater.fuzz.wire.clients.state import read_client_state
from highwater.fuzz.wire.examination.agreement import disagreement, is_known_difference, random_read
from highwater.fuzz.wire.examination.shrink import shrink
from highwater.fuzz.wire.examination.triage import decode_error_of
from highwater.fuzz.wire.examination.versions import difference
from highwater.fuzz.wire.findings import read_finding, write_finding
from highwater.fuzz.wire.generate.batches import BOMBS, bomb
from highwater.fuzz.wire.generate.cases import Case, with_size
from highwater.fuzz.wire.generate.pool import sound_frame
from highwater.fuzz.wire.oracles.responses import Oracle, judge
from highwater.fuzz.wire.page import page
from highwater.fuzz.wire.process import MEGABYTE, Process, listening_process, place_of
from highwater.fuzz.wire.session import Bounds, Session
from highwater.fuzz.wire.steering.corpus import Corpus, read_state
from highwater.fuzz.wire.target import FuzzTarget
from highwater.reference.wire.errors import CompressionError, ErrorCode
from highwater.reference.wire.framing import decode_request, encode_request, encode_response
from highwater.reference.wire.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataResponse,
    MetadataResponseTopic,
)
from highwater.reference.wire.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from highwater.reference.wire.messages.produce import ProduceRequest, ProduceResponse
from highwater.reference.wire.records import decode_records
from highwater.reference.wire.registry import APIS, api_of


def another_error(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
    if key != 3:
        return answer
    names = [topic.name for topic in decode_request(request)[1].topics or ()] or ["t"]
    topics = tuple(MetadataResponseTopic(name=name, error_code=ErrorCode.INVALID_CONFIG) for name in names)
    return encode_response(MetadataResponse(topics=topics), version, int.from_bytes(request[4:8], "big"))


def test_a_difference_between_two_targets_is_found_unless_it_is_declared() -> None:
    version_ranges = {3: (0, 9), 10: (0, 2)}
    rng, found = random.Random(SEED), set()
    with fake_broker(honest) as one, fake_broker(another_error) as other:
        for _ in range(30):
            case = random_read(rng, version_ranges, version_ranges)
            assert case is not None
            assert disagreement(case, one, one) is None
            failure = disagreement(case, one, other)
            assert (failure is not None) == (case.key == 3)
            found.add(case.key)
    assert found == set(version_ranges)
    assert is_known_difference("ApiVersions", 3, "codes")
    assert not is_known_difference("ApiVersions", 2, "codes")


@pytest.mark.parametrize(
    ("version", "port", "expected"),
    [(1, 1, None), (1, 2, "port 1 in version 1, 2 in 2"), (0, 2, "port 1 in version 0")],
)
def test_adjacent_versions_must_agree_on_their_common_fields(version: int, port: int, expected: str | None) -> None:
    """Version 0 of FindCoordinator has no error message, and the messages of 1 and 2 may differ."""
    api = api_of(FindCoordinatorRequest)
    one = FindCoordinatorResponse(host="h", port=1, error_message="no" if version else None)
    other = FindCoordinatorResponse(host="h", port=port, error_message="not")
    answers = [encode_response(answer, version + n, 1)[4:] for n, answer in enumerate((one, other))]
    found = difference(api, version, *answers)
    assert found == expected or (found is not None and expected is not None and found.startswith(expected))


@pytest.mark.parametrize(("code", "is_found"), [(ErrorCode.UNSUPPORTED_VERSION, False), (ErrorCode.NONE, True)])
def test_a_timestamp_that_an_older_version_refuses_is_no_difference(code: ErrorCode, is_found: bool) -> None:
    """ListOffsets knows the largest timestamp since version 7 (KIP-734)."""
    answers = []
    for version, error in ((6, code), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
        part = ListOffsetsPartitionResponse(partition_index=0, error_code=int(error))
        answer = ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(part,)),))
        answers.append(encode_response(answer, version, 1)[4:])
    assert (difference(api_of(ListOffsetsRequest), 6, *answers) is not None) == is_found


def test_shrinking_keeps_only_the_failing_part() -> None:
    culprit = Case(3, 0, (with_size(bytes(20) + b"needle" + bytes(20)),), cuts=(3, 9))
    others = [Case(3, 0, (with_size(bytes([n]) * 30),)) for n in range(9)]
    tries = []

    def breaks(cases: list[Case]) -> bool:
        tries.append(cases)
        return any(b"needle" in case.frames[-1] for case in cases)

    (smallest,) = shrink([*others[:4], culprit, *others[4:]], breaks, 20)
    assert breaks([smallest])
    assert smallest.cuts == ()
    assert len(smallest.frames[0]) == 4 + 8
    assert shrink([culprit], lambda cases: False, 5) == [culprit]


@pytest.mark.parametrize(("acks", "expected"), [(0, Oracle.CORRELATION), (1, None), (-1, None)])
def test_a_response_to_acks_0_is_a_failure(acks: int, expected: Oracle | None) -> None:
    request = encode_request(ProduceRequest(acks=acks), 9, 7, "test")
    found_failure, _ = judge(request, encode_response(ProduceResponse(), 9, 7)[4:])
    assert (found_failure.oracle if found_failure is not None else None) == expected


def test_shrinking_stops_at_its_time_limit_and_returns_its_best_result() -> None:
    """A decompression bomb has hundreds of thousands of bytes; trying to remove each of them takes an hour."""
    cases, tried = [Case(0, 3, (with_size(bytes(1 << 20)),)), Case(0, 3, (with_size(bytes(1 << 20)),))], list[int]()

    def breaks(candidate: list[Case]) -> bool:
        tried.append(len(candidate))
        return True

    assert shrink(cases, breaks, 0) == cases
    assert not tried


def test_the_decode_error_of_a_request_does_not_depend_on_its_api() -> None:
    """Otherwise one cause would be several findings, and shrinking could change it."""
    rng = random.Random(SEED)
    sound = [with_size(sound_frame(rng, APIS[key], version, 1)[4:]) for key, version in ((20, 6), (31, 3), (61, 0))]
    countless = [with_size(frame[4:-1] + b"\xff\xff\xff\xff\x0f") for frame in sound]
    assert {decode_error_of(Case(0, 0, (frame,))) for frame in sound} == {""}
    assert {decode_error_of(Case(0, 0, (frame,))) for frame in countless} == {
        "# tagged fields do not fit into the remaining # bytes"
    }
    assert decode_error_of(Case(0, 0, (countless[0][:-30],))) not in {"", decode_error_of(Case(0, 0, (countless[0],)))}


def test_a_resumed_run_continues_the_previous_one(tmp_path: Path) -> None:
    with fake_broker(wrong_correlation_id) as address:
        first = fuzzed(address, tmp_path, findings=1)
        before = read_state(tmp_path)
        assert before is not None
        again = Session(FuzzTarget(address), tmp_path, SEED, Bounds(seconds=40, cases=300, deadline_s=0.5), resume=True)
        summary = again.run()
    after = read_state(tmp_path)
    assert after is not None
    assert (after.runs, after.cases) == (2, first["cases"] + summary["cases"])
    known = {(finding["oracle"], finding["api"], finding["version"]) for finding in first["findings"]}
    assert not known & {(finding["oracle"], finding["api"], finding["version"]) for finding in summary["findings"]}
    assert {tuple(row[:5]) for row in before.points} <= {tuple(row[:5]) for row in after.points}
    assert Corpus.read(tmp_path).frames
    shown = page(tmp_path, summary)
    assert shown.count("<line ") == len(after.findings) > 0
    assert all(finding["id"] in shown for finding in after.findings)
    assert "Lines of the reference" not in shown
    rows = [{"file": "reference/broker.py", "covered": 3, "all": 40}]
    assert "Lines of the reference: 3 of 40" in page(tmp_path, {**summary, "lines": {**rows[0], "fewest": rows}})


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_small_and_a_bounded_reader_survives_it(name: str) -> None:
    data = bomb(name)
    assert len(data) < 2 * MEGABYTE
    with pytest.raises(CompressionError):
        decode_records(data)


def test_a_process_is_found_by_its_port_and_its_memory_is_measured() -> None:
    with fake_broker(honest) as address:
        process = listening_process(address)
    assert process is not None
    assert process.pid == os.getpid()
    assert process.is_alive
    now, peak = process.memory()
    assert 0 < now <= peak
    assert process.sockets() >= 0
    assert not Process(2**22 + 1, None).is_alive
    assert Process(2**22 + 1, None).memory() == (0, 0)


@pytest.mark.parametrize(
    ("log", "place"),
    [
        ("panic: x\n\ngoroutine 4 [running]:\nruntime.gopanic()\n\t/usr/local/go/src/runtime/panic.go:88\n"
         "kfake.read()\n\t/mod/kfake@v0.0.1/client_conn.go:128 +0x4\n", "client_conn.go:128"),
        ("Traceback\n  File \"/a/b/one.py\", line 3, in f\n  File \"/a/b/two.py\", line 9, in g\nValueError: x\n",
         'two.py", line 9'),
        ("starting\npython: rdbuf.c:834: init: Assertion `r == 0' failed.\n",
         "python: rdbuf.c:834: init: Assertion `r == 0' failed."),
        ("", ""),
    ],
)  # fmt: skip
def test_the_place_of_a_crash_is_its_innermost_own_frame_or_its_last_log_line(log: str, place: str) -> None:
    assert place_of(log) == place


CRASHES_ON_WRONG_CORRELATION_ID = """
import os, socket, sys
host, port = sys.argv[1].rsplit(":", 1)
with socket.create_connection((host, int(port)), timeout=5) as line:
    for number in range(12):
        line.sendall(bytes.fromhex("0000000e00120000") + number.to_bytes(4, "big") + b"\\0\\4fuzz")
        answer = line.recv(1 << 16)
        sound = answer if number == 0 else sound
        if len(answer) == len(sound) and answer[4:8] != number.to_bytes(4, "big"):
            os.abort()
"""


SEED_OF_SIZE_AND_CORRELATION = 18
"""A seed that mutates the size field and the correlation id; only one of them is needed to crash the client."""


@pytest.mark.long
def test_a_client_that_crashes_on_a_mutated_response_is_found(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(CRASHES_ON_WRONG_CORRELATION_ID)
    client = ClientProcess(f"{sys.executable} {script} {{bootstrap}}", 60, 512)
    summary = ClientSession(client, tmp_path / "out", SEED_OF_SIZE_AND_CORRELATION, 300, runs=1).run()
    assert summary["spoiled"] == 2
    (found,) = summary["findings"]
    assert (found["oracle"], found["message"], found["reproduced"]) == (Oracle.ALIVE, "died of signal 6", True)
    (reply,) = served_by_file(found["path"]).replies
    assert len(reply.edits) == 1
    again = CliRunner().invoke(application("fuzz", "replay"), ["replay", found["path"], client.command])
    assert (again.exit_code, again.output) == (ExitCode.VIOLATED, "reproduced: alive: died of signal 6\n")
    with pytest.raises(UsageError, match="bootstrap"):
        CliRunner().invoke(
            application("fuzz", "replay"), ["replay", found["path"], "reference"], catch_exceptions=False
        )


def test_interrupted_runs_of_a_client_keep_their_findings_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(command: str, served: ServedReplies, oracle: Oracle, seconds: float) -> ServedReplies | None:
        raise KeyboardInterrupt

    script = tmp_path / "client.py"
    script.write_text(CRASHES_ON_WRONG_CORRELATION_ID)
    client = ClientProcess(f"{sys.executable} {script} {{bootstrap}}", 60, 512)
    monkeypatch.setattr("highwater.fuzz.wire.clients.session.minimise_replies", interrupted)
    first = ClientSession(client, tmp_path, SEED_OF_SIZE_AND_CORRELATION, 300, runs=1).run()
    assert (first["ended"], len(first["findings"])) == ("interrupted", 1)
    assert served_by_file(first["findings"][0]["path"]).replies
    again = ClientSession(client, tmp_path, SEED_OF_SIZE_AND_CORRELATION, 300, runs=2, resume=True).run()
    assert (again["cases"], again["cases_of_all_runs"]) == (2, 2), "the interrupted run is repeated"
    assert again["findings"] == [], "the finding is already known"
    state = read_client_state(tmp_path, client.command, resume=True)
    assert [finding["id"] for finding in state.findings] == [first["findings"][0]["id"]]
    with pytest.raises(UsageError, match="the runs to resume were of"):
        read_client_state(tmp_path, "another {bootstrap}", resume=True)
    (tmp_path / "client.json").write_text("{")
    with pytest.raises(UsageError, match="not the state of a client's runs"):
        read_client_state(tmp_path, client.command, resume=True)


def served_by_file(path: str) -> ServedReplies:
    served = read_finding(Path(path)).served
    assert served is not None
    return served


@given(before=st.binary(min_size=4, max_size=40), after=st.binary(max_size=40), size=st.none() | st.just(2**31 - 1))
def test_a_mutated_response_is_stored_as_edits(before: bytes, after: bytes, size: int | None) -> None:
    corrupt = with_size(after) if size is None else size.to_bytes(4, "big") + after
    reply = reply_of(SentRequest(), 0, "flip", with_size(before), corrupt)
    assert apply_edits(with_size(before), reply) == corrupt
    longer = apply_edits(with_size(before + b"more"), reply)
    assert longer[:4] == corrupt[:4] or size is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of TARGET"),
        (["reference", "--client", "x {bootstrap}"], "give one of TARGET"),
        (["192.0.2.1:9092"], "--i-own-this-host"),
        (["localhost:1"], "accepts no connection"),
        (["no-such-target"], "no such target"),
        (["--client", "true"], "{bootstrap}"),
        (["--self-test", "--defect", "NoSuchDefect"], "NoSuchDefect"),
        (["reference", "--defect", "SnappyBomb"], "--defect has no effect"),
        (["reference", "--seeds", "4"], "--seeds has no effect"),
        (["--self-test", "--cases", "4"], "--cases has no effect"),
        (["--client", "true {bootstrap}", "--rate", "4"], "--rate has no effect"),
    ],
)
def test_bad_input_is_rejected(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(application("fuzz", "replay"), ["fuzz", *arguments])
    assert isinstance(result.exception, UsageError), result.output
    assert message in str(result.exception)


def test_the_exit_code_of_replay_states_whether_the_failure_is_reproduced(tmp_path: Path) -> None:
    with fake_broker(wrong_correlation_id) as address:
        path = fuzzed(address, tmp_path, findings=1)["findings"][0]["path"]
    assert (Path(path).parent / "frames.bin").stat().st_size > 0
    finding = msgspec.json.decode(Path(path).read_bytes())
    assert finding["reproduced"]
    with pytest.raises(UsageError, match="not a finding"):
        CliRunner().invoke(
            application("fuzz", "replay"), ["replay", str(tmp_path / "none"), "reference"], catch_exceptions=False
        )
    corrupt = tmp_path / "corrupt.json"
    corrupt.write_text(Path(path).read_text().replace('"frames": [', '"frames": ["zz", '))
    with pytest.raises(UsageError, match="not a finding"):
        CliRunner().invoke(application("fuzz", "replay"), ["replay", str(corrupt), "reference"], catch_exceptions=False)
    result = CliRunner().invoke(application("fuzz", "replay"), ["replay", path, "reference"])
    assert result.exit_code == ExitCode.HELD, result.output


def test_a_finding_contains_no_home_directory(tmp_path: Path) -> None:
    """The log of a target may contain paths of the home directory, and findings are published."""
    checked = read_finding(Path(__file__).parent.parent / "checked/kfake/alive-key32767-v9-1")
    finding = msgspec.structs.replace(checked, log=f"panic at {Path.home()}/go/pkg/client.go:128")
    written = read_finding(write_finding(tmp_path, finding))
    assert written.log == "panic at ~/go/pkg/client.go:128"
    assert str(Path.home()) not in (tmp_path / finding.id / "README.md").read_text()

"""The wire fuzzer finds planted defects: a broker that hangs, crashes or sends wrong replies to certain requests."""

import random
import re
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from highwater.errors import UsageError
from highwater.fuzz.wire.examination.minimise import minimise_finding
from highwater.fuzz.wire.examination.triage import KILLS_MAX, Triage
from highwater.fuzz.wire.findings import read_finding
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.generate.mutators import MUTATORS
from highwater.fuzz.wire.generate.pool import Pool, sound_frame
from highwater.fuzz.wire.generate.requests import HARMFUL, generate
from highwater.fuzz.wire.generate.stream import TRANSPORTS, Stream
from highwater.fuzz.wire.oracles.responses import Failure, Oracle
from highwater.fuzz.wire.replay import Replay, replay_finding
from highwater.fuzz.wire.session import Bounds, Session
from highwater.fuzz.wire.steering.corpus import read_state
from highwater.fuzz.wire.target import FuzzTarget
from highwater.reference.wire.errors import DecodeError, EncodeError, ErrorCode
from highwater.reference.wire.framing import decode_request, encode_request, encode_response
from highwater.reference.wire.messages.metadata import (
    ApiVersion,
    ApiVersionsResponse,
    FindCoordinatorResponse,
    MetadataResponse,
    MetadataResponseTopic,
)
from highwater.reference.wire.registry import APIS

SEED = 7
SERVED = {3: (0, 9), 10: (0, 2), 18: (0, 0)}
COORDINATORS = (0, 1, 2)
API_VERSIONS, HEADER = 18, struct.Struct(">hhi")
RESPONSES: dict[int, Any] = {
    3: MetadataResponse(),
    10: FindCoordinatorResponse(),
    18: ApiVersionsResponse(
        api_keys=tuple(ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in SERVED.items())
    ),
}
Defect = Callable[
    [int, int, bytes, bytes], bytes | None
]  # key, version, request, correct response -> the response to send, or None to send nothing


class Died(Exception):
    """Raised by a defect to stop the fake broker."""


class Handler(socketserver.StreamRequestHandler):
    """A broker of three APIs: answers valid requests, closes on others; `server.defect` changes its responses."""

    server: "FakeBroker"

    def handle(self) -> None:
        while True:
            prefix = self.rfile.read(4)
            size = int.from_bytes(prefix, "big", signed=True)
            if len(prefix) < 4 or not 0 <= size <= 1 << 20:
                return
            frame = self.rfile.read(size)
            if len(frame) < size or not self._answer(frame):
                return

    def _answer(self, frame: bytes) -> bool:
        if len(frame) >= HEADER.size:
            key, version, number = HEADER.unpack_from(frame)
            if key == API_VERSIONS and version > SERVED[key][1]:  # the response says which versions there are (KIP-511)
                response = replace(RESPONSES[key], error_code=ErrorCode.UNSUPPORTED_VERSION)
                self.wfile.write(encode_response(response, 0, number))
                return True
        try:
            header, body = decode_request(frame)
        except DecodeError:
            return False
        first, last = SERVED.get(header.api_key, (1, 0))
        if not first <= header.api_version <= last:
            return False
        response = RESPONSES[header.api_key]
        if getattr(body, "key_type", 0) not in COORDINATORS:
            response = FindCoordinatorResponse(error_code=ErrorCode.INVALID_REQUEST)
        if isinstance(response, MetadataResponse):
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics = tuple(MetadataResponseTopic(name=topic.name, error_code=unknown) for topic in body.topics or ())
            response = replace(response, topics=topics)
        honest = encode_response(response, header.api_version, header.correlation_id)
        try:
            answer = self.server.defect(header.api_key, header.api_version, frame, honest)
        except Died:
            self.server.dead = True
            threading.Thread(target=self.server.shutdown, daemon=True).start()
            self.server.socket.close()
            return False
        if answer is not None:
            self.wfile.write(answer)
        return True


class FakeBroker(socketserver.ThreadingTCPServer):
    """A broker of three APIs with one planted defect."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128
    dead = False
    defect: Defect

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connections that the client closes."""


@contextmanager
def fake_broker(defect: Defect) -> Iterator[str]:
    server = FakeBroker(("127.0.0.1", 0), Handler)
    server.defect = defect
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        if not server.dead:
            server.shutdown()
        server.server_close()
        thread.join(5)


def honest(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
    return answer


def silent_on_metadata_4(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
    return None if (key, version) == (3, 4) else answer


def wrong_correlation_id(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
    return answer[:4] + bytes([answer[4] ^ 0x40]) + answer[5:] if key == 10 else answer


def cut_answer(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
    cut = answer[4:-1]
    return len(cut).to_bytes(4, "big") + cut if key == 3 else answer


def unknown_error_code(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
    if key != 10:
        return answer
    return encode_response(FindCoordinatorResponse(error_code=3_000), version, int.from_bytes(request[4:8], "big"))


def dies_of_a_group(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
    if key == 10 and b"fuzz-group-2" in request:
        raise Died
    return answer


@pytest.mark.parametrize(
    ("defect", "oracle"),
    [
        (silent_on_metadata_4, Oracle.DEADLINE),
        (wrong_correlation_id, Oracle.CORRELATION),
        (cut_answer, Oracle.DECODE),
        (unknown_error_code, Oracle.ERROR_CODE),
        (dies_of_a_group, Oracle.ALIVE),
    ],
)
def test_a_planted_defect_is_found(tmp_path: Path, defect: Defect, oracle: Oracle) -> None:
    with fake_broker(defect) as address:
        found = fuzzed(address, tmp_path, findings=1)
    assert [finding["oracle"] for finding in found["findings"]] == [oracle], f"seed {SEED}: {found}"
    assert read_finding(Path(found["findings"][0]["path"])).oracle is oracle


def fuzzed(address: str, folder: Path, **bounds: Any) -> dict[str, Any]:
    """Fuzz the broker and return the summary of the session."""
    return Session(FuzzTarget(address), folder, SEED, Bounds(**{"seconds": 40, "deadline_s": 0.5, **bounds})).run()


def test_a_correct_broker_has_no_findings(tmp_path: Path) -> None:
    with fake_broker(honest) as address:
        found = fuzzed(address, tmp_path, cases=2_000, deadline_s=5.0)
    assert found["findings"] == [], f"seed {SEED}"
    assert found["cases"] >= 2_000


def test_a_finding_is_replayed_and_minimised(tmp_path: Path) -> None:
    with fake_broker(wrong_correlation_id) as address:
        found = fuzzed(address, tmp_path, findings=1)
        finding = read_finding(Path(found["findings"][0]["path"]).parent)
        padded = msgspec.structs.replace(finding, steps=[finding.steps[0], *finding.steps])
        failure = replay_finding(FuzzTarget(address), padded)
        assert failure is not None
        assert failure.oracle is Oracle.CORRELATION
        smallest = minimise_finding(FuzzTarget(address), padded, tmp_path, 20)
        assert smallest is not None
        path, outcome = smallest
        before, after = map(int, re.findall(r"\d+", outcome))
        assert after < before
        assert len(read_finding(path).steps) == 1
    with fake_broker(honest) as address:
        assert replay_finding(FuzzTarget(address), finding) is None
        assert minimise_finding(FuzzTarget(address), finding, tmp_path, 20) is None


def test_the_same_seed_sends_the_same_frames() -> None:
    served = [(api, api.min_version, api.max_version) for api in APIS.values()]

    def cases() -> list[Case]:
        stream = Stream(str(SEED), served, 0.2)
        return [stream.next() for _ in range(3_000)]

    first = cases()
    assert first == cases()
    assert len({case.frames for case in first}) > 0.9 * len(first)
    assert {case.mutation.partition(" ")[0] for case in first} > {name.partition(" ")[0] for name in MUTATORS} - {
        "records"
    }
    assert {case.mutation for case in first} >= TRANSPORTS.keys()


@pytest.mark.parametrize("name", MUTATORS)
def test_a_mutator_changes_requests_of_every_api(name: str) -> None:
    pool = Pool(random.Random(SEED))
    for api in APIS.values():
        valid_requests = [pool.draw(api, version) for version in range(api.min_version, api.max_version + 1)]
        mutated = [MUTATORS[name](random.Random(n), valid) for valid in valid_requests for n in range(4)]
        honest = {valid.body for valid in valid_requests}
        assert any(case.frames[0][4:] not in honest for case in mutated), f"{name} {api.name}"


def test_a_mutation_that_kills_in_two_apis_is_avoided_in_all_apis() -> None:
    stream = Stream(str(SEED), [(api, api.min_version, api.max_version) for api in APIS.values()], 0.0)
    stream.avoid((3, "tags countless", "_tags"))
    assert any(case.mutation == "tags countless" for case in (stream.next() for _ in range(5_000)))
    stream.avoid((10, "tags countless", "topics._tags"))
    drawn = [stream.next() for _ in range(5_000)]
    assert not any(case.mutation == "tags countless" and case.field.endswith("_tags") for case in drawn)


def test_a_version_that_killed_the_target_too_often_is_no_longer_sent() -> None:
    stream = Stream(str(SEED), [(APIS[3], 0, 1)], 0.5)
    stream.left_alone.add((3, 1))
    assert {case.version for case in (stream.next() for _ in range(500)) if case.key == 3} & {0, 1} == {0}


class PanickedTarget(FuzzTarget):
    """A target that has logged a panic."""

    def log_text(self) -> str:
        return "panic: index out of range\n\n\thandlers.go:12\n"


def test_a_crash_at_a_known_place_needs_no_replay_and_its_version_is_excluded_after_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = Failure(Oracle.ALIVE, "is gone")
    bystander = Case(10, 2, (sound_frame(random.Random(SEED), APIS[10], 2, 1),))
    killers = [Case(3, version, (sound_frame(random.Random(SEED), APIS[3], version, 1),)) for version in range(7)]

    def run(self: Replay, cases: list[Case], oracle: Oracle | None = None) -> Failure | None:
        return died if any(case in killers for case in cases) else None

    monkeypatch.setattr(Replay, "run", run)
    with fake_broker(honest) as address:  # it was started again after each crash
        triage = Triage(PanickedTarget(address), tmp_path, SEED, "test", shrink_s=0)
        assert triage.confirm(died, [bystander, killers[0]], 1) is not None
        tries = triage.tries
        for killer in killers[1:]:
            assert triage.confirm(died, [killer, bystander], 2) is None
            assert triage.fatal_cases == [killer]
    assert triage.tries == tries
    assert triage.fatal_versions == {(3, killer.version) for killer in killers[KILLS_MAX:]}


def test_generated_requests_decode_in_every_version() -> None:
    rng, encoded = random.Random(SEED), 0
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            for _ in range(5):
                message = generate(rng, api, version)
                try:
                    frame = encode_request(message, version, 1, "c")
                except EncodeError:
                    continue
                encoded += 1
                assert decode_request(frame[4:])[1] == message
    assert encoded > 500


def test_apis_that_would_disturb_the_cluster_are_never_sent(tmp_path: Path) -> None:
    assert {4, 5, 6, 7} <= HARMFUL


def test_an_unreachable_target_is_rejected_with_its_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UsageError, match=f"127.0.0.1:{port}"):
        Session(FuzzTarget(f"127.0.0.1:{port}"), tmp_path, SEED).run()


def test_a_finding_that_is_being_minimised_during_an_interruption_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(cases: list[Case], breaks: object, seconds: float) -> list[Case]:
        raise KeyboardInterrupt

    monkeypatch.setattr("highwater.fuzz.wire.examination.triage.shrink", interrupted)
    with fake_broker(wrong_correlation_id) as address:
        outcome = fuzzed(address, tmp_path)
    assert outcome["ended"] == "interrupted"
    (found,) = outcome["findings"]
    assert read_finding(Path(found["path"])).reproduced
    state = read_state(tmp_path)
    assert state is not None
    assert [finding["id"] for finding in state.findings] == [found["id"]]

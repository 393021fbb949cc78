"""The wire fuzzer finds what is planted: a broker that hangs, lies or dies on certain requests."""

import random
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fuzz.wire.generators import HARMFUL, generate
from fuzz.wire.mutators import MUTATORS
from fuzz.wire.oracles import Oracle
from fuzz.wire.replay import minimise, read_finding, replay
from fuzz.wire.session import Session
from reference.wire.errors import DecodeError, EncodeError
from reference.wire.framing import decode_request, decode_request_header, encode_request, encode_response
from reference.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from reference.wire.messages.find_coordinator import FindCoordinatorResponse
from reference.wire.messages.metadata import MetadataResponse
from reference.wire.registry import APIS
from spec.formats.verdict import UsageError

SEED = 7
SERVED = {3: (0, 9), 10: (0, 2), 18: (0, 0)}
RESPONSES = {
    3: MetadataResponse(),
    10: FindCoordinatorResponse(),
    18: ApiVersionsResponse(
        api_keys=tuple(ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in SERVED.items())
    ),
}
Defect = Callable[
    [int, int, bytes, bytes], bytes | None
]  # key, version, request, honest answer -> answer, None: silence


class Died(Exception):
    pass


class Handler(socketserver.StreamRequestHandler):
    """A broker of three keys: answers what decodes, closes on the rest; `server.defect` spoils its answers."""

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
        try:
            header, _ = decode_request(frame)
        except DecodeError:
            return False
        first, last = SERVED.get(header.api_key, (1, 0))
        if not first <= header.api_version <= last:
            return False
        honest = encode_response(RESPONSES[header.api_key], header.api_version, header.correlation_id)
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
    allow_reuse_address = True
    daemon_threads = True
    dead = False
    defect: Defect

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that breaks is no news here."""


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
def test_a_planted_defect_is_found(
    tmp_path: Path, defect: Defect, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.wire.oracles.GRACE_S", 0.2)
    monkeypatch.setattr("fuzz.wire.session.MAX_FINDINGS", 1)
    with fake_broker(defect) as address:
        found = Session(address, tmp_path, SEED).run(20)
    assert [finding["oracle"] for finding in found["findings"]] == [oracle], f"seed {SEED}: {found}"
    assert read_finding(Path(found["findings"][0]["path"])).oracle is oracle


def test_an_honest_broker_has_no_findings(tmp_path: Path) -> None:
    with fake_broker(honest) as address:
        found = Session(address, tmp_path, SEED).run(1.5)
    assert found["findings"] == [], f"seed {SEED}"
    assert found["cases"] > 100


def test_a_finding_replays_and_shrinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.wire.session.MAX_FINDINGS", 1)
    with fake_broker(wrong_correlation_id) as address:
        found = Session(address, tmp_path, SEED).run(20)
        finding = read_finding(Path(found["findings"][0]["path"]))
        frames = [bytes.fromhex(frame) for frame in finding.frames]
        assert replay(frames, address).broken is Oracle.CORRELATION
        smaller = minimise([frames[0], *frames], address, finding.oracle)
        assert replay(smaller, address).broken is Oracle.CORRELATION
    assert len(smaller) == 1
    assert len(smaller[0]) <= len(frames[0])
    with fake_broker(honest) as address:
        assert replay(frames, address).broken is None


def test_the_same_seed_sends_the_same_frames() -> None:
    def frames() -> list[bytes]:
        chance, sent = random.Random(SEED), []
        for api in APIS.values():
            for version in range(api.min_version, api.max_version + 1):
                try:
                    sound = encode_request(generate(chance, api, version), version, 1, "c")
                except EncodeError:
                    continue
                _, header = decode_request_header(sound[4:])
                sent += [MUTATORS[name](chance, sound[4:], header, api, version) for name in MUTATORS]
        return sent

    first, second = frames(), frames()
    assert first == second
    assert len(first) > 1_000
    assert len(set(first)) > len(first) * 0.9


def test_sound_requests_decode_in_every_version() -> None:
    chance, encoded = random.Random(SEED), 0
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            for _ in range(5):
                message = generate(chance, api, version)
                try:
                    frame = encode_request(message, version, 1, "c")
                except EncodeError:
                    continue
                encoded += 1
                assert decode_request(frame[4:])[1] == message
    assert encoded > 500


def test_requests_that_would_harm_the_target_are_never_sent(tmp_path: Path) -> None:
    assert {4, 5, 6, 7} <= HARMFUL


def test_a_target_that_is_not_there_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UsageError, match=f"127.0.0.1:{port}"):
        Session(f"127.0.0.1:{port}", tmp_path, SEED).run(1)

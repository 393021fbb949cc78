"""The throughput of the wire fuzzer: slow and crashing cases are found soon."""

import random
import socket
import threading
import time
from collections import deque
from pathlib import Path
from unittest.mock import Mock

import pytest

from highwater.fuzz.tests.test_wire import SEED, fake_broker
from highwater.fuzz.wire.connection import unknown_versions
from highwater.fuzz.wire.engine import Engine, Hooks, TargetDown
from highwater.fuzz.wire.examination.triage import FAILED_SEARCHES_MAX, Triage
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.generate.pool import sound_frame
from highwater.fuzz.wire.generate.stream import Stream
from highwater.fuzz.wire.oracles.responses import Failure, Oracle, reply_timeout
from highwater.fuzz.wire.session import Bounds, Session
from highwater.fuzz.wire.target import FuzzTarget
from highwater.reference.wire.framing import encode_response
from highwater.reference.wire.messages.metadata import ApiVersion, ApiVersionsResponse
from highwater.reference.wire.registry import APIS

SLOWNESS_S = 1.0
RUN_LIMIT_S = 300.0
SEQUENCES_MIN = 12


def slow_on_long_names(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
    if key == 10 and len(request) > 30_000:
        time.sleep(SLOWNESS_S)
    return answer


def test_a_slow_mutation_is_found_and_not_sent_again(tmp_path: Path) -> None:
    def watch(session: Session) -> None:
        if session.summary()["avoided"]:
            session.totals.ended = "it is known"

    with fake_broker(slow_on_long_names) as address:
        summary = Session(FuzzTarget(address), tmp_path, SEED, Bounds(RUN_LIMIT_S, deadline_s=60)).run(watch)
    assert (summary["avoided"], summary["findings"]) == (["FindCoordinator text key"], []), f"seed {SEED}"


def test_pipelined_requests_are_also_suspects_of_a_crash() -> None:
    sent: list[Case] = []

    def next_case() -> Case:
        sent.append(Case(18, 0, (sound_frame(random.Random(SEED), APIS[18], 0, len(sent)),)))
        return sent[-1]

    def read_and_die(server: socket.socket) -> None:
        with server, server.accept()[0] as first:
            first.recv(1 << 16)

    server = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"
    thread = threading.Thread(target=read_and_die, args=(server,))
    thread.start()
    engine = Engine(address, Hooks(next_case, lambda case, outcome, size: None, lambda failure, case, sent: None))
    try:
        with pytest.raises(TargetDown) as down:
            engine.run(RUN_LIMIT_S, len(APIS) * 1_000)
    finally:
        engine.close()
        thread.join()
    known = {id(case) for case in down.value.suspects}
    assert {id(case) for case in sent} <= known
    assert len(known) == len(down.value.suspects)


def test_what_waits_for_a_response_is_the_first_suspect_of_silence() -> None:
    """Of a crash, it is what closed its connection."""
    closed, waits = Case(3, 0, (bytes(12),)), Case(18, 0, (bytes(12),))
    engine = object.__new__(Engine)
    engine._closed_heads, engine._behind_closed, engine._recent = deque([closed]), deque(), deque()
    engine._connections = {1: Mock(pending=deque([Mock(case=waits)]))}
    assert engine.suspects() == [closed, waits]
    assert engine.suspects(is_silent=True) == [waits, closed]


class CountingTriage(Triage):
    """Triage of a target that fails only for `culprit`; counts the attempts."""

    culprit: Case | None = None

    def breaks(self, cases: list[Case], oracle: Oracle) -> bool:
        self.tries += 1
        return any(case is self.culprit for case in cases)


@pytest.mark.parametrize("place", [0, 3, 499])
def test_the_case_that_exhausts_memory_is_found_by_bisection(place: int, tmp_path: Path) -> None:
    triage = CountingTriage(FuzzTarget("127.0.0.1:1"), tmp_path, SEED, "test")
    suspects = [Case(3, version, (bytes(12),)) for version in range(500)]
    triage.culprit = suspects[place]
    assert triage._find_cause(Oracle.MEMORY, suspects) == [suspects[place]]
    assert triage.tries < 25
    triage.culprit, triage.tries = None, 0
    for _ in range(FAILED_SEARCHES_MAX + 5):
        assert triage._find_cause(Oracle.MEMORY, suspects) == []
    assert triage.tries == FAILED_SEARCHES_MAX, "a failed search costs seconds"


def test_mutations_that_change_arbitrary_bytes_are_never_avoided() -> None:
    stream = Stream(str(SEED), [(APIS[3], 0, 12)], 0.5)
    for mutation in ("none", "flip", "cut"):
        stream.avoid((3, mutation, ""))
    assert {"none", "flip", "cut"} <= {stream.next().mutation for _ in range(3_000)}


@pytest.mark.parametrize(
    ("oracle", "one", "other"),
    [
        (Oracle.DECODE, "A v1: B version 1: 'utf-8' codec can't decode byte 0xee in position 8: invalid start byte",
         "C v2: D version 2: 'utf-8' codec can't decode byte 0x3f in position 0: unexpected end of data"),
        (Oracle.CORRELATION, "A v0: an answer to acks 0, which wants none",
         "A v9: an answer to acks 0, which wants none"),
        (Oracle.DEADLINE, "neither answered nor closed within 5 s", "neither answered nor closed within 3 s"),
    ],
)  # fmt: skip
def test_one_cause_has_one_kind_in_every_api_and_version(oracle: Oracle, one: str, other: str, tmp_path: Path) -> None:
    triage = Triage(FuzzTarget("127.0.0.1:1"), tmp_path, SEED, "test")
    cases = [Case(18, version, (sound_frame(random.Random(SEED), APIS[18], version, 1),)) for version in (0, 3)]
    kinds = {triage._kind(Failure(oracle, message), case) for message, case in zip((one, other), cases, strict=True)}
    assert len(kinds) == 1, kinds


def test_a_truncated_fetch_with_a_long_wait_may_get_no_response() -> None:
    """A broker that reads a negative count as null may wait; kfake does."""
    frame = bytes.fromhex("0000002100010005000000010000ffffffff7761746500000001000003e80000ffff0000000000")
    assert reply_timeout(frame, 5.0).silent_ok
    short_wait = frame[:18] + (50).to_bytes(4, "big") + frame[22:]
    assert not reply_timeout(short_wait, 5.0).silent_ok


def test_versions_that_the_registry_does_not_know_are_not_sent(tmp_path: Path) -> None:
    def advertises_newer_versions(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
        if key != 18:
            return answer
        ranges = tuple(ApiVersion(api_key=key, min_version=0, max_version=99) for key in (3, 10, 18))
        return encode_response(ApiVersionsResponse(api_keys=ranges), version, int.from_bytes(request[4:8], "big"))

    with fake_broker(advertises_newer_versions) as address:
        newer = unknown_versions(address)
        session = Session(FuzzTarget(address), tmp_path, SEED, Bounds(0.1))
    assert {version for key, version in newer if key == 3} == set(range(APIS[3].max_version + 1, 100))
    assert newer <= session._stream.left_alone

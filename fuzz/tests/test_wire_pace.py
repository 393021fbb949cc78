"""How the wire fuzzer keeps its pace: who brings the target down or to a crawl is found soon, and plays run abreast."""

import random
import socket
import threading
import time
from pathlib import Path

import pytest

from highwater.conformance.targets.reference import ReferenceTarget
from highwater.fuzz.tests.test_wire import SEED, fake_broker
from highwater.fuzz.wire.connection import advertised, newer_than_ours
from highwater.fuzz.wire.engine import Engine, Hooks, TargetDown
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.generate.pool import sound_frame
from highwater.fuzz.wire.generate.stream import Stream
from highwater.fuzz.wire.oracles import Broken, Oracle, patience
from highwater.fuzz.wire.sequences.context import Abandoned, Stage
from highwater.fuzz.wire.sequences.run import Lanes, spoken
from highwater.fuzz.wire.session import Bounds, Session
from highwater.fuzz.wire.target import Lab
from highwater.fuzz.wire.triage import VAIN_MAX, Inquest
from highwater.reference.wire.framing import encode_response
from highwater.reference.wire.messages.metadata import ApiVersion, ApiVersionsResponse
from highwater.reference.wire.registry import APIS

SLOWNESS_S = 1.0
WHOLE_RUN_S = 300.0
ENOUGH = 40


def crawls_on_long_names(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
    if key == 10 and len(request) > 30_000:
        time.sleep(SLOWNESS_S)
    return answer


def test_what_keeps_the_target_busy_is_found_and_not_sent_again(tmp_path: Path) -> None:
    def watch(session: Session) -> None:
        if session.summary()["avoided"]:
            session.totals.ended = "it is known"

    with fake_broker(crawls_on_long_names) as address:
        told = Session(Lab(address), tmp_path, SEED, Bounds(WHOLE_RUN_S, deadline_s=60)).run(watch)
    assert (told["avoided"], told["findings"]) == (["FindCoordinator text key"], []), f"seed {SEED}"


def test_what_was_sent_behind_the_head_is_suspected_of_a_crash_as_well() -> None:
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
    engine = Engine(address, Hooks(next_case, lambda case, came: None, lambda broken, case, sent: None))
    try:
        with pytest.raises(TargetDown) as down:
            engine.run(WHOLE_RUN_S, len(APIS) * 1_000)
    finally:
        engine.close()
        thread.join()
    known = {id(case) for case in down.value.suspects}
    assert {id(case) for case in sent} <= known
    assert len(known) == len(down.value.suspects)


class Counting(Inquest):
    """Of a target that only `culprit` breaks; it counts how often it was asked."""

    culprit: Case | None = None

    def breaks(self, cases: list[Case], oracle: Oracle) -> bool:
        self.tries += 1
        return any(case is self.culprit for case in cases)


@pytest.mark.parametrize("place", [0, 3, 499])
def test_who_took_the_memory_is_found_by_halves(place: int, tmp_path: Path) -> None:
    inquest = Counting(Lab("127.0.0.1:1"), tmp_path, SEED, "test")
    suspects = [Case(3, version, (bytes(12),)) for version in range(500)]
    inquest.culprit = suspects[place]
    assert inquest._culprits(Oracle.MEMORY, suspects) == [suspects[place]]
    assert inquest.tries < 25
    inquest.culprit, inquest.tries = None, 0
    for _ in range(VAIN_MAX + 5):
        assert inquest._culprits(Oracle.MEMORY, suspects) == []
    assert inquest.tries == VAIN_MAX, "a search in vain costs seconds"


def test_what_may_hit_anything_is_never_avoided_for_what_it_hit_once() -> None:
    stream = Stream(str(SEED), [(APIS[3], 0, 12)], 0.5)
    for mutation in ("none", "flip", "cut"):
        stream.avoid((3, mutation, ""))
    assert {"none", "flip", "cut"} <= {stream.next().mutation for _ in range(3_000)}


def test_plays_run_abreast_and_do_not_touch_what_is_anothers() -> None:
    target = ReferenceTarget(1)
    try:
        served, names = spoken(advertised(target.bootstrap)), iter(range(1_000_000))
        lanes = Lanes(served, lambda: f"log:{next(names):x}")
        finished = 0
        while finished < ENOUGH:
            played = lanes.play(target.bootstrap, time.monotonic() + 0.5)
            assert [(name, str(each.violation)) for name, each in played if each.violation is not None] == []
            finished += sum(each.finished for _, each in played)
    finally:
        target.close()


def test_a_claim_is_given_back_at_the_end() -> None:
    claims: dict[str, Stage] = {}
    first, second = (Stage("", {}, random.Random(SEED), claims=claims) for _ in range(2))
    first.claim("a")
    first.claim("a")
    with pytest.raises(Abandoned, match="another play is at a"):
        second.claim("a")
    first.close()
    second.claim("a")
    assert claims == {"a": second}


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
def test_one_cause_is_one_kind_in_whatever_api_and_version_it_shows(
    oracle: Oracle, one: str, other: str, tmp_path: Path
) -> None:
    inquest = Inquest(Lab("127.0.0.1:1"), tmp_path, SEED, "test")
    cases = [Case(18, version, (sound_frame(random.Random(SEED), APIS[18], version, 1),)) for version in (0, 3)]
    kinds = {inquest._kind(Broken(oracle, told), case) for told, case in zip((one, other), cases, strict=True)}
    assert len(kinds) == 1, kinds


def test_a_fetch_that_breaks_off_behind_a_long_wait_may_be_silent() -> None:
    """A reader that takes a negative count for null goes on to wait: kfake does."""
    frame = bytes.fromhex("0000002100010005000000010000ffffffff7761746500000001000003e80000ffff0000000000")
    assert patience(frame, 5.0).silent_ok
    hurried = frame[:18] + (50).to_bytes(4, "big") + frame[22:]
    assert not patience(hurried, 5.0).silent_ok


def test_versions_that_our_table_does_not_know_are_left_alone(tmp_path: Path) -> None:
    def speaks_of_tomorrow(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
        if key != 18:
            return answer
        told = tuple(ApiVersion(api_key=each, min_version=0, max_version=99) for each in (3, 10, 18))
        return encode_response(ApiVersionsResponse(api_keys=told), version, int.from_bytes(request[4:8], "big"))

    with fake_broker(speaks_of_tomorrow) as address:
        newer = newer_than_ours(address)
        session = Session(Lab(address), tmp_path, SEED, Bounds(0.1))
    assert {version for key, version in newer if key == 3} == set(range(APIS[3].max_version + 1, 100))
    assert newer <= session._stream.left_alone

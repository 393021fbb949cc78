"""What steers the fuzzer: values that the target returned, and the counters of a Go target."""

import random
import shutil
import socket
import struct
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from highwater.fuzz.wire.command_line import open_target
from highwater.fuzz.wire.generate.pool import Pool
from highwater.fuzz.wire.generate.requests import NEWER_GROUPS, generate
from highwater.fuzz.wire.generate.response_values import KEPT, ResponseValues
from highwater.fuzz.wire.session import Bounds, Session
from highwater.fuzz.wire.steering.go_counters import Counters, executed_units, line_report
from highwater.fuzz.wire.steering.line_coverage import count_lines, lines_summary
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from highwater.reference.wire.messages.groups import JoinGroupResponse
from highwater.reference.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from highwater.reference.wire.registry import APIS
from highwater.reference.wire.schema import message_layout

SEED = 5
TOPIC_ID = bytes(range(1, 17))
FETCH, HEARTBEAT, METADATA = 1, 12, 3


def values_from(*messages: tuple[Any, int]) -> ResponseValues:
    returned = ResponseValues()
    for message, version in messages:
        returned.note(key_of(message), message_layout(type(message), version), message)
    return returned


def key_of(message: Any) -> int:
    return next(api.key for api in APIS.values() if api.response is type(message))


def values_of(key: int, version: int, returned: ResponseValues | None, name: str) -> set[Any]:
    """Return the values of a field, also of nested ones, in a hundred requests."""
    rng = random.Random(SEED)
    found: set[Any] = set()

    def collect(value: Any) -> None:
        for each in value if isinstance(value, tuple) else ():
            collect(each)
        for field in getattr(value, "__dataclass_fields__", ()):
            if field == name:
                found.add(getattr(value, field))
            collect(getattr(value, field))

    for _ in range(100):
        collect(generate(rng, APIS[key], version, returned))
    return found


def test_ids_of_responses_return_in_requests() -> None:
    topic = MetadataResponseTopic(error_code=0, name="t", topic_id=TOPIC_ID, is_internal=False, partitions=())
    returned = values_from((MetadataResponse(topics=(topic,)), 12))
    assert TOPIC_ID in values_of(FETCH, 13, returned, "topic_id")
    assert TOPIC_ID not in values_of(FETCH, 13, None, "topic_id")


def test_one_thing_has_several_names() -> None:
    joined = JoinGroupResponse(generation_id=41, member_id="m-1", leader="m-1", members=())
    returned = values_from((joined, 5))
    assert "m-1" in values_of(HEARTBEAT, 3, returned, "member_id")
    assert 41 in values_of(8, 9, returned, "generation_id_or_member_epoch"), "a generation is a member epoch"


def test_values_of_the_same_api_come_first() -> None:
    joined = JoinGroupResponse(generation_id=1, member_id="classic", leader="", members=())
    beat = ConsumerGroupHeartbeatResponse(error_code=0, member_id="consumer", member_epoch=7, heartbeat_interval_ms=5)
    returned, rng = values_from((joined, 5), (beat, 1)), random.Random(SEED)
    drawn = [returned.draw(rng, 68, "member_id", "string") for _ in range(1_000)]
    assert set(drawn) == {"classic", "consumer"}
    assert drawn.count("consumer") > 700


def test_only_the_newest_values_are_kept_and_empty_ones_never() -> None:
    replies = [JoinGroupResponse(generation_id=n, member_id=f"m-{n}", leader="", members=()) for n in range(100)]
    returned, rng = values_from(*((reply, 5) for reply in replies)), random.Random(SEED)
    drawn = {returned.draw(rng, HEARTBEAT, "member_id", "string") for _ in range(1_000)}
    assert drawn == {f"m-{n}" for n in range(100 - KEPT, 100)}
    assert returned.draw(rng, HEARTBEAT, "leader", "string") is None


def test_each_rewarded_group_is_drawn_equally_often() -> None:
    pool = Pool(random.Random(SEED))
    frames = [encode_request(MetadataRequest(topics=()), version, 1, "c")[4:] for version in range(1, 9)]
    pool.reward((APIS[METADATA], version, frame) for version, frame in enumerate(frames[:7], 1))
    pool.reward([(APIS[METADATA], 8, frames[7])])
    pool.reward([(APIS[METADATA], 8, b"no request")])  # does not decode, so no group
    drawn = [request.version for _ in range(2_000) if (request := pool.draw_novel()) is not None]
    assert set(drawn) == set(range(1, 9))
    assert 0.4 < drawn.count(8) / len(drawn) < 0.6


def counter_file(*functions: tuple[int, int, list[int]]) -> bytes:
    """Return a counter file: package and number of each function, and its counters."""
    tables = b"abcde"
    body = b"".join(
        b"".join(map(uvarint, (len(counters), package, function, *counters)))
        for package, function, counters in functions
    )
    header = bytes(32) + struct.pack("<QII", len(functions), 3, 2)
    return header + tables + bytes(-len(tables) % 4) + body + bytes(16)


def uvarint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def test_counters_that_are_not_zero_are_executed() -> None:
    data = counter_file((1, 700, [0, 5, 300]), (2, 3, [0]), (2, 4, [1]))
    assert executed_units(data) == {(1, 700, 1), (1, 700, 2), (2, 4, 0)}
    assert executed_units(counter_file()) == set()


def test_lines_of_a_profile() -> None:
    profile = """mode: atomic
module/pkg/a.go:3.1,5.2 2 1
module/pkg/a.go:5.2,9.1 3 0
module/pkg/b.go:1.1,2.1 1 0
module/pkg/b.go:9.1,9.5 0 7
highwater/kfake/main.go:1.1,50.1 9 1
"""
    report = line_report(profile)
    assert (report["covered"], report["all"]) == (3, 9)
    assert [(row["file"], row["covered"], row["missing"]) for row in report["files"]] == [
        ("b.go", 0, [1, 2]),
        ("a.go", 3, [6, 7, 8, 9]),
    ]


@pytest.mark.parametrize("key", sorted(NEWER_GROUPS))
def test_a_group_of_each_type_is_named(key: int) -> None:
    api = APIS[key]
    names = values_of(key, api.max_version, None, "group_id") | set().union(
        *(ids for ids in values_of(key, api.max_version, None, "group_ids") if ids is not None)
    )
    assert set(NEWER_GROUPS[key]) <= names


class CounterServer:
    """Answers like a process with counters: the given answers in turn; None is no answer."""

    def __init__(self, path: Path, answers: list[bytes | None]) -> None:
        self._answers, self._listener = answers, socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while self._answers:
            connection, _ = self._listener.accept()
            with connection:
                while self._answers and connection.recv(1):
                    answer = self._answers.pop(0)
                    if answer is None:
                        break
                    connection.sendall(len(answer).to_bytes(4, "big") + answer)

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


def test_counters_are_read_again_after_a_process_was_silent_or_replaced(tmp_path: Path) -> None:
    first, more, other = (
        counter_file((1, 1, [1, 0])),
        counter_file((1, 1, [2, 1])),
        counter_file((1, 1, [1]), (9, 9, [4])),
    )
    counters = Counters(tmp_path)
    assert counters.new_units(5) == 0, "no such process"
    server = CounterServer(tmp_path / "5.sock", [first, b"", None, more])
    assert [counters.new_units(5) for _ in range(4)] == [1, 0, 0, 1]
    server.close()
    another = CounterServer(tmp_path / "6.sock", [other])
    assert counters.new_units(6) == 1, "only what no process had executed"
    assert counters.readings == 4
    counters.close()
    another.close()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("go") is None, reason="Go builds kfake")
def test_counters_of_kfake_are_read_while_it_runs_and_after_it_was_killed(tmp_path: Path) -> None:
    with count_lines("kfake", tmp_path) as counters, open_target("kfake") as target:
        assert counters is not None
        session = Session(target, tmp_path / "out", SEED, Bounds(cases=400, seconds=60), counters=counters)
        session.run()
        assert target.process is not None
        pid = target.process.pid
        target.restart()
        assert target.process.pid != pid, "the process was killed and another one started"
        assert session.summary()["guidance"]["readings"] > 10
        assert session.summary()["guidance"]["rewarded"] > 0
        with closing(Counters(tmp_path / "lines")) as other:
            assert other.new_units(target.process.pid) > 100, "a new reader finds all"
    summary = lines_summary(tmp_path)
    assert 2_000 < summary["covered"] < summary["all"]
    assert msgspec.json.decode((tmp_path / "lines.json").read_bytes())["files"]

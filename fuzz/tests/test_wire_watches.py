"""The oracles over a whole run, and the confirmation in the background: leaks, stalls, changed state."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from highwater.conformance.targets.reference import ReferenceTarget
from highwater.fuzz.tests.test_wire import fake_broker, honest
from highwater.fuzz.wire.connection import connect
from highwater.fuzz.wire.examination import triage as triage_module
from highwater.fuzz.wire.examination.confirmation import ALIKE_MAX, Confirmation
from highwater.fuzz.wire.examination.triage import Triage
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.generate.pool import sound_frame
from highwater.fuzz.wire.oracles.freed_memory import COMMITS_MAX, use_freed_memory
from highwater.fuzz.wire.oracles.leaks import (
    GROUP_EVERY_S,
    GROUP_KINDS,
    GROWTH_MB,
    OF_SIZE,
    READ_BLOCKS,
    READ_WARM_UP,
    READS_AT_ONCE,
    READS_FIRST_S,
    READS_PAUSE_S,
    READS_SHARE,
    LeakWatch,
    kind_of,
    kind_of_read,
    outcome_class,
    seems_to_keep,
    slope,
    slope_of_read,
)
from highwater.fuzz.wire.oracles.responses import Failure, Oracle
from highwater.fuzz.wire.oracles.stalls import StallWatch, idle_limit
from highwater.fuzz.wire.oracles.states import StateWatch, difference, snapshot
from highwater.fuzz.wire.replay import prepare, stall_of
from highwater.fuzz.wire.self_test import run_defect
from highwater.fuzz.wire.target import FuzzTarget
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.registry import APIS

SEED = 5
MEGABYTE = 1 << 20
GIVE_UP_S = 60.0


def case_of(key: int, version: int = 0) -> Case:
    return Case(key, version, (sound_frame(random.Random(SEED), APIS[key], version, 1),))


class Memory:
    """A process that keeps `kept` bytes for each request of one API, and grows by garbage that is collected."""

    def __init__(self, kept: int, key: int = 12) -> None:
        self.bytes, self.kept, self.key, self.sent = 100 * MEGABYTE, kept, key, 0

    def send(self, cases: list[Case]) -> None:
        self.sent += len(cases)
        self.bytes += self.kept * sum(case.key == self.key for case in cases)

    def garbage(self) -> int:
        return self.bytes + self.sent % 7 * MEGABYTE


def test_a_slope_is_reported_only_for_what_every_block_keeps() -> None:
    assert slope_of(Memory(40 * 1024), case_of(12)) == pytest.approx(40 * 1024)
    assert slope_of(Memory(1024), case_of(12)) is None, "stored data of the size of a request"
    assert slope_of(Memory(40 * 1024), case_of(3)) is None, "another API leaks"


def test_a_slope_ignores_what_is_allocated_once() -> None:
    memory = Memory(0)
    sizes = iter([100 * MEGABYTE] * 12 + [180 * MEGABYTE] * 1_000)
    assert slope(lambda: next(sizes), memory.send, [case_of(12)]) is None


def slope_of(memory: Memory, case: Case) -> float | None:
    return slope(lambda: memory.bytes, memory.send, [case])


def test_one_kind_of_a_group_shows_although_the_others_keep_nothing() -> None:
    memory, cases = Memory(40 * 1024), [case_of(key) for key in (3, 10, 12, 18)]
    assert slope(lambda: memory.bytes, memory.send, cases, kinds=4) == pytest.approx(10 * 1024)
    memory = Memory(1024)
    assert slope(lambda: memory.bytes, memory.send, cases, kinds=4) is None


class RepliesById(Memory):
    """A process that caches each reply by its request, with the correlation id."""

    def send(self, cases: list[Case]) -> None:
        self.seen: set[bytes] = getattr(self, "seen", set()) | {case.frames[-1] for case in cases}
        self.bytes = 100 * MEGABYTE + self.kept * len(self.seen)


def test_a_repeated_request_has_a_new_correlation_id() -> None:
    memory = RepliesById(40 * 1024)
    assert slope(lambda: memory.bytes, memory.send, [case_of(3)]) == pytest.approx(40 * 1024)


def test_frames_with_a_wrong_size_are_one_kind_for_all_apis() -> None:
    (frame,) = case_of(3).frames
    too_long = Case(3, 0, (b"\xff\xff\xff\xff" + frame[4:],))
    assert kind_of(too_long, "closed") == kind_of(replace(too_long, key=18), "closed") == (OF_SIZE, "closed")
    assert kind_of(case_of(3), "closed") == (3, "closed")


KEYS = (3, 10, 12, 18, 22, 32, 37, 42, 60)


def warm_watch(memory: Memory) -> LeakWatch:
    watch = LeakWatch()
    for key in KEYS:
        watch.note(case_of(key), (0,))
    for turn in range(10):
        watch.sample(memory.garbage(), float(turn))
    return watch


def test_every_kind_is_sent_in_a_group_after_a_while() -> None:
    watch = warm_watch(Memory(0))
    first = watch.next_group(10.0)
    assert len(first) == GROUP_KINDS
    assert "0 of 9 kinds" in watch.report(), "it was chosen, not sent"
    watch.sent(first)
    assert not watch.next_group(10.1)
    for turn in range(1, 3):
        watch.sent(watch.next_group(10.0 + turn * GROUP_EVERY_S))
    assert "9 of 9 kinds" in watch.report()


def test_groups_follow_each_other_while_the_memory_grows() -> None:
    memory = Memory(0)
    watch = warm_watch(memory)
    memory.bytes += 2 * GROWTH_MB * MEGABYTE
    for turn in range(10, 20):
        watch.sample(memory.bytes, float(turn))
    sizes = []
    for _ in range(4):
        group = watch.next_group(20.0)
        watch.sent(group)
        sizes.append(len(group))
    assert sizes == [4, 4, 4, 0], "no pause until all nine kinds were sent once"


def test_garbage_is_no_growth() -> None:
    watch, memory = LeakWatch(), Memory(0)
    for turn in range(200):
        memory.sent += turn % 13
        watch.sample(memory.garbage(), float(turn))
    assert watch.grown_mb == 0


def test_a_jvm_is_reported_as_not_covered() -> None:
    watch = LeakWatch("the heap of a JVM grows up to its limit whatever is sent")
    watch.sample(MEGABYTE, 0.0)
    assert not watch.next_group(9.0)
    assert watch.report().startswith("not covered: ")


class Cache(Memory):
    """A process that keeps 1,400 bytes for each of the first 1,000 requests, as a broker does for fetch sessions."""

    def send(self, cases: list[Case]) -> None:
        self.bytes += 1_400 * max(0, min(len(cases), 1_000 - self.sent))
        self.sent += len(cases)


class Collected(Memory):
    """A process whose garbage is collected once it has grown by 6 MB."""

    def send(self, cases: list[Case]) -> None:
        self.sent += len(cases)
        self.bytes = 100 * MEGABYTE + self.sent * 1_100 % (6 * MEGABYTE)


def test_a_kilobyte_that_every_read_keeps_is_found() -> None:
    memory, read = Memory(1_024, key=3), case_of(3)
    assert seems_to_keep(lambda: memory.bytes, memory.send, read)
    assert slope_of_read(lambda: memory.bytes, memory.send, [read]) == pytest.approx(1_024)
    other = Memory(1_024, key=2)
    assert not seems_to_keep(lambda: other.bytes, other.send, read)


@pytest.mark.parametrize("kind", [Cache, Collected])
def test_what_is_bounded_is_no_leak_of_a_read(kind: type[Memory]) -> None:
    memory, read = kind(0), case_of(1, 7)
    assert seems_to_keep(lambda: memory.bytes, memory.send, read), "some hundred requests do not show the bound"
    assert slope_of_read(lambda: memory.bytes, memory.send, [read]) is None


def test_a_large_leak_of_a_read_does_not_fill_the_machine() -> None:
    memory = Memory(MEGABYTE, key=3)
    assert slope_of_read(lambda: memory.bytes, memory.send, [case_of(3)]) is not None
    assert memory.sent < 50 * (1 + len(READ_BLOCKS)) < READ_WARM_UP


@pytest.mark.parametrize(
    ("key", "version", "outcome", "expected"),
    [
        (3, 1, (0,), (3, "ok")), (32, 1, (0, 3), (32, "error")), (3, 1, "closed", None), (19, 1, (0,), None),
        (1, 4, (0,), (1, "ok")),
    ],
)  # fmt: skip
def test_only_answered_requests_that_read_are_sent_alone(
    key: int, version: int, outcome: tuple[int, ...] | str, expected: tuple[int, str] | None
) -> None:
    assert kind_of_read(case_of(key, version), outcome) == expected


def test_a_fetch_that_begins_a_session_is_a_kind_of_its_own() -> None:
    frames = [encode_request(FetchRequest(session_epoch=epoch), 7, 1, "") for epoch in (-1, 0, 1)]
    kinds = [kind_of_read(Case(1, 7, (frame,)), (0,)) for frame in frames]
    assert kinds == [(1, "ok"), (1, "ok, new session"), (1, "ok")]


def test_reads_are_sent_alone_those_first_that_were_not_sent_yet() -> None:
    watch = LeakWatch()
    for key in (3, 10, 18):
        for _ in range(2):
            watch.note(case_of(key), (0,))
    assert not watch.next_reads(0.0), "too early"
    first = watch.next_reads(READS_FIRST_S)
    assert {key: len(cases) for (key, _), cases in first.items()} == {3: 2, 10: 2, 18: 2}
    watch.sent_alone(first, READS_FIRST_S, now := READS_FIRST_S + 1.0)
    for version in range(READS_AT_ONCE):
        for key in (3, 32, 60):
            watch.note(case_of(key, version % 2), (0,))
    assert not watch.next_reads(now + READS_PAUSE_S / 2), "too often"
    watch.restarted()
    second = watch.next_reads(now + READS_PAUSE_S)
    assert list(second)[:2] == [(32, "ok"), (60, "ok")]
    assert sum(map(len, second.values())) <= READS_AT_ONCE
    assert "3 of 5 kinds that only read" in watch.report()
    watch.sent_alone(second, now, now + 60.0)
    assert not watch.next_reads(now + 60.0 + 60.0), f"one in {READS_SHARE} seconds"


def test_kinds_that_were_sent_alone_are_the_last_in_groups() -> None:
    watch = warm_watch(Memory(0))
    reads = {(key, "ok"): [case_of(key)] for key in (3, 10, 12, 18, 32, 60)}
    watch.sent_alone(reads, 0.0, 1.0)
    assert set(watch.next_group(10.0)) - reads.keys() == {(22, "ok"), (37, "ok"), (42, "ok")}


def test_freed_memory_is_used_until_commits_grow_the_memory() -> None:
    target = ReferenceTarget(1)
    try:
        fuzz_target = FuzzTarget(target.bootstrap, target, "reference")
        prepare(target.bootstrap)
        with connect(target.bootstrap) as connection:
            assert use_freed_memory(connection, fuzz_target.memory)
            sizes = iter([0] * COMMITS_MAX)
            assert not use_freed_memory(connection, lambda: next(sizes)), "a process that does not grow"
    finally:
        target.close()


@pytest.mark.parametrize(("outcome", "expected"), [("closed", "closed"), ((0,), "ok"), ((), "ok"), ((0, 3), "error")])
def test_outcomes_have_four_classes(outcome: tuple[int, ...] | str, expected: str) -> None:
    assert outcome_class(outcome) == expected


def test_a_stall_is_reported_once_while_it_lasts() -> None:
    stalled, may_answer, stall_is_known = threading.Event(), threading.Event(), threading.Event()

    def blocks_once_stalled(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
        if stalled.is_set():
            may_answer.wait(GIVE_UP_S)
        return answer

    with fake_broker(blocks_once_stalled) as address:
        limit_s = 0.2
        with StallWatch(address, limit_s, on_stall=lambda waited_s: stall_is_known.set()) as watch:
            watch.wait_for_probe()
            assert watch.stalls == 0
            stalled.set()
            assert stall_is_known.wait(GIVE_UP_S)
            assert watch.stalled_s > limit_s
            stalled.clear()
            may_answer.set()
        assert watch.stalls == 1
        assert watch.stalled_s == 0
        assert watch.longest_s > limit_s


def test_time_without_a_processor_is_no_stall() -> None:
    def starved(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
        threading.Event().wait(0.4)
        return answer

    runnable = iter(range(1_000_000))
    with fake_broker(starved) as address, StallWatch(address, 0.1, lambda: float(next(runnable))) as watch:
        watch.wait_for_probe()
    assert watch.stalls == 0


def test_the_limit_is_above_what_the_idle_broker_needs() -> None:
    with fake_broker(honest) as address:
        assert idle_limit(address) >= 1.0


def test_the_state_differs_after_a_change_and_not_after_a_refusal() -> None:
    target = ReferenceTarget(1)
    try:
        fuzz_target = FuzzTarget(target.bootstrap, target, "reference")
        prepare(target.bootstrap)
        served = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
        before = snapshot(target.bootstrap, served)
        assert difference(before, snapshot(target.bootstrap, served)) == ""
        watch = StateWatch(served)
        assert watch.compare(fuzz_target.address, [], lambda cases: True) == ""
        assert watch.batches == 1
        assert difference(before, snapshot(target.bootstrap, served)) != "", "`stir` appends and commits"
        assert watch.compare(fuzz_target.address, [], lambda cases: False) == ""
        assert watch.batches == 1, "a batch with an accepted case says nothing"
    finally:
        target.close()


@contextmanager
def no_pause() -> Iterator[None]:
    yield


def test_repeated_failures_of_the_process_wait_only_a_few_times(tmp_path: Path) -> None:
    release, started = threading.Event(), threading.Event()

    def job(triage: Triage) -> None:
        started.set()
        release.wait(GIVE_UP_S)

    with fake_broker(honest) as address:
        target = TwinTarget(address)
        confirmation = Confirmation(Triage(target, tmp_path, SEED, "test"), no_pause)
        for _ in range(5):
            confirmation.submit(Oracle.ALIVE, job)
        assert started.wait(GIVE_UP_S)
        assert confirmation.is_waiting(Oracle.ALIVE)
        assert confirmation.skipped == 5 - ALIKE_MAX
        release.set()
        confirmation.close(GIVE_UP_S)
    assert len(confirmation.results()) == ALIKE_MAX
    assert not confirmation.is_waiting(Oracle.ALIVE)


def test_an_exception_of_a_job_is_raised_in_the_session(tmp_path: Path) -> None:
    def job(triage: Triage) -> None:
        raise ArithmeticError("a bug of triage")

    with fake_broker(honest) as address:
        confirmation = Confirmation(Triage(TwinTarget(address), tmp_path, SEED, "test"), no_pause)
        confirmation.submit("x", job)
        confirmation.close(GIVE_UP_S)
    with pytest.raises(ArithmeticError, match="a bug of triage"):
        confirmation.results()


class TwinTarget(FuzzTarget):
    """A target whose second instance is itself."""

    @property
    def has_twin(self) -> bool:
        return True

    def twin(self) -> FuzzTarget:
        return FuzzTarget(self.address)


@pytest.mark.sample(2)
@pytest.mark.long
@pytest.mark.timeout(660)
@pytest.mark.parametrize("defect", ["AcksUnchecked", "MetadataLeak", "ConfigsLeak", "LongNameStall", "CorruptAppended"])
def test_a_planted_defect_of_each_oracle_is_found_by_it(defect: str, tmp_path: Path) -> None:
    found = run_defect(defect, SEED, tmp_path, seconds=600)  # it ends at the first finding of that oracle
    assert (found.found, found.oracle) == (True, found.shows), f"seed {SEED}: {found}"


def test_a_request_that_only_seems_to_hang_the_target_is_a_stall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several of them silence the target for seconds, and none alone."""

    def breaks(self: Triage, cases: list[Case], oracle: Oracle) -> bool:
        self.last_failure = stall_of(2.0) if oracle is Oracle.STALL else None
        return oracle is Oracle.STALL

    monkeypatch.setattr(triage_module, "SLOW_S", 0.0)
    monkeypatch.setattr(Triage, "breaks", breaks)
    with fake_broker(honest) as address:
        triage = Triage(FuzzTarget(address), tmp_path, SEED, "test")
        silent = Failure(Oracle.ALIVE, "the target is silent for 5 s on a fresh connection")
        finding = triage.confirm(silent, [case_of(3), case_of(18)], 1)
    assert finding is not None
    assert (finding.oracle, finding.api, finding.message) == (Oracle.STALL, "ApiVersions", stall_of(2.0).message)

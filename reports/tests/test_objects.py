"""Registers, sets and counters: the zone algorithm and the search against all orders, and histories from a file."""

import random
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.errors import Verdict
from highwater.reports.audit import audit
from highwater.reports.objects import NEVER, Op, counter, grow_only_set, register, search, zones
from highwater.spec.formats.history import Config, Event, header, trailer


def explained(ops: list[Op]) -> bool:
    """Return whether some order respects real time; an operation of unknown outcome may be omitted."""
    unsure = [op for op in ops if op.returned == NEVER]
    for mask in range(1 << len(unsure)):
        chosen = [op for op in ops if op.returned < NEVER] + [op for n, op in enumerate(unsure) if mask >> n & 1]
        if any(_in_order(order) and _is_legal(order) for order in permutations(chosen)):
            return True
    return False


def _in_order(order: tuple[Op, ...]) -> bool:
    return all(b.returned > a.invoked for n, a in enumerate(order) for b in order[n + 1 :])


def _is_legal(order: tuple[Op, ...]) -> bool:
    value = None
    for op in order:
        if op.f == "read" and op.value != value:
            return False
        if op.f == "cas" and op.value[0] != value:
            return False
        value = _value_after(op, value)
    return True


def _value_after(op: Op, value: Any) -> Any:
    if op.f == "append":
        return (value or "") + op.value
    return op.value if op.f == "write" else op.value[1] if op.f == "cas" else value


def random_ops(chance: random.Random, *, distinct: bool) -> list[Op]:
    count = chance.randint(2, 5)
    moments = chance.sample(range(20), 2 * count)
    ops, next_value = [], 1
    for slot in range(count):
        begin, end = sorted(moments[2 * slot : 2 * slot + 2])
        f = chance.choice(["write", "read"] if distinct else ["write", "read", "cas"])
        value = chance.choice([None, 1, 1, 2, 3]) if f == "read" else chance.randint(1, 2)
        if f == "write" and distinct:
            value, next_value = next_value, next_value + 1
        argument = (chance.choice([None, 1, 2]), chance.randint(1, 2)) if f == "cas" else value
        ops.append(Op(f, argument, begin, NEVER if f != "read" and chance.random() < 0.2 else end, slot))
    return ops


def random_appends(chance: random.Random) -> list[Op]:
    """Return operations on a string; a read returns the value of some order, or with an append left out."""
    count = chance.randint(2, 5)
    moments = chance.sample(range(20), 2 * count)
    ops = []
    for slot in range(count):
        begin, end = sorted(moments[2 * slot : 2 * slot + 2])
        f = chance.choice(["append", "append", "read", "read", "write"])
        written = "".join(chance.sample("abc", chance.randint(1, 3)))
        argument = written if f == "read" else chance.choice("abc")
        ops.append(Op(f, argument, begin, NEVER if f != "read" and chance.random() < 0.2 else end, slot))
    return ops


@given(st.randoms(use_true_random=False))
@settings(max_examples=600, deadline=None, database=None)
def test_the_search_of_appends_agrees_with_all_orders(chance: random.Random) -> None:
    ops = random_appends(chance)
    assert (search(ops).verdict is Verdict.VALID) == explained(ops)


def test_random_appends_are_valid_and_invalid() -> None:
    verdicts = [search(random_appends(random.Random(seed))).verdict for seed in range(300)]
    assert 30 < verdicts.count(Verdict.VALID) < 270


@given(st.randoms(use_true_random=False))
@settings(max_examples=400, deadline=None, database=None)
def test_zones_agree_with_all_orders(chance: random.Random) -> None:
    ops = random_ops(chance, distinct=True)
    assert (zones(ops).verdict is Verdict.VALID) == explained(ops), ops


@given(st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None, database=None)
def test_the_search_agrees_with_all_orders(chance: random.Random) -> None:
    ops = random_ops(chance, distinct=False)
    assert (search(ops).verdict is Verdict.VALID) == explained(ops), ops


def test_random_histories_are_valid_and_invalid() -> None:
    chance = random.Random(3)
    bad = sum(not explained(random_ops(chance, distinct=True)) for _ in range(200))
    assert 20 < bad < 180


def test_a_search_that_exceeds_its_limit_is_unknown() -> None:
    ops = [Op("write", n % 2, 0, NEVER if n % 3 else 1_000, n) for n in range(24)]
    ops.append(Op("read", 7, 2_000, 2_001))
    assert search(ops, states=500).verdict is Verdict.UNKNOWN


def test_repeated_values_are_searched_and_distinct_ones_are_not() -> None:
    many = [Op("write", n, 4 * n, 4 * n + 1) for n in range(20_000)]
    many += [Op("read", n, 4 * n + 2, 4 * n + 3) for n in range(20_000)]
    assert register(many).verdict is Verdict.VALID
    assert register([*many, Op("read", 7, 90_000, 90_001)]).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("ops", "verdict"),
    [
        ([Op("add", 1, 0, 1), Op("read", [1], 2, 3)], Verdict.VALID),
        ([Op("add", 1, 0, 1), Op("read", [], 2, 3)], Verdict.INVALID),
        ([Op("add", 1, 0, NEVER), Op("read", [], 2, 3)], Verdict.VALID),
        ([Op("add", 1, 0, NEVER), Op("read", [1], 2, 3), Op("read", [], 4, 5)], Verdict.INVALID),
        ([Op("read", [1], 0, 1), Op("add", 1, 2, 3)], Verdict.INVALID),
    ],
)
def test_a_set_never_loses_an_element(ops: list[Op], verdict: Verdict) -> None:
    assert grow_only_set(ops).verdict is verdict


@pytest.mark.parametrize(("value", "verdict"), [(5, "valid"), (8, "valid"), (4, "invalid"), (9, "invalid")])
def test_a_counter_is_between_certain_and_possible_additions(value: int, verdict: str) -> None:
    ops = [Op("add", 5, 0, 1), Op("add", 3, 2, NEVER), Op("read", value, 3, 4)]
    assert counter(ops).verdict == verdict


def write(path: Path, *events: tuple[int, str, str, object]) -> Path:
    """Write a register's history of (process, type, f, value); a failed event carries the error timed-out."""
    lines = [header(Config(workload="register"))]
    lines += [
        Event(
            index=n,
            time_ns=n,
            process=process,
            type=kind,  # type: ignore[arg-type]
            f=f,
            value=value,
            key="x",
            error="timed-out" if kind == "fail" else None,
        )
        for n, (process, kind, f, value) in enumerate(events, 1)
    ]
    lines.append(trailer(len(lines)))
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path


def test_a_register_in_a_file_is_audited(tmp_path: Path) -> None:
    writing = [(0, "invoke", "write", 1), (0, "ok", "write", 1)]
    good = write(tmp_path / "good", *writing, (1, "invoke", "read", None), (1, "ok", "read", 1))
    bad = write(tmp_path / "bad", *writing, (1, "invoke", "read", None), (1, "ok", "read", None))
    assert audit(good).verdict is Verdict.VALID
    result = audit(bad)
    assert result.verdict is Verdict.INVALID
    (finding,) = result.findings
    assert finding.name == "not-linearizable"
    assert [len(witness.operations) for witness in finding.witnesses] == [2]


def test_a_write_that_failed_with_a_timeout_may_have_happened(tmp_path: Path) -> None:
    failed = (0, "invoke", "write", 1), (0, "fail", "write", 1)
    read = (1, "invoke", "read", None), (1, "ok", "read", 1)
    assert audit(write(tmp_path / "history", *failed, *read)).verdict is Verdict.VALID


def test_an_unreadable_line_may_explain_a_read(tmp_path: Path) -> None:
    path = write(tmp_path / "history", (1, "invoke", "read", None), (1, "ok", "read", 1))
    assert audit(path).verdict is Verdict.INVALID
    path.write_bytes(path.read_bytes() + b'{"index":3,"process":0,"f":"wri\n')
    result = audit(path)
    assert (result.verdict, [finding.severity for finding in result.findings]) == (Verdict.UNKNOWN, ["undecided"])

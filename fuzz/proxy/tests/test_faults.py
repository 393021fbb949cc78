"""Lines of faults: what they say, and what is said of a line with a mistake."""

from typing import Any

import pytest

from highwater.errors import UsageError
from highwater.fuzz.proxy.faults import parse_fault
from highwater.fuzz.proxy.matching import Armed, Faults, Subject, concerned, matches
from highwater.reference.wire.messages.committed_offsets import OffsetCommitRequest, OffsetCommitRequestTopic
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest
from highwater.reference.wire.messages.transactions import EndTxnRequest

LINES = [
    ("EndTxn: delay 800 ms once", {"apis": ("EndTxn",), "action": "delay", "ms": 800, "times": 1, "side": "request"}),
    ("endtxn,Produce v3-9: drop", {"apis": ("EndTxn", "Produce"), "versions": (3, 9), "action": "drop", "times": 0}),
    ("any response client=app-*: close 10 %", {"apis": ("any",), "side": "response", "percent": 10.0}),
    ("Produce topic=a partition=0: answer 6 nth 2", {"error": 6, "nth": 2, "action": "answer"}),
    ("Fetch: answer not_leader_or_follower every 3 2 times", {"error": 6, "every": 3, "times": 2}),
    ("Heartbeat: black-hole", {"action": "black-hole", "ms": -1}),
    ("Heartbeat: black-hole 500 ms", {"action": "black-hole", "ms": 500}),
    ('EndTxn transaction="a: b" v4: late 20 ms', {"filters": (("transaction", "a: b"),), "versions": (4, 4), "ms": 20}),
]


@pytest.mark.parametrize(("line", "fields"), LINES)
def test_what_a_line_says(line: str, fields: dict[str, Any]) -> None:
    fault = parse_fault(line)
    assert {name: getattr(fault, name) for name in fields} == fields
    assert parse_fault(str(fault)) == fault


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("EndTx: drop", "no API 'EndTx'; did you mean EndTxn?"),
        ("EndTxn: dorp", "no action 'dorp'; did you mean drop?"),
        ("Produce: error NOT_LEADER_OR_FOLLOWER", "answered with one by `answer NOT_LEADER_OR_FOLLOWER`"),
        ("EndTxn: answer NOT_LEADER", "no error 'NOT_LEADER'; did you mean NOT_LEADER_OR_FOLLOWER"),
        ("EndTxn: answer 0", "NONE is no error"),
        ("EndTxn topics=a: drop", "no filter 'topics'; did you mean topic?"),
        ("EndTxn v9: drop", "no version 9 of EndTxn; up to 5 is known"),
        ("EndTxn v4-2: drop", "no version is in v4-2"),
        ("Heartbeat topic=t: drop", "no request of Heartbeat has a topic; filters of it: client, group"),
        ("Produce,EndTxn topic=t: drop", "no request of EndTxn has a topic"),
        ("DescribeTransactions topic=t: drop", "no request of DescribeTransactions has a topic"),
        ("Fetch group=g: drop", "no request of Fetch has a group"),
        ("Produce v0-2 transaction=t: drop", "no request of Produce has a transaction in these versions"),
        ("FindCoordinator v0 transaction=t: drop", "no request of FindCoordinator has a transaction in these versions"),
        ("EndTxn: delay", "delay needs a time; delay 800 ms"),
        ("EndTxn: delay 8 s", "delay needs a time"),
        ("EndTxn: drop twice", "'twice' says no time"),
        ("EndTxn: drop 0 times", "'0 times' says no time"),
        ("EndTxn: drop 101 %", "'101 %' says no time"),
        ("EndTxn response: swap", "a response has no swap"),
        ("EndTxn reply: drop", "'reply' selects nothing"),
        ("EndTxn drop", "no `API: what happens`"),
        ("EndTxn:", "nothing happens to the message"),
        (": drop", "no `API: what happens`"),
        ("EndTxn transaction='a: drop", "No closing quotation"),
        ("", "no `API: what happens`"),
    ],
)
def test_a_mistake_is_named(line: str, said: str) -> None:
    with pytest.raises(UsageError, match="fault") as error:
        parse_fault(line)
    assert said in str(error.value)


def subject(name: str, message: Any, client: str = "app") -> Subject:
    return Subject(name, 0, "request", client, lambda: message)


COMMIT = OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="t"),))
FETCH = FetchRequest(
    topics=(
        FetchTopic(topic="orders", partitions=(FetchPartition(partition=0), FetchPartition(partition=2))),
        FetchTopic(topic="", topic_id=b"i" * 16, partitions=(FetchPartition(partition=5),)),
    )
)
TOPICS = {b"i" * 16: "byid"}


@pytest.mark.parametrize(
    ("which", "message", "expected"),
    [
        ("Fetch topic=orders", FETCH, True),
        ("Fetch topic=ord*", FETCH, True),
        ("Fetch topic=payments", FETCH, False),
        ("Fetch topic=orders partition=2", FETCH, True),
        ("Fetch topic=orders partition=5", FETCH, False),
        ("Fetch topic=byid partition=5", FETCH, True),
        ("Fetch partition=5", FETCH, True),
        ("Fetch client=other", FETCH, False),
        ("OffsetCommit group=g", COMMIT, True),
        ("OffsetCommit group=h", COMMIT, False),
        ("any transaction=pay", EndTxnRequest(transactional_id="pay"), True),
        ("any transaction=pay", EndTxnRequest(transactional_id="other"), False),
        ("FindCoordinator group=g", FindCoordinatorRequest(key="g", key_type=0), True),
        ("FindCoordinator group=g", FindCoordinatorRequest(key="g", key_type=1), False),
        ("FindCoordinator transaction=g", FindCoordinatorRequest(coordinator_keys=("f", "g"), key_type=1), True),
        ("Fetch client=app", None, True),
    ],
)
def test_filters(which: str, message: Any, expected: bool) -> None:
    assert matches(parse_fault(f"{which}: drop"), subject("any", message), TOPICS) is expected


@pytest.mark.parametrize(
    ("when", "struck"),
    [
        ("", [1, 2, 3, 4, 5, 6]),
        ("once", [1]),
        ("3 times", [1, 2, 3]),
        ("nth 4", [4]),
        ("every 2", [2, 4, 6]),
        ("every 2 2 times", [2, 4]),
    ],
)
def test_when_a_line_strikes(when: str, struck: list[int]) -> None:
    faults = Faults()
    armed = faults.add(parse_fault(f"Fetch: drop {when}"))
    found = [number for number in range(1, 7) if faults.strike(subject("Fetch", FETCH)) is not None]
    assert found == struck
    assert (armed.matched, armed.struck) == (6, len(struck))


def test_a_percentage_is_drawn_from_the_seed() -> None:
    def drawn(seed: int) -> list[bool]:
        faults = Faults(seed=seed)
        faults.add(parse_fault("Fetch: drop 30 %"))
        return [faults.strike(subject("Fetch", FETCH)) is not None for _ in range(400)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert 60 < sum(drawn(1)) < 180


def test_the_first_line_that_strikes_is_the_only_one() -> None:
    faults = Faults()
    first: Armed = faults.add(parse_fault("Fetch: drop once"))
    second = faults.add(parse_fault("Fetch: close"))
    assert faults.strike(subject("Fetch", FETCH)) is first.fault
    assert faults.strike(subject("Fetch", FETCH)) is second.fault
    assert (first.matched, second.matched) == (2, 1)


def test_which_partitions_a_line_is_about() -> None:
    assert concerned(parse_fault("Fetch client=a: drop")) is None
    about = concerned(parse_fault("Fetch topic=o* partition=2: drop"))
    assert about is not None
    assert [about(item) for item in (("orders", 2), ("orders", 1), ("a", 2), ("orders", None))] == [
        True,
        False,
        False,
        False,
    ]

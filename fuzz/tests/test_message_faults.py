"""Faults of single messages in the simulated network."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from highwater.errors import UsageError
from highwater.fuzz.schedule import read_schedule
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.faults import STRUCK
from highwater.fuzz.simulator.guard_focus import settings_without_guard
from highwater.fuzz.simulator.message_faults import MessageFaults
from highwater.fuzz.simulator.search import run_seed
from highwater.fuzz.tests.test_simulated_faults import Pair
from highwater.reference.wire.messages.groups import HeartbeatRequest
from highwater.reference.wire.messages.transactions import EndTxnRequest

REPEATED_ENDS = Path(__file__).parents[1] / "schedules" / "repeated_ends.json"
END, BEAT = EndTxnRequest(transactional_id="pay"), HeartbeatRequest(group_id="g")


@pytest.mark.parametrize(
    ("line", "received"),
    [
        ("EndTxn: repeat 50 ms", [END, BEAT, END]),
        ("EndTxn transaction=pay: duplicate", [END, END, BEAT]),
        ("EndTxn transaction=other: duplicate", [END, BEAT]),
        ("EndTxn client=a: late 50 ms", [BEAT, END]),
        ("EndTxn client=b: late 50 ms", [END, BEAT]),
        ("any: drop once", [BEAT]),
        ("Heartbeat: close", [END]),
    ],
)
def test_what_arrives(line: str, received: list[Any]) -> None:
    pair = Pair()
    MessageFaults(pair.world.network).add(line)
    pair.send(END)
    pair.run(2)
    pair.send(BEAT)
    pair.run(100)
    assert pair.b.bodies == received
    lost = any(action in line for action in ("late", "drop", "close")) and "client=b" not in line
    assert bool(pair.a.closed_by) is lost


def test_a_fault_that_has_ended_strikes_nothing() -> None:
    pair = Pair()
    MessageFaults(pair.world.network).add("EndTxn: drop")()
    pair.send(END)
    pair.run(10)
    assert pair.b.bodies == [END]


@pytest.mark.parametrize(
    "line", ["EndTxn: answer 6", "EndTxn response: delay 5 ms", "EndTxn: stall 5 ms", "EndTxn: swap"]
)
def test_what_only_a_proxy_does_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="does not model"):
        MessageFaults(Pair().world.network).add(line)


def test_repeated_ends_break_transactions_without_their_guard() -> None:
    """KAFKA-17754; with the guard each transaction has its own producer epoch, and the copies are refused."""
    schedule = read_schedule(REPEATED_ENDS)
    without = settings_without_guard("EndTxnBumpsEpoch", Settings(swarm=True, guards_off=("EndTxnBumpsEpoch",)))
    broken = run_seed(schedule.seed, without, schedule=schedule)
    assert broken.violation is not None
    assert broken.violation.invariant == "TransactionsAreAtomic"
    control = run_seed(schedule.seed, replace(without, guards_off=()), schedule=schedule)
    assert control.violation is None
    assert broken.situations[STRUCK]
    assert control.situations[STRUCK]

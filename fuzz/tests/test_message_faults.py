"""Faults of single messages in the simulated network."""

from collections.abc import Callable
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
from highwater.fuzz.tests.test_simulated_faults import Pair, Probe
from highwater.reference.effects import Effect, Instant, Request, Response, Send
from highwater.reference.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from highwater.reference.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from highwater.reference.wire.messages.transactions import EndTxnRequest, EndTxnResponse

REPEATED_ENDS = Path(__file__).parents[1] / "schedules" / "repeated_ends.json"
END, BEAT = EndTxnRequest(transactional_id="pay"), HeartbeatRequest(group_id="g")


def produce(topic: str, *partitions: int) -> ProduceRequest:
    data = tuple(PartitionProduceData(index=number, records=b"") for number in partitions)
    return ProduceRequest(acks=-1, timeout_ms=600, topic_data=(TopicProduceData(name=topic, partition_data=data),))


def stored(*partitions: tuple[int, int, int]) -> ProduceResponse:
    """Return a response about topic `t`: number, error code and offset of each partition."""
    parts = tuple(
        PartitionProduceResponse(index=number, error_code=error, base_offset=offset)
        for number, error, offset in partitions
    )
    return ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=parts),))


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


class Answering(Probe):
    """A host that answers each request at once without an error; to Produce, with offset 7 for each partition."""

    def receive(self, now: Instant, source: str, message: Any) -> list[Effect]:
        super().receive(now, source, message)
        if not isinstance(message, Request):
            return []
        body = ANSWERS[type(message.body)](message.body)
        return [Send(source, Response(message.correlation_id, message.api_version, body))]


def exchanged(line: str, *bodies: Any, version: int = 0) -> tuple[list[tuple[int, Any]], list[tuple[int, Any]], bool]:
    """Send requests from `a` to a host that answers, one each 10 ms; return with times in ms what each host received.

    The last value is whether `a` noticed that its connection has ended.
    """
    pair = Pair()
    pair.world.hosts["b"].node = pair.b = Answering()
    MessageFaults(pair.world.network).add(line)
    start_ms = pair.world.now_ms
    for number, body in enumerate(bodies):
        sends: list[Effect] = [Send("b", Request(number, version, body))]
        pair.world.enter("a", lambda now, sends=sends: sends)  # type: ignore[misc]
        pair.run(10)
    pair.run(3_000)
    requests, responses = ([(at - start_ms, body) for at, _, body in host.received] for host in (pair.b, pair.a))
    return requests, responses, bool(pair.a.closed_by)


ENDED, BEAT_ON = EndTxnResponse(), HeartbeatResponse()
ANSWERS: dict[type, Callable[[Any], Any]] = {
    EndTxnRequest: lambda body: ENDED,
    HeartbeatRequest: lambda body: BEAT_ON,
    ProduceRequest: lambda body: stored(*((part.index, 0, 7) for part in body.topic_data[0].partition_data)),
}


@pytest.mark.parametrize(
    ("line", "requests", "responses", "closed"),
    [
        ("Fetch: drop", [(1, END), (11, BEAT)], [(2, ENDED), (12, BEAT_ON)], False),
        ("EndTxn: delay 50 ms", [(51, END), (51, BEAT)], [(52, ENDED), (52, BEAT_ON)], False),
        ("EndTxn response: delay 50 ms", [(1, END), (11, BEAT)], [(52, ENDED), (52, BEAT_ON)], False),
        ("EndTxn response: drop", [(1, END), (11, BEAT)], [(12, BEAT_ON)], True),
        ("EndTxn response transaction=pay: close", [(1, END), (11, BEAT)], [(12, BEAT_ON)], True),
        ("EndTxn response transaction=other: close", [(1, END), (11, BEAT)], [(2, ENDED), (12, BEAT_ON)], False),
        ("EndTxn: answer 6", [(11, BEAT)], [(1, EndTxnResponse(error_code=6)), (12, BEAT_ON)], False),
        (
            "EndTxn response: answer 6",
            [(1, END), (11, BEAT)],
            [(2, EndTxnResponse(error_code=6)), (12, BEAT_ON)],
            False,
        ),
        ("EndTxn: swap", [(11, BEAT), (11, END)], [(12, BEAT_ON), (12, ENDED)], False),
        ("Heartbeat: swap", [(1, END), (1_011, BEAT)], [(2, ENDED), (1_012, BEAT_ON)], False),
        ("EndTxn: stall 50 ms", [(51, END), (51, BEAT)], [(52, ENDED), (52, BEAT_ON)], False),
        ("EndTxn response: stall 50 ms", [(1, END), (52, BEAT)], [(52, ENDED), (53, BEAT_ON)], False),
        ("EndTxn: black-hole", [], [], False),
        ("EndTxn: black-hole 5 ms", [(11, BEAT)], [(12, BEAT_ON)], False),
    ],
)
def test_what_each_side_receives(
    line: str, requests: list[tuple[int, Any]], responses: list[tuple[int, Any]], closed: bool
) -> None:
    assert exchanged(line, END, BEAT) == (requests, responses, closed)


def test_an_error_concerns_only_the_partitions_of_its_line() -> None:
    """The other partition is sent, and the response has both."""
    request = produce("t", 0, 1)
    assert exchanged("Produce partition=0: answer 6", request, version=9)[:2] == (
        [(1, produce("t", 1))],
        [(2, stored((1, 0, 7), (0, 6, -1)))],
    )
    assert exchanged("Produce response partition=0: answer 6", request, version=9)[1] == [
        (2, stored((0, 6, -1), (1, 0, 7)))
    ]


def test_a_client_hears_again_when_the_fault_has_ended() -> None:
    pair = Pair()
    end = MessageFaults(pair.world.network).add("EndTxn: black-hole")
    pair.send(END)
    end()
    pair.send(BEAT)
    pair.run(10)
    assert pair.b.bodies == [BEAT]


def test_a_line_that_is_no_fault_is_refused() -> None:
    with pytest.raises(UsageError, match="no action 'explode'"):
        MessageFaults(Pair().world.network).add("EndTxn: explode")


def test_repeated_ends_break_transactions_without_their_guard() -> None:
    """KAFKA-17754; with the guard each transaction has its own producer epoch, and the copies are refused."""
    schedule = read_schedule(REPEATED_ENDS)
    without = settings_without_guard("EndTxnBumpsEpoch", Settings(swarm=True, guards_off=("EndTxnBumpsEpoch",)))
    broken = run_seed(schedule.seed, without, schedule=schedule)
    assert broken.violation is not None
    assert broken.violation.invariant == "CommitsAreAsked"
    control = run_seed(schedule.seed, replace(without, guards_off=()), schedule=schedule)
    assert control.violation is None
    assert broken.situations[STRUCK]
    assert control.situations[STRUCK]

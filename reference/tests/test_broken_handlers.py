"""A defect of ours in a handler costs whoever asked a connection, and nobody else anything."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from highwater.reference.drivers.files import Disk
from highwater.reference.drivers.tcp import Driver
from highwater.reference.effects import HandlerFailed, Request, Send
from highwater.reference.procedures import Pending
from highwater.reference.tests.simulated import Hand, Simulated
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest

LIST_OFFSETS, METADATA = 2, 3


class Waiting:
    """A handler that goes on when something else happens, and breaks off at `error`."""

    def __init__(self, error: Exception) -> None:
        self.error, self.until = error, Pending[None]()

    async def __call__(self, request: Request) -> Any:
        await self.until
        raise self.error


def broken(error: Exception) -> tuple[Simulated, Waiting]:
    """Two clients: the second one's question wakes the first one's, which breaks off."""
    cluster, waiting = Simulated(1), Waiting(error)
    served = cluster.broker().served
    honest = served[METADATA].handler

    async def waking(request: Request) -> Any:
        waiting.until.resolve(None)
        return await honest(request)

    served[LIST_OFFSETS] = replace(served[LIST_OFFSETS], handler=waiting)
    served[METADATA] = replace(served[METADATA], handler=waking)
    return cluster, waiting


def asked(cluster: Simulated) -> list[Any]:
    """What comes of the second question."""
    now, broker = cluster.world.instant(cluster.world.hosts["client"]), cluster.broker()
    assert broker.receive(now, "first", Request(1, 7, ListOffsetsRequest())) == []
    return broker.receive(now, "second", Request(2, 9, MetadataRequest(topics=())))


def test_who_asked_is_told_by_the_effect_and_who_is_heard_meanwhile_is_answered() -> None:
    cluster, waiting = broken(ArithmeticError("a defect of ours"))
    broke, answer = asked(cluster)
    assert broke == HandlerFailed("first", waiting.error)
    assert isinstance(answer, Send)
    assert answer.to == "second"


def test_what_the_disk_refuses_ends_the_step() -> None:
    cluster, _ = broken(OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        asked(cluster)


def test_the_simulator_hides_no_defect() -> None:
    cluster, _ = broken(ArithmeticError("a defect of ours"))
    cluster.send(ListOffsetsRequest(), 7)
    with pytest.raises(ArithmeticError):
        cluster.ask(MetadataRequest(topics=()), 9)


class Line:
    """A connection that knows whether it was closed."""

    closed = False

    def send(self, message: Any) -> None:
        raise AssertionError(message)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(("error", "stack"), [(ArithmeticError("ours"), True), (DecodeError("theirs"), False)])
def test_the_driver_closes_one_connection_and_logs_the_stack_of_a_defect(
    error: Exception, stack: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def drive() -> None:
        driver = Driver(Hand(), Disk(tmp_path), lambda peer: None)
        first, second = Line(), Line()
        driver.channels.update(first=first, second=second)
        driver.do(lambda now: [HandlerFailed("first", error)])
        assert (first.closed, second.closed, driver.failed.done()) == (True, False, False)

    caplog.set_level(logging.INFO, logger="highwater.driver")
    asyncio.run(drive())
    (record,) = caplog.records
    assert (record.exc_info is not None) == stack

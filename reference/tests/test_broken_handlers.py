"""A defect in a handler closes the connection of the requester and affects no other connection."""

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
    """A handler that waits for another request and then raises `error`."""

    def __init__(self, error: Exception) -> None:
        self.error, self.until = error, Pending[None]()

    async def __call__(self, request: Request) -> Any:
        await self.until
        raise self.error


def broken(error: Exception) -> tuple[Simulated, Waiting]:
    """Two clients: the request of the second one resumes the handler of the first one, which fails."""
    cluster, waiting = Simulated(1), Waiting(error)
    served = cluster.broker().served
    original = served[METADATA].handler

    async def waking(request: Request) -> Any:
        waiting.until.resolve(None)
        return await original(request)

    served[LIST_OFFSETS] = replace(served[LIST_OFFSETS], handler=waiting)
    served[METADATA] = replace(served[METADATA], handler=waking)
    return cluster, waiting


def request_twice(cluster: Simulated) -> list[Any]:
    """Return the effects of the second request."""
    now, broker = cluster.world.instant(cluster.world.hosts["client"]), cluster.broker()
    assert broker.receive(now, "first", Request(1, 7, ListOffsetsRequest())) == []
    return broker.receive(now, "second", Request(2, 9, MetadataRequest(topics=())))


def test_a_failed_handler_names_its_peer_and_the_other_request_is_answered() -> None:
    cluster, waiting = broken(ArithmeticError("a defect of ours"))
    broke, answer = request_twice(cluster)
    assert broke == HandlerFailed("first", waiting.error)
    assert isinstance(answer, Send)
    assert answer.to == "second"


def test_an_error_of_the_disk_is_raised_to_the_caller() -> None:
    cluster, _ = broken(OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        request_twice(cluster)


def test_the_simulator_raises_the_error_of_a_handler() -> None:
    cluster, _ = broken(ArithmeticError("a defect of ours"))
    cluster.send(ListOffsetsRequest(), 7)
    with pytest.raises(ArithmeticError):
        cluster.ask(MetadataRequest(topics=()), 9)


class FakeChannel:
    """A connection that records whether it was closed."""

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
        first, second = FakeChannel(), FakeChannel()
        driver.channels.update(first=first, second=second)
        driver.do(lambda now: [HandlerFailed("first", error)])
        assert (first.closed, second.closed, driver.failed.done()) == (True, False, False)

    caplog.set_level(logging.INFO, logger="highwater.driver")
    asyncio.run(drive())
    (record,) = caplog.records
    assert (record.exc_info is not None) == stack

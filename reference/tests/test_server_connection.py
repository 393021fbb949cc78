"""A client connection without I/O: one request at a time, in order, within the limits of time and size."""

import pytest

from highwater.reference.api_versions import API_VERSIONS, ServedApi
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.connections.limits import Limits
from highwater.reference.connections.server import MAX_QUEUED_FRAMES, Listener, ProtocolError, ServerConnection
from highwater.reference.effects import Request, Response
from highwater.reference.meters import Meters
from highwater.reference.wire.framing import decode_response, encode_request
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from highwater.reference.wire.registry import APIS

MAX_BYTES = 1_000
IDLE_MS, STUCK_MS = 5_000, 1_000
CONFIG = BrokerConfig(broker_id=1, connections_max_idle_ms=IDLE_MS, request_timeout_ms=STUCK_MS, max_connections=2)


def frame(correlation_id: int) -> bytes:
    return encode_request(ApiVersionsRequest(), 0, correlation_id, "client")


def listener() -> Listener:
    async def serve(request: Request) -> None:
        raise AssertionError("the node is not part of these tests")

    served = {API_VERSIONS: ServedApi(serve, 0, 0)}
    return Listener(served, MAX_BYTES, Limits(lambda: CONFIG), Meters(), lambda: None)


def connection() -> ServerConnection:
    return ServerConnection(listener(), "127.0.0.1", 0)


def request_of(served: ServerConnection) -> Request:
    event = served.next_event()
    assert isinstance(event, Request)
    return event


def test_requests_are_served_one_at_a_time_and_in_order() -> None:
    served = connection()
    served.receive_data(0, frame(1) + frame(2))
    assert request_of(served).correlation_id == 1
    assert served.next_event() is None, "the first request has no response yet"
    answer = served.response_bytes(Response(1, 0, ApiVersionsResponse()))
    assert decode_response(APIS[API_VERSIONS], 0, answer[4:])[0] == 1
    assert request_of(served).correlation_id == 2


def test_a_request_may_come_in_pieces() -> None:
    served, data = connection(), frame(3)
    for position in range(len(data) - 1):
        served.receive_data(position, data[position : position + 1])
        assert served.next_event() is None
        assert served.waiting_since_ms == 0, "the time of the first piece"
    served.receive_data(99, data[-1:])
    assert request_of(served).correlation_id == 3
    assert served.waiting_since_ms is None


def test_nothing_is_served_while_the_peer_does_not_read() -> None:
    served = connection()
    served.receive_data(0, frame(1))
    served.pause_writing(7)
    assert served.next_event() is None
    assert served.waiting_since_ms == 7
    served.resume_writing()
    assert request_of(served).correlation_id == 1


@pytest.mark.parametrize("data", [(MAX_BYTES + 1).to_bytes(4, "big"), b"\xff\xff\xff\xff"], ids=["large", "negative"])
def test_a_frame_of_an_invalid_size_ends_the_connection(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        connection().receive_data(0, data)


def test_an_api_that_is_not_served_ends_the_connection() -> None:
    served = connection()
    served.receive_data(0, b"\x00\x00\x00\x0a\x00\x63\x00\x00\x00\x00\x00\x01\xff\xff")
    with pytest.raises(ProtocolError):
        served.next_event()


def test_a_driver_stops_reading_when_many_requests_wait() -> None:
    served = connection()
    served.receive_data(0, b"".join(map(frame, range(MAX_QUEUED_FRAMES + 2))))
    assert served.is_full
    request_of(served)
    assert served.is_full
    served.response_bytes(Response(0, 0, ApiVersionsResponse()))
    request_of(served)
    assert not served.is_full


class Limited:
    """A connection of the limits with an address of its own."""

    def __init__(self, served: ServerConnection) -> None:
        self._served, self.reasons = served, list[str]()

    host = "127.0.0.1"

    @property
    def last_received_ms(self) -> int:
        return self._served.last_received_ms

    @property
    def waiting_since_ms(self) -> int | None:
        return self._served.waiting_since_ms

    def buffered_bytes(self) -> int:
        return self._served.buffered_bytes

    def cut(self, why: str) -> None:
        self.reasons.append(why)


def test_idle_and_incomplete_connections_are_cut_in_time() -> None:
    limits = Limits(lambda: CONFIG)
    idle, partial = Limited(connection()), Limited(connection())
    assert limits.admit(idle)
    assert limits.admit(partial)
    assert not limits.admit(Limited(connection())), "max_connections is 2"
    partial._served.receive_data(IDLE_MS, frame(1)[:5])
    limits.sweep(IDLE_MS)
    assert not idle.reasons + partial.reasons
    limits.sweep(IDLE_MS + STUCK_MS)
    assert ["idle" in reason for reason in idle.reasons] == [True]
    assert not partial.reasons
    limits.sweep(IDLE_MS + STUCK_MS + 1)
    assert len(partial.reasons) == 1

"""What a result keeps of an exchange: the newest events, in order, bounded, with the bytes and the fields."""

from highwater.conformance.exchange import KEPT, KEPT_BYTES, SHOWN_BYTES, Event, ExchangeLog, newest_within
from highwater.conformance.tests.sample_reports import exchange
from highwater.reference.wire.framing import encode_response
from highwater.reference.wire.messages.topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from highwater.reference.wire.registry import api_of


def test_an_event_has_its_bytes_and_its_fields() -> None:
    request, reply, end = exchange("wrong")
    assert (request.what, reply.what, end.what) == ("<- request", "-> reply", "-> disconnected")
    assert request.size == len(bytes.fromhex(request.data)) == int(request.data[:8], 16) + 4
    assert "error_message: 'wrong'" in reply.decoded
    assert reply.text().splitlines()[1].startswith("00000000  00 00 00 ")
    assert (end.size, end.body()) == (0, [])


def test_a_long_frame_is_cut_and_says_so() -> None:
    results = tuple(CreatableTopicResult(name=f"topic-{number}") for number in range(300))
    frame = encode_response(CreateTopicsResponse(topics=results), 5, 1)
    kept = Event("a:1", "-> reply", frame, api_of(CreateTopicsRequest), 5).kept()
    assert bytes.fromhex(kept.data) == frame[:SHOWN_BYTES]
    assert f"... {len(frame) - SHOWN_BYTES} bytes more" in kept.text()
    assert kept.decoded.endswith(" characters more")


def test_a_log_keeps_the_newest_that_fit() -> None:
    log = ExchangeLog()
    for number in range(KEPT * 2):
        log.add(Event("a:1", f"event {number}", bytes([number]) * 2000))
    kept = log.kept()
    assert sum(event.weight() for event in kept) <= KEPT_BYTES + 100
    numbers = [int(event.what.split()[1]) for event in kept[1:]]
    assert numbers == list(range(KEPT * 2 - len(numbers), KEPT * 2))
    assert kept[0].what == f"... {KEPT - len(numbers)} earlier events left out"


def test_what_fits_is_left_as_it_is() -> None:
    events = exchange()
    assert newest_within(events, sum(event.weight() for event in events)) == events
    assert newest_within(events, 0)[0].what == "... 3 earlier events left out"

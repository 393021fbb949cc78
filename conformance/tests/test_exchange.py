"""The exchange in a result: the newest events in order, limited in size, with bytes and decoded fields."""

from highwater.conformance.client.exchange import (
    MAX_DATA_BYTES,
    MAX_EVENTS,
    MAX_REPORT_CHARACTERS,
    Event,
    ExchangeLog,
    newest_events,
)
from highwater.conformance.tests.sample_reports import exchange
from highwater.reference.wire.framing import encode_response
from highwater.reference.wire.messages.topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from highwater.reference.wire.registry import api_of


def test_an_event_has_bytes_and_decoded_fields() -> None:
    request, reply, end = exchange("wrong")
    assert (request.what, reply.what, end.what) == ("<- request", "-> reply", "-> disconnected")
    assert request.size == len(bytes.fromhex(request.data)) == int(request.data[:8], 16) + 4
    assert "error_message: 'wrong'" in reply.decoded
    assert reply.text().splitlines()[1].startswith("00000000  00 00 00 ")
    assert (end.size, end.body()) == (0, [])


def test_a_long_frame_is_truncated_with_a_note() -> None:
    results = tuple(CreatableTopicResult(name=f"topic-{number}") for number in range(300))
    frame = encode_response(CreateTopicsResponse(topics=results), 5, 1)
    to_report = Event("a:1", "-> reply", frame, api_of(CreateTopicsRequest), 5).to_report()
    assert bytes.fromhex(to_report.data) == frame[:MAX_DATA_BYTES]
    assert f"... {len(frame) - MAX_DATA_BYTES} bytes more" in to_report.text()
    assert to_report.decoded.endswith(" characters more")


def test_a_log_keeps_the_newest_events_that_fit() -> None:
    log = ExchangeLog()
    for number in range(MAX_EVENTS * 2):
        log.add(Event("a:1", f"event {number}", bytes([number]) * 2000))
    to_report = log.to_report()
    assert sum(event.weight() for event in to_report) <= MAX_REPORT_CHARACTERS + 100
    numbers = [int(event.what.split()[1]) for event in to_report[1:]]
    assert numbers == list(range(MAX_EVENTS * 2 - len(numbers), MAX_EVENTS * 2))
    assert to_report[0].what == f"... {MAX_EVENTS - len(numbers)} earlier events left out"


def test_a_log_within_the_limit_is_unchanged() -> None:
    events = exchange()
    assert newest_events(events, sum(event.weight() for event in events)) == events
    assert newest_events(events, 0)[0].what == "... 3 earlier events left out"

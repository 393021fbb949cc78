"""What steers a run: requests with a new response or new code of the target are mutated again, with returned values."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.generate.stream import Stream
from highwater.fuzz.wire.steering.go_counters import Counters
from highwater.fuzz.wire.target import FuzzTarget
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.framing import decode_response
from highwater.reference.wire.registry import APIS
from highwater.reference.wire.schema import message_layout

RESPONSES_MAX: Final = 100_000
READ_EVERY: Final = 8
"""Of the responses that are not new, one of so many is read for its values."""
READ_COUNTERS_EVERY: Final = 24
"""Responses between two readings of the counters of the target."""


class Guidance:
    """Steers a stream by responses, and by the counters of the target if it has some; with `is_on` False only counts.

    `in_flight` returns the cases that wait for a response.
    """

    def __init__(
        self, stream: Stream, target: FuzzTarget, counters: Counters | None, in_flight: Callable[[], list[Case]], *,
        is_on: bool,
    ) -> None:  # fmt: skip
        self._stream, self._target, self._counters, self._in_flight = stream, target, counters, in_flight
        self._is_on = is_on
        self._responses: set[tuple[int, int, str, int]] = set()
        self._answered: list[Case] = []  # since the counters of the target were read
        self._responses_read, self._rewarded = 0, 0

    @property
    def responses(self) -> int:
        """Return the number of different responses."""
        return len(self._responses)

    def note(self, case: Case, outcome: str, answer: bytes) -> None:
        """Take a response into account; `answer` is empty if there was none."""
        # The size of a response by powers of two is its shape: more elements, or other ones.
        response = case.key, case.version, outcome, len(answer).bit_length()
        is_new = response not in self._responses and len(self._responses) < RESPONSES_MAX
        if is_new:
            self._responses.add(response)
        if self._is_on:
            self._build_on(case, answer, is_new=is_new)
        if self._counters is not None:
            self._read_counters(case)

    def _build_on(self, case: Case, answer: bytes, *, is_new: bool) -> None:
        """Keep a request with a new response, and the values in it; and those in some other responses."""
        if is_new:
            self._stream.keep(case.key, case.version, case.frames[-1])
        self._responses_read += 1
        if answer and case.key in APIS and (is_new or self._responses_read % READ_EVERY == 0):
            with suppress(DecodeError):
                _, body = decode_response(APIS[case.key], case.version, answer)
                self._stream.returned.note(case.key, message_layout(APIS[case.key].response, case.version), body)

    def _read_counters(self, case: Case) -> None:
        """Reward the requests since the last reading if the target has executed new code."""
        self._answered.append(case)
        if len(self._answered) < READ_COUNTERS_EVERY:
            return
        if self.new_units() and self._is_on:
            self._rewarded += 1
            self._stream.reward([*self._answered, *self._in_flight()])  # one of them may be running
        self._answered = []

    def new_units(self) -> int:
        """Return how much code the target has executed for the first time since the last reading."""
        if self._counters is None or self._target.process is None:
            return 0
        return self._counters.new_units(self._target.process.pid)

    def restarted(self) -> None:
        """Reward no request for the code of a start."""
        self.new_units()
        self._answered = []

    def report(self) -> dict[str, int]:
        """Return how often the counters of the target were read, and how often that led to further mutations."""
        return {"readings": self._counters.readings if self._counters else 0, "rewarded": self._rewarded}

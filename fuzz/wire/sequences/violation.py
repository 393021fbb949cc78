"""What a sequence has shown, or why it could not continue."""

from highwater.fuzz.wire.oracles.responses import Failure
from highwater.reference.wire.registry import Api


class SequenceViolation(Exception):
    """The broker's response violates the model. `transcript` lists requests and responses."""

    def __init__(self, failure: Failure, api: Api, version: int, transcript: list[str] | None = None) -> None:
        super().__init__(failure.message)
        self.failure, self.api, self.version = failure, api, version
        self.transcript = transcript or []


class SequenceAbandoned(Exception):
    """The sequence cannot continue, without a failure of the target."""

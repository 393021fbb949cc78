"""A request, or one item of it, that a handler refuses with an error code and a message."""

from typing import Final

from highwater.reference.wire.errors import ErrorCode

MESSAGE_MAX: Final = 1_024
"""Characters. A message quotes what a client has sent, which may be longer than any string of a response can be."""


class RefusedRequestError(Exception):
    """Raised where it is noticed; the handler returns its error code and message."""

    def __init__(self, error: ErrorCode, message: str = "") -> None:
        super().__init__(message)
        self.error, self.message = error, shortened(message) or None


def shortened(message: str) -> str:
    """Return the message with at most MESSAGE_MAX characters; dots show where it was cut."""
    return message if len(message) <= MESSAGE_MAX else f"{message[: MESSAGE_MAX - 3]}..."

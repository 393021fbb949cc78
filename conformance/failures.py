"""Exceptions that end a case: failures of the target, missing features, clauses that do not apply."""


class TargetFailure(AssertionError):
    """The target broke the clause; `expected` and `actual` are empty if the message alone describes the failure."""

    def __init__(self, what: str, *, expected: str = "", actual: str = "") -> None:
        self.expected, self.actual = expected, actual
        super().__init__(f"{what}: expected {expected}, actual {actual}" if expected else what)


class NoReply(TargetFailure):
    """The target neither replied nor disconnected before the deadline."""


class Disconnected(TargetFailure):
    """The target closed the connection instead of replying."""


class Disturbed(TargetFailure):
    """The target answered with an error after which a client tries again, where the case expected another answer.

    In the suite that is a failure as any other. While faults or malformed requests disturb the target, it says nothing.
    """


class Required(TargetFailure):
    """The target broke what holds under every fault."""


class AccessRefused(TargetFailure):
    """The TLS or SASL login failed."""


class Unsupported(Exception):
    """The target lacks an API key, a version or a capability that the case needs."""


class NotApplicable(Exception):
    """The clause does not apply to the target's Kafka version."""

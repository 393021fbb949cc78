"""Why a case ends: what the target did, what it lacks, or what is not of its era; the plugin makes verdicts of it."""


class TargetFailure(AssertionError):
    """The target broke the clause. `expected` and `actual` are short, and empty where the sentence says it all."""

    def __init__(self, what: str, *, expected: str = "", actual: str = "") -> None:
        self.expected, self.actual = expected, actual
        super().__init__(f"{what}: expected {expected}, actual {actual}" if expected else what)


class NoReply(TargetFailure):
    """It neither answered nor disconnected before the deadline."""


class Disconnected(TargetFailure):
    """It closed the connection where it had to answer."""


class AccessRefused(TargetFailure):
    """It did not take our certificate, our name or our password, or wants none of them."""


class Unsupported(Exception):
    """The target says that it lacks this: a key, a version or a capability."""


class NotApplicable(Exception):
    """The clause is not of the target's era."""

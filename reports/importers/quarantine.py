"""Record the unusable lines of an input, with reasons, and whether a verdict may depend on them."""

import msgspec

from highwater.reports.rules.rule import Rule

SHOWN = 20
# Rules whose two witnesses are a proof that no unreadable line can explain away.
PROVEN_BY_WITNESSES = {
    Rule.INCONSISTENT_OFFSETS,
    Rule.DUPLICATE,
    Rule.APPEND_INVERSION,
    Rule.STALE_READ,
    Rule.FUTURE_READ,
    Rule.HIGH_WATERMARK_REGRESSION,
    Rule.EPOCH_SAFETY,
    Rule.DUPLICATE_PRODUCER_ID,
    Rule.REPLICA_DIVERGENCE,
}
BY_TIME = {Rule.HANGING_TRANSACTION, Rule.STUCK, Rule.EARLY_RETENTION}


class BadLine(msgspec.Struct, frozen=True, kw_only=True):
    """An unusable line; `line` counts from 1 (in `test.jepsen`: operations of the history)."""

    line: int
    reason: str
    matters: bool


class Quarantine(msgspec.Struct, kw_only=True):
    """Counts unusable lines while an input is read, and stores the first `SHOWN`.

    A line about faults does not matter. An unreadable line may have been any operation, so it matters: an audit
    without findings is then `unknown`.
    """

    count: int = 0
    mattering: int = 0
    clock_steps_back: int = 0
    lines: list[BadLine] = msgspec.field(default_factory=list)
    line: int = 0  # current line of the reader
    trailer: bool = False  # the trailer was read
    due: int = 0  # index of the next event

    def leaves_open(self, rule: Rule) -> bool:
        """Return whether unusable lines, or clock steps, may explain a finding of this rule."""
        unread = self.mattering > 0 and rule not in PROVEN_BY_WITNESSES
        return unread or (self.clock_steps_back > 0 and rule in BY_TIME)

    def add(self, reason: str, *, matters: bool = True, line: int | None = None) -> None:
        self.count += 1
        self.mattering += matters
        if len(self.lines) < SHOWN:
            self.lines.append(BadLine(line=self.line if line is None else line, reason=reason, matters=matters))

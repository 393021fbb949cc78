"""What the tests of one run showed."""

from dataclasses import dataclass, field
from typing import Final

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"


@dataclass(slots=True)
class Results:
    """The names of tests by outcome, in the order in which they ended."""

    names: dict[str, list[str]] = field(default_factory=lambda: {PASSED: [], FAILED: [], SKIPPED: []})

    def add(self, outcome: str, name: str) -> None:
        self.names[outcome].append(name)

    def extend(self, other: "Results") -> None:
        for outcome, names in other.names.items():
            self.names[outcome] += names

    @property
    def failed(self) -> list[str]:
        return self.names[FAILED]

    def __str__(self) -> str:
        return ", ".join(f"{len(names)} {outcome}" for outcome, names in self.names.items())

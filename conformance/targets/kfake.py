"""kfake, the fake cluster of franz-go's tests, as a target; built through the Go module proxy on first use."""

import os
from pathlib import Path
from typing import Final

from highwater.artefacts import build
from highwater.conformance.targets.advertised import ProcessTarget
from highwater.ports import Ports

PROGRAM: Final = Path(__file__).with_name("programs") / "kfake"
MODULE: Final = "github.com/twmb/franz-go/pkg/kfake "
COVERAGE: Final = "HIGHWATER_COVERAGE"
"""An environment variable: the folder where a kfake with counters keeps them, and a socket for their readers."""


def kfake(brokers: int = 1) -> ProcessTarget:
    """Build and start kfake; raises UsageError if Go 1.26 is missing."""
    place = build(PROGRAM, "go", "build", "-o", "kfake", ".") if COVERAGE not in os.environ else _with_counters()
    return ProcessTarget("kfake", version(), [str(place / "kfake"), *map(str, Ports(brokers))])


def _with_counters() -> Path:
    """Build kfake with a counter in each block of statements; its main package must have them, or none are kept."""
    covered = ("-cover", "-covermode=atomic", f"-coverpkg=./...,{MODULE.strip()}")
    return build(PROGRAM, "go", "build", *covered, "-o", "kfake", ".", variant="-counters")


def version() -> str:
    """Return the pinned version without the commit; kfake has no releases."""
    pinned = (PROGRAM / "go.mod").read_text().partition(MODULE)[2].split()[0]
    return pinned.rpartition("-")[0]

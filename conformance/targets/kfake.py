"""kfake, the fake cluster that franz-go tests itself with, built from the Go proxy on first use."""

from pathlib import Path
from typing import Final

from highwater.artefacts import build
from highwater.conformance.targets.advertised import SpokenTarget
from highwater.ports import Ports

PROGRAM: Final = Path(__file__).with_name("programs") / "kfake"
MODULE: Final = "github.com/twmb/franz-go/pkg/kfake "


def kfake(brokers: int = 1) -> SpokenTarget:
    """UsageError without Go 1.26."""
    place = build(PROGRAM, "go", "build", "-o", "kfake", ".")
    return SpokenTarget("kfake", version(), [str(place / "kfake"), *map(str, Ports(brokers))])


def version() -> str:
    """As pinned: kfake has no releases, only days."""
    pinned = (PROGRAM / "go.mod").read_text().partition(MODULE)[2].split()[0]
    return pinned.rpartition("-")[0]

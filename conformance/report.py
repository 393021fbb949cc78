"""The `conform` object of design.md, section 4, as a type: what every report is made of."""

from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.stamp import Stamp
from conformance.verdicts import CaseResult
from spec.formats.verdict import UsageError

LIMIT: Final = 512 * 1024 * 1024


class TargetReport(msgspec.Struct, frozen=True, kw_only=True):
    """`features` are the finalised feature levels that the target tells (KIP-584): name to lowest and highest."""

    target: str
    version: str
    verdicts: dict[str, int]
    cases: list[CaseResult]
    features: dict[str, list[int]] = {}

    @property
    def name(self) -> str:
        return f"{self.target} {self.version}"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    targets: list[TargetReport]
    run: Stamp = Stamp()


def report_of(told: dict[str, Any]) -> Report:
    """Of what `run_suite` returns."""
    return msgspec.convert(told, Report)


def read_report(path: Path) -> Report:
    """Of what `highwater conform --json` printed; UsageError names a file that is something else."""
    mend = "give what highwater conform --json printed"
    try:
        if path.stat().st_size > LIMIT:
            raise UsageError(f"more than {LIMIT >> 20} MiB", where=str(path), mend=mend)
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise UsageError(f"cannot be read ({error.strerror})", where=str(path), mend=mend) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not a report of the suite: {error}", where=str(path), mend=mend) from error

"""The `conform` object of design.md, section 4, as a type: what every report is made of."""

import hashlib
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.conformance.verdicts import CaseResult
from highwater.errors import UsageError
from highwater.reference.wire.registry import APIS

# --------------------------------------------------------------------------------------------------
# What a run says of itself, so that its verdicts can be compared with another's.


SCHEMA: Final = "Apache Kafka 4.3"
"""The release whose newest versions the wire tables describe; a test holds them to that release's own definitions."""
SHOWN_DIGITS: Final = 8


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """`run` of the `conform` object; `started` is UTC, `options` are those that differ from the usual ones."""

    suite: str = ""
    schema: str = ""
    started: str = ""
    options: dict[str, Any] = {}


def stamp_now(options: msgspec.Struct) -> Stamp:
    chosen, usual = (
        msgspec.json.decode(msgspec.json.encode(each, enc_hook=str)) for each in (options, type(options)())
    )
    return Stamp(
        suite=suite_version(),
        schema=f"{SCHEMA}, {len(APIS)} APIs, {schema_digest()}",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        options={name: value for name, value in chosen.items() if value != usual[name]},
    )


def suite_version() -> str:
    try:
        return f"highwater {version('highwater')}"
    except PackageNotFoundError:
        return "highwater, not installed"


def schema_digest() -> str:
    """Tells two wire tables apart: other keys, versions or flexible versions, another digest."""
    ranges = [f"{key}:{api.min_version}-{api.max_version}/{api.flexible_from}" for key, api in sorted(APIS.items())]
    return hashlib.sha256(";".join(ranges).encode()).hexdigest()[:SHOWN_DIGITS]


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
    hint = "give what highwater conform --json printed"
    try:
        if path.stat().st_size > LIMIT:
            raise UsageError(f"more than {LIMIT >> 20} MiB", where=str(path), hint=hint)
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise UsageError(f"cannot be read ({error.strerror})", where=str(path), hint=hint) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not a report of the suite: {error}", where=str(path), hint=hint) from error

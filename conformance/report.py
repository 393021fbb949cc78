"""The object that `highwater conform --json` prints, as types; every report is rendered from it."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.conformance.running.verdicts import CaseResult, Expectation
from highwater.errors import UsageError
from highwater.reference.wire.registry import APIS
from highwater_kafka import installed_version

SCHEMA: Final = "Apache Kafka 4.3"
"""The release whose newest versions the wire tables describe; a test compares both."""
SHOWN_DIGITS: Final = 8
FINGERPRINT_DIGITS: Final = 16


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a run; `started` is UTC, `options` has those that differ from the defaults."""

    suite: str = ""
    schema: str = ""
    started: str = ""
    options: dict[str, Any] = {}


def stamp_now(options: msgspec.Struct) -> Stamp:
    used, defaults = (
        msgspec.json.decode(msgspec.json.encode(values, enc_hook=str)) for values in (options, type(options)())
    )
    return Stamp(
        suite=f"highwater {installed_version()}",
        schema=f"{SCHEMA}, {len(APIS)} APIs, {schema_digest()}",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        options={name: value for name, value in used.items() if value != defaults[name]},
    )


def schema_digest() -> str:
    """Return a digest of keys, versions and first flexible versions, which identifies the wire tables."""
    ranges = [f"{key}:{api.min_version}-{api.max_version}/{api.flexible_from}" for key, api in sorted(APIS.items())]
    return hashlib.sha256(";".join(ranges).encode()).hexdigest()[:SHOWN_DIGITS]


LIMIT: Final = 512 * 1024 * 1024
"""Largest report file to read, in bytes."""


class TargetReport(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one target; `features` maps each finalised feature (KIP-584) to its lowest and highest level.

    `expectations` are the deviations that were known when it was run, `left_out` the cases that run only if asked for,
    `seconds` how long set-up, cases and tear-down took.
    """

    target: str
    version: str
    verdicts: dict[str, int]
    cases: list[CaseResult]
    features: dict[str, list[int]] = {}
    expectations: list[Expectation] = []
    left_out: list[str] = []
    seconds: dict[str, float] = {}

    @property
    def name(self) -> str:
        return f"{self.target} {self.version}"

    @property
    def fingerprint(self) -> str:
        """Return a digest of the fingerprints of all cases; empty if the target does not repeat runs exactly."""
        lines = [f"{result.case} {result.fingerprint}" for result in self.cases if result.fingerprint]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:FINGERPRINT_DIGITS] if lines else ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    targets: list[TargetReport]
    run: Stamp = Stamp()


def report_of(report_object: dict[str, Any]) -> Report:
    """Convert the object that `run_suite` returns."""
    return msgspec.convert(report_object, Report)


def read_report(path: Path) -> Report:
    """Read the output of `highwater conform --json`; raise UsageError for any other file."""
    hint = "give a file with the output of highwater conform --json"
    try:
        if path.stat().st_size > LIMIT:
            raise UsageError(f"the file is larger than {LIMIT >> 20} MiB", where=str(path), hint=hint)
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise UsageError(f"cannot be read ({error.strerror})", where=str(path), hint=hint) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not a report of the suite: {error}", where=str(path), hint=hint) from error

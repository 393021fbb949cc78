"""What a run says of itself, so that its verdicts can be compared with another's."""

import hashlib
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import msgspec

from reference.wire.registry import APIS

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

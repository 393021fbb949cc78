"""The catalogue of anomalies (`spec/anomalies.toml`) and what a finding means under a configuration."""

import tomllib
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

from spec.formats.history import Config

CATALOGUE = Path(__file__).parent.parent / "spec" / "anomalies.toml"


class Severity(StrEnum):
    """What a finding says: against the promise, allowed by the settings, worth knowing, or not to be judged."""

    VIOLATION = "violation"
    EXPECTED = "expected"
    INFORMATION = "information"
    UNDECIDED = "undecided"


class Anomaly(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rule: int
    name: str
    severity: Severity
    sentence: str
    clauses: tuple[str, ...]
    guards: tuple[str, ...]
    expected_when: tuple[str, ...]
    needs: tuple[str, ...]
    witnesses: tuple[str, str]

    def judge(self, config: Config) -> Severity:
        """The severity of a finding in a history with this configuration."""
        if self.severity is Severity.INFORMATION:
            return Severity.INFORMATION
        if any(_holds(condition, config) for condition in self.expected_when):
            return Severity.EXPECTED
        if any(getattr(config, key) is None for key in self.needs):
            return Severity.UNDECIDED
        return Severity.VIOLATION


def _holds(condition: str, config: Config) -> bool:
    key, _, value = condition.partition("=")
    found = getattr(config, key)
    return found is not None and str(found).lower() == value


@cache
def anomalies() -> dict[int, Anomaly]:
    """By rule number."""
    found = msgspec.convert(tomllib.loads(CATALOGUE.read_text())["anomaly"], list[Anomaly])
    return {anomaly.rule: anomaly for anomaly in found}

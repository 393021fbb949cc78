"""The catalogue of anomalies (`spec/anomalies.toml`) and what a finding means under a configuration."""

import tomllib
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

from highwater.spec.formats.history import Config

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
        if self.allowed_by(config):
            return Severity.EXPECTED
        return Severity.UNDECIDED if self.untold(config) else Severity.VIOLATION

    def allowed_by(self, config: Config) -> list[str]:
        """The settings under which a correct Kafka shows it too."""
        return [condition for condition in self.expected_when if _holds(condition, config)]

    def untold(self, config: Config) -> list[str]:
        """The settings that would decide, and that nobody told."""
        return [key for key in self.needs if getattr(config, key) is None]


def _holds(condition: str, config: Config) -> bool:
    key, _, value = condition.partition("=")
    found = getattr(config, key)
    return found is not None and str(found).lower() == value


@cache
def anomalies() -> dict[int, Anomaly]:
    """By rule number."""
    found = msgspec.convert(tomllib.loads(CATALOGUE.read_text())["anomaly"], list[Anomaly])
    return {anomaly.rule: anomaly for anomaly in found}

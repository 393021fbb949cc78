"""The catalogue of anomalies (`spec/anomalies.toml`), and the severity of a finding under a configuration."""

import tomllib
from collections.abc import Collection
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

from highwater.reports.rules.rule import Rule
from highwater.spec.formats.history import Config

CATALOGUE = Path(__file__).parent.parent / "spec" / "anomalies.toml"


class Severity(StrEnum):
    """What a finding means, most important first: a broken promise; undecided; allowed by the settings; harmless."""

    VIOLATION = "violation"
    UNDECIDED = "undecided"
    EXPECTED = "expected"
    INFORMATION = "information"


class Anomaly(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rule: Rule
    name: str
    severity: Severity
    sentence: str
    clauses: tuple[str, ...]
    guards: tuple[str, ...]
    expected_when: tuple[str, ...]
    needs: tuple[str, ...]
    data: tuple[str, ...]
    witnesses: tuple[str, str]
    decided_by: str = "reads of these partitions to their end, after the last send,"

    def judge(self, config: Config) -> Severity:
        """Return the severity of a finding in a history with this configuration."""
        if self.severity is Severity.INFORMATION:
            return Severity.INFORMATION
        if self.allowed_by(config):
            return Severity.EXPECTED
        undecided = self.severity is Severity.UNDECIDED or self.missing_settings(config)
        return Severity.UNDECIDED if undecided else Severity.VIOLATION

    def allowed_by(self, config: Config) -> list[str]:
        """Return the settings under which a correct Kafka shows this anomaly too."""
        return [condition for condition in self.expected_when if _holds(condition, config)]

    def missing_data(self, data: Collection[str], config: Config) -> list[str]:
        """Return what a history with these kinds of data lacks for this rule to find anything."""
        settings = {f"the setting {key}" for key, value in msgspec.structs.asdict(config).items() if value is not None}
        return [name for name in self.data if not set(name.split(" or ")) & (set(data) | settings)]

    def missing_settings(self, config: Config) -> list[str]:
        """Return the settings that decide the severity but are not in the configuration."""
        return [key for key in self.needs if getattr(config, key) is None]


def _holds(condition: str, config: Config) -> bool:
    key, _, value = condition.partition("=")
    actual = getattr(config, key)
    return actual is not None and str(actual).lower() == value


@cache
def anomalies() -> dict[int, Anomaly]:
    """Return the catalogue by rule."""
    catalogue = msgspec.convert(tomllib.loads(CATALOGUE.read_text())["anomaly"], list[Anomaly])
    return {anomaly.rule: anomaly for anomaly in catalogue}

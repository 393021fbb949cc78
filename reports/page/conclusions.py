"""State what the witnesses of a finding show together, by rule (`conclusions.toml`)."""

import tomllib
from functools import cache
from pathlib import Path

import msgspec

TABLE = Path(__file__).with_suffix(".toml")


class Conclusions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rules: dict[int, str]
    numbers: dict[int, str]
    beside: frozenset[int]

    def conclude(self, rule: int, partition: str, number: int) -> str:
        return self.rules[rule].format(offset=number, partition=partition)

    def place(self, rule: int, partition: str, number: int) -> str:
        """Return the position of a finding, such as "t-0, offset 7"."""
        what = self.numbers.get(rule, "offset")
        return ", ".join(part for part in (partition, f"{what} {number}" if what else "") if part)


@cache
def conclusions() -> Conclusions:
    return msgspec.convert(tomllib.loads(TABLE.read_text()), Conclusions, strict=False)

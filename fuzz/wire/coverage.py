"""What was reached: which field of which version was spoiled how, and what the target made of it."""

from collections import Counter
from typing import Any, Final

import msgspec

from reference.wire.registry import APIS

POINTS_MAX: Final = 250_000
"""Memory has a limit: to write so many takes 170 MB at its peak. 292,000 cases on the reference came to 22,700."""
Point = tuple[int, int, str, str, str]
"""Key, version, field, mutation, what came: error codes, `closed`, `silent`, `reset` or `left`."""


class Coverage:
    """Points with how often; `growth` is the number of points at each second, for the curve."""

    def __init__(self) -> None:
        self.points: Counter[Point] = Counter()
        self.growth: list[tuple[float, int, int]] = []

    def note(self, point: Point) -> bool:
        """Is it new?"""
        is_new = point not in self.points and len(self.points) < POINTS_MAX
        if is_new or point in self.points:
            self.points[point] += 1
        return is_new

    def mark(self, seconds: float, cases: int) -> None:
        self.growth.append((round(seconds, 1), cases, len(self.points)))

    def by_api(self) -> dict[str, dict[str, Any]]:
        """For the map: points, versions, mutations and answers of each API."""
        found: dict[str, dict[str, Any]] = {}
        for (key, version, field, mutation, came), count in self.points.items():
            name = APIS[key].name if key in APIS else str(key)
            row = found.setdefault(name, {"points": 0, "cases": 0, "versions": set(), "fields": set(),
                                          "mutations": Counter(), "answers": Counter()})  # fmt: skip
            row["points"] += 1
            row["cases"] += count
            row["versions"].add(version)
            row["fields"].add(field)
            row["mutations"][mutation] += count
            row["answers"][came] += count
        return found

    def rows(self) -> list[tuple[int, int, str, str, str, int]]:
        return [(*point, count) for point, count in sorted(self.points.items())]

    @classmethod
    def of(cls, rows: list[Any], growth: list[Any]) -> "Coverage":
        """As `rows` and `growth` told."""
        made = cls()
        for key, version, field, mutation, came, count in rows:
            made.points[int(key), int(version), field, mutation, came] = count
        made.growth = msgspec.convert(growth, list[tuple[float, int, int]])
        return made

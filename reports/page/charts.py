"""Compute the plots of a page as SVG geometry: time across, fault windows shaded."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from highwater.reports.page.leaders import UNKNOWN, Replicas, Term
from highwater.reports.page.series import Series
from highwater.reports.page.watch import Watched

WIDTH, LEFT, RIGHT, HEIGHT, TOP, BOTTOM = 960, 62, 10, 150, 8, 22
PARTITIONS_SHOWN = 12
PARTITION_HEIGHT = 27
Points = list[float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a plot: one value for each slot, None where there is none."""

    name: str
    style: str
    points: Points


def charts(watched: Watched) -> list[dict[str, Any]]:
    """Return the plots for which the history has data."""
    series = watched.series
    rate = 1 / series.width_s
    latency = [
        Line(name, style, [slot.sends.quantile(share) for slot in series.slots])
        for name, style, share in (("largest", "c3", 1.0), ("99 %", "c2", 0.99), ("median", "c1", 0.5))
    ]
    writes = [
        Line("records acknowledged", "c1", [slot.sends.count * rate for slot in series.slots]),
        Line("sends refused or of unknown outcome", "c3", [slot.sends_not_ok * rate for slot in series.slots]),
    ]
    reads = [Line("records read", "c2", [slot.records_read * rate for slot in series.slots])]
    lag = [Line("records behind", "c1", [slot.lag for slot in series.slots])]
    made = [
        _chart("Latency of sends, ms", latency, watched, log=True),
        _chart("Throughput of sends, per second", writes, watched),
        _chart("Throughput of reads, records per second", reads, watched),
        _chart("Lag of readers: the partition furthest behind its end, records", lag, watched),
    ]
    return [chart for chart in made if chart is not None]


def _chart(title: str, lines: list[Line], watched: Watched, *, log: bool = False) -> dict[str, Any] | None:
    drawn = [line for line in lines if any(line.points)]
    values = [value for line in drawn for value in line.points if value]
    if not values:
        return None
    ticks = _decades(min(values), max(values)) if log else _steps(max(values))
    low, high = (math.log10(ticks[0]), math.log10(ticks[-1])) if log else (0.0, ticks[-1])

    def y(value: float) -> float:
        place = (math.log10(max(value, ticks[0])) if log else value) - low
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - place / (high - low)), 1)

    across = _across(watched.duration_s)
    return {
        "title": title,
        "words": "; ".join(f"{line.name}: at most {_number(max(p for p in line.points if p is not None))}"
                           for line in drawn),
        "lines": [{"name": line.name, "style": line.style, "path": _path(line.points, watched.series, across, y)}
                  for line in drawn],
        "ticks": [{"y": y(tick), "text": _number(tick)} for tick in ticks],
        "height": HEIGHT,
        **_frame(watched, across),
    }  # fmt: skip


def leaders_chart(watched: Watched) -> dict[str, Any] | None:
    """Return a row for each partition with its leaders and in-sync replicas; None without data."""
    leaders = watched.leaders
    changes = {
        key: len(leaders.terms.get(key, ())) + len(leaders.in_sync.get(key, ()))
        for key in {*leaders.terms, *leaders.in_sync}
    }
    shown = sorted(sorted(changes, key=lambda key: (-changes[key], key))[:PARTITIONS_SHOWN])
    if not shown:
        return None
    across = _across(watched.duration_s)
    rows = [
        {
            "key": key,
            "y": TOP + PARTITION_HEIGHT * number,
            "terms": _spans([_term(term) for term in leaders.terms.get(key, ())], watched.duration_s, across),
            "in_sync": _spans(_in_sync(leaders.in_sync.get(key, [])), watched.duration_s, across),
        }
        for number, key in enumerate(shown)
    ]
    return {
        "rows": rows, "height": TOP + PARTITION_HEIGHT * len(rows) + BOTTOM, "left_out": len(changes) - len(shown),
        "has_in_sync": bool(leaders.in_sync),
        "words": "; ".join(f"{key}: {len(leaders.terms.get(key, ()))} leader epochs" for key in shown),
        **_frame(watched, across),
    }  # fmt: skip


def _term(term: Term) -> tuple[float, str, str]:
    """Return start in seconds, CSS class and text of a leader term."""
    shade = f"s{(term.leader if term.leader != UNKNOWN else term.epoch) % 4}"
    return (
        term.start_s,
        shade,
        f"epoch {term.epoch}" if term.leader == UNKNOWN else f"{term.leader} (epoch {term.epoch})",
    )


def _in_sync(replicas: list[Replicas]) -> list[tuple[float, str, str]]:
    """Return start, CSS class and text: all replicas in sync, fewer, or at most one."""
    most = max((len(replica.in_sync) for replica in replicas), default=0)
    styles = [
        "all" if len(replica.in_sync) == most else "few" if len(replica.in_sync) > 1 else "alone"
        for replica in replicas
    ]
    words = [f"in sync: {', '.join(map(str, replica.in_sync)) or 'none'}" for replica in replicas]
    return list(zip([replica.start_s for replica in replicas], styles, words, strict=True))


def _spans(
    changes: list[tuple[float, str, str]], duration_s: float, across: Callable[[float], float]
) -> list[dict[str, Any]]:
    """Turn changes into spans; a span ends where the next begins."""
    ends = [*(start_s for start_s, _, _ in changes[1:]), duration_s]
    return [
        {"x": across(start_s), "w": round(max(across(end_s) - across(start_s), 1.0), 1), "style": style, "text": text}
        for (start_s, style, text), end_s in zip(changes, ends, strict=False)
    ]


def _frame(watched: Watched, across: Callable[[float], float]) -> dict[str, Any]:
    windows = [
        {"x": across(window.start_s), "w": round(max(across(window.end_s) - across(window.start_s), 1.5), 1),
         "kind": window.kind, "title": f"{window.words} {window.start_s:.2f} to {window.end_s:.2f} s"}
        for window in watched.windows
    ]  # fmt: skip
    seconds = [{"x": across(second), "text": f"{_number(second)} s"} for second in _steps(watched.duration_s, 8)
               if second <= watched.duration_s]  # fmt: skip
    return {"windows": windows, "seconds": seconds, "width": WIDTH, "left": LEFT, "right": WIDTH - RIGHT}


def _across(duration_s: float) -> Callable[[float], float]:
    scale = (WIDTH - LEFT - RIGHT) / max(duration_s, 1e-9)
    return lambda second: round(LEFT + second * scale, 1)


def _path(points: Points, series: Series, across: Callable[[float], float], y: Callable[[float], float]) -> str:
    """Return an SVG path of steps, interrupted where there is no value."""
    parts, drawing = [], False
    for number, value in enumerate(points):
        if value is None:
            drawing = False
            continue
        height = y(value)
        parts.append(f"{'L' if drawing else 'M'}{across(number * series.width_s)} {height}")
        parts.append(f"H{across((number + 1) * series.width_s)}")
        drawing = True
    return "".join(parts)


def _steps(most: float, wanted: int = 4) -> list[float]:
    """Return round tick values from 0 to at least `most`."""
    rough = max(most, 1e-9) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def _decades(least: float, most: float) -> list[float]:
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"

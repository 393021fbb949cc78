"""The page of a bench: the verdicts on the claims, and for each table of a document our medians beside its figures."""

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from highwater.experiments.conditions import ERRORS, Measurement, Setting, unit_of
from highwater.experiments.documents import VALUE, Table, claims, matches, tables
from highwater.experiments.verdicts import Interval, Judgement, judge, median_interval
from highwater.pages import render, write

PAGE: Final = "index.html"
BAR: Final = 15
ROW_GAP: Final = 9
LABEL_WIDTH: Final = 330
PLOT_WIDTH: Final = 430
VALUE_WIDTH: Final = 230
NOT_SHOWN: Final = frozenset({"clients", "consumers", "producers"})
"""Settings that label a row only where they vary."""
ORDER: Final = ("protocol", "client", "dispatch", "killed", "fault", "acks")
"""Settings that come first in a label."""


def write_page(
    folder: Path, targets: Sequence[str], measurements: Sequence[Measurement], about: dict[str, str]
) -> Path:
    """Write the page of a bench and return its path; `about`: what the head of the page says, by name."""
    names = _targets(targets, measurements)
    judged = judgements(names, measurements)
    shown = [section for table in tables() if (section := _section(table, names, measurements)) is not None]
    text = render(
        "highwater.experiments", "experiments.html.j2",
        targets=names, verdicts=_verdict_rows(judged, names), sections=shown, about={**about, **machine()},
        counts=count_verdicts(judged),
    )  # fmt: skip
    return write(folder / PAGE, text)


def machine() -> dict[str, str]:
    """Return what the figures depend on besides the brokers."""
    return {
        "processors": str(os.cpu_count()),
        "system": platform.platform(terse=True),
        "Python": platform.python_version(),
    }


def _targets(targets: Sequence[str], measurements: Sequence[Measurement]) -> list[str]:
    """Return the targets in the order given, and then the simulator, if it was measured."""
    return list(dict.fromkeys([*targets, *(one.target for one in measurements)]))


# -- verdicts --------------------------------------------------------------------------------------


def judgements(targets: Sequence[str], measurements: Sequence[Measurement]) -> list[Judgement]:
    """Return the verdict on each claim for each target on which its table was measured at all."""
    by_id = {table.id: table for table in tables()}
    return [
        judge(claim, by_id[claim.table], target, measurements)
        for claim in claims()
        for target in targets
        if any(one.target == target and by_id[claim.table].repeated_by(one) for one in measurements)
    ]


def count_verdicts(judged: Iterable[Judgement]) -> dict[str, int]:
    found = [judgement.verdict.value for judgement in judged]
    return {name: found.count(name) for name in ("agrees", "disagrees", "undecided")}


def _verdict_rows(judged: list[Judgement], targets: list[str]) -> list[dict[str, Any]]:
    """Return a row for each claim, with the judgement of each target or None."""
    by_id = {table.id: table for table in tables()}
    rows = []
    for claim in claims():
        mine = {judgement.target: judgement for judgement in judged if judgement.claim is claim}
        if mine:
            rows.append(
                {"table": by_id[claim.table], "says": claim.says, "by_target": [mine.get(name) for name in targets],
                 "document": next(iter(mine.values())).document}
            )  # fmt: skip
    return rows


# -- one table of a document -----------------------------------------------------------------------


def _section(table: Table, targets: list[str], measurements: Sequence[Measurement]) -> dict[str, Any] | None:
    measured = {one.done for one in measurements if one.metrics}
    mine = [
        one
        for one in measurements
        if table.repeated_by(one) and not _is_marker(one) and not (one.failed and one.done in measured)
    ]
    if not mine:
        return None
    settings = _distinct(mine)
    metrics = [*table.metrics, *_errors(mine)]
    cells = {
        (_key(setting), target): [one for one in mine if one.settings == setting and one.target == target]
        for setting in settings
        for target in targets
    }
    varying = _varying(settings)
    rows = [
        {
            "label": label(setting, varying),
            "key": _key(setting),
            "setting": setting,
        }
        for setting in settings
    ]
    own = [target for target in targets if any(one.target == target for one in mine)]
    return {
        "table": table,
        "metrics": [
            _metric(table, metric, rows, own, cells) for metric in metrics if any(metric in one.metrics for one in mine)
        ],
        "missing": sorted({f"{one.target}: {label(one.settings, varying)}: {one.unsupported or one.failed}"
                           for one in mine if one.unsupported or one.failed}),
    }  # fmt: skip


def _is_marker(one: Measurement) -> bool:
    """Return whether this only marks that an experiment of many measurements is complete."""
    return not one.metrics and not one.unsupported and not one.failed


def _errors(measurements: Iterable[Measurement]) -> list[str]:
    return sorted({name for one in measurements for name in one.metrics if name.startswith(ERRORS)})


def _distinct(measurements: Iterable[Measurement]) -> list[dict[str, Setting]]:
    """Return the different settings, sorted as a reader expects: by each setting in turn."""
    found = {_key(one.settings): one.settings for one in measurements}
    if all("fault" in setting or "killed" in setting or "protocol" in setting for setting in found.values()):
        return list(found.values())  # in the order of the experiment
    return sorted(found.values(), key=lambda settings: [_sortable(settings[name]) for name in sorted(settings)])


def _sortable(value: Setting) -> tuple[int, int, str]:
    return (0, value, "") if isinstance(value, int) else (1, 0, value)


def _key(settings: dict[str, Setting]) -> str:
    return " ".join(f"{name}={settings[name]}" for name in sorted(settings))


def _varying(settings: Sequence[dict[str, Setting]]) -> list[str]:
    names = dict.fromkeys(name for one in settings for name in one)
    varying = [name for name in names if len({one.get(name) for one in settings}) > 1]
    return sorted(varying, key=lambda name: (name not in ORDER, name in NOT_SHOWN))


def label(settings: dict[str, Setting], varying: Sequence[str]) -> str:
    """Return the settings that tell this row from the others."""
    named = [(name, settings[name]) for name in varying if name in settings]
    parts = [
        str(value) if name in {"protocol", "client", "fault", "clients", "producer", "dispatch"} else f"{name}={value}"
        for name, value in named
        if not (name in {"min_insync_replicas", "queue_time_ms"} and value == 0)
        and not (name in {"producers", "consumers"} and value == 0)
    ]
    return ", ".join(parts) or "as the table says"


def _metric(
    table: Table, metric: str, rows: Sequence[dict[str, Any]], targets: Sequence[str],
    cells: dict[tuple[str, str], list[Measurement]],
) -> dict[str, Any]:  # fmt: skip
    """Return the plot of one metric: a group of bars for each row, one for each target and one for the document."""
    found = [
        (
            row,
            [_interval(cells[row["key"], target], metric) for target in targets],
            _published(table, metric, row["setting"]),
        )
        for row in rows
    ]
    found = [entry for entry in found if any(entry[1]) or entry[2] is not None]
    highest = max((one.high for _, intervals, _ in found for one in intervals if one), default=0.0)
    published = max((value for _, _, value in found if value is not None), default=0.0)
    y, groups = 0, []
    for row, intervals, value in found:
        known = [(number, one) for number, one in enumerate(intervals) if one is not None]
        bars = [_bar(one, number, y + BAR * place, highest) for place, (number, one) in enumerate(known)]
        if value is not None:
            place = y + BAR * len(known)
            bars.append(
                {"style": "doc", "y": place, "width": _width(value, published), "text": _words(value), "low": None}
            )
        height = BAR * max(1, len(bars))
        groups.append({"label": row["label"], "y": y + height / 2 + 4, "bars": bars})
        y += height + ROW_GAP
    return {
        "name": metric.replace("_", " "), "unit": unit_of(metric), "groups": groups, "height": y,
        "targets": list(targets),
        "has_document": published > 0, "width": LABEL_WIDTH + PLOT_WIDTH + VALUE_WIDTH, "left": LABEL_WIDTH,
    }  # fmt: skip


def _interval(measurements: Sequence[Measurement], metric: str) -> Interval | None:
    values = [one.metrics[metric] for one in measurements if metric in one.metrics]
    return median_interval(values) if values else None


def _published(table: Table, metric: str, settings: dict[str, Setting]) -> float | None:
    """Return the document's figure for these settings, if it gives one."""
    for figure in table.figures:
        known = {name: value for name, value in figure.items() if name != VALUE and name not in table.metrics}
        value = figure.get(metric, figure.get(VALUE) if metric == table.metrics[0] else None)
        if value is not None and matches(settings, known):  # type: ignore[arg-type]
            return float(value)
    return None


def _bar(one: Interval, number: int, y: int, highest: float) -> dict[str, Any]:
    alone = one.low == one.high
    between = "" if alone else f" ({_words(one.low)} to {_words(one.high)})"
    return {
        "style": f"b{number % 4}", "y": y, "width": _width(one.value, highest),
        "low": None if alone else _width(one.low, highest), "high": _width(one.high, highest),
        "text": _words(one.value) + between,
    }  # fmt: skip


def _width(value: float, highest: float) -> float:
    return round(PLOT_WIDTH * value / highest, 1) if highest else 0.0


def _words(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.2f}"

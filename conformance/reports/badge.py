"""SVG badge with the number of MUST cases that a target passes."""

from html import escape
from typing import Final

from highwater.conformance.report import TargetReport
from highwater.conformance.reports.junit import xml_text
from highwater.conformance.reports.matrix import deviations, tally
from highwater.conformance.running.verdicts import DECIDED, MUST, UNDECIDED, CaseVerdict, unexpected

LABEL: Final = "kafka conformance"
GREEN, AMBER, RED, GREY = "#2c7a34", "#8f6200", "#c0392b", "#666666"
CHARACTER: Final = 6.6
"""Width of Verdana's average character at 11 px; `textLength` makes up for the rest."""
PADDING: Final = 12


def badge(target: TargetReport) -> str:
    """Render the badge: red for an unexpected failure, amber for expected failures or undecided cases, else green."""
    must = [result for result in target.cases if result.level == MUST and result.verdict in DECIDED]
    kept = sum(result.verdict is CaseVerdict.PASS for result in must)
    return _svg(f"{kept} of {len(must)} MUST", _colour(target), f"{target.name}: {tally(target)}")


def _colour(target: TargetReport) -> str:
    if unexpected(target.cases, target.expectations):
        return RED
    if not any(result.verdict in DECIDED for result in target.cases):
        return GREY
    is_amber = any(
        result.verdict in UNDECIDED or result.level == MUST
        for result in (deviation.result for deviation in deviations(target))
    )
    return AMBER if is_amber else GREEN


def _svg(text: str, colour: str, title: str) -> str:
    left, right = (round(len(part) * CHARACTER) + PADDING for part in (LABEL, text))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{LABEL}: {escape(text)}">',
        f"<title>{escape(xml_text(title))}</title>",
        f'<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath>',
        f'<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#444"/>',
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/></g>',
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">',
        f'<text x="{left / 2:g}" y="14" textLength="{left - PADDING}">{LABEL}</text>',
        f'<text x="{left + right / 2:g}" y="14" textLength="{right - PADDING}">{escape(text)}</text>',
        "</g></svg>",
    ]
    return "".join(parts) + "\n"

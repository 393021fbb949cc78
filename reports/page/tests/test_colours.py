"""Text has a contrast of at least 4.5 with its background, in light and dark mode (WCAG 2.2, 1.4.3)."""

import re
from pathlib import Path

import pytest

from highwater import pages

SHEETS = [
    Path(pages.__file__).with_name("templates") / "page.css",
    Path(__file__).parents[2] / "templates" / "report.css",
]
LIGHT, DARK = map(
    "".join, zip(*(sheet.read_text().split("@media (prefers-color-scheme: dark)") for sheet in SHEETS), strict=True)
)
TEXT_ON_GROUND = [
    *((text, ground) for text in ("ink", "soft", "link") for ground in ("paper", "card")),
    ("ok", "okbg"), ("bad", "badbg"), ("maybe", "maybebg"), ("ink", "focusbg"),
]  # fmt: skip


def colours(css: str) -> dict[str, str]:
    return dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", css))


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXT_ON_GROUND)
def test_text_has_enough_contrast(text: str, ground: str, dark: bool) -> None:
    found = colours(LIGHT) | (colours(DARK) if dark else {})
    high, low = sorted((luminance(found[text]), luminance(found[ground])), reverse=True)
    assert (high + 0.05) / (low + 0.05) >= 4.5

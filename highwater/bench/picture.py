"""A picture of measured values: a row of dots for each thing that was measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Template

WIDTH, LEFT, ROW, TOP = 760, 300, 34, 46
DRAWING: Final = Template(
    """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{ width }} {{ height }}" font-family="sans-serif"
 font-size="12" role="img" aria-label="{{ title }}">
<rect width="100%" height="100%" fill="#fff"/><text x="12" y="20" font-size="14">{{ title }}</text>
{% for tick in ticks %}<line x1="{{ tick.x }}" x2="{{ tick.x }}" y1="{{ top - 8 }}" y2="{{ height - 24 }}"
 stroke="#ddd"/><text x="{{ tick.x }}" y="{{ height - 8 }}" text-anchor="middle">{{ tick.text }}{{ unit }}</text>
{% endfor %}{% for row in rows %}<text x="{{ left - 12 }}" y="{{ row.y + 4 }}" text-anchor="end">{{ row.name }}</text>
{% for x in row.dots %}<circle cx="{{ x }}" cy="{{ row.y }}" r="5" fill="{{ row.colour }}" fill-opacity=".6"/>
{% endfor %}{% endfor %}</svg>
""",
    autoescape=True,
)
REFERENCE, APACHE = "reference", "Apache Kafka"
COLOURS: Final = {REFERENCE: "#0b6e99", APACHE: "#c4551b"}


@dataclass(frozen=True, slots=True)
class Row:
    """The values of one thing, with its name and colour."""

    name: str
    values: Sequence[float]
    colour: str


def draw_rows(path: Path, title: str, rows: Sequence[Row], unit: str = "") -> Path:
    """Write the picture, with a tick for each whole number and its unit, and return its path."""
    longest = max((value for row in rows for value in row.values), default=1.0)
    scale = (WIDTH - LEFT - 24) / (int(longest) + 1)
    drawn = [
        {"name": row.name, "y": TOP + ROW * n, "dots": [LEFT + scale * v for v in row.values], "colour": row.colour}
        for n, row in enumerate(rows)
    ]
    ticks = [{"x": LEFT + scale * number, "text": number} for number in range(int(longest) + 2)]
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        DRAWING.render(
            width=WIDTH, height=TOP + ROW * len(rows) + 16, title=title, rows=drawn, ticks=ticks, top=TOP, left=LEFT,
            unit=unit,
        )
    )  # fmt: skip
    return path

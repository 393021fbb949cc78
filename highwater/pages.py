"""Self-contained HTML pages: one environment for all templates, and the frame that they extend (`templates`).

A page has a template in the folder `templates` of its package. The frame has the head, the colours of both schemes, and
the blocks `title`, `style`, `page` (inside `main`) and `script`. Values are escaped, and an unknown name is an error.
"""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from highwater.errors import UsageError


def render(package: str, template: str, **values: Any) -> str:
    """Return the page that a template of a package makes of these values."""
    return _environment(package).get_template(template).render(**values)


def write(path: Path, text: str) -> Path:
    """Write a hidden file, then rename it: an interruption leaves no half page. Raises UsageError."""
    hidden = path.with_name(f".{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden.write_text(text, encoding="utf-8")
        hidden.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write the page ({error.strerror})", where=str(path), hint="name another") from error
    return path


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("highwater")]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["thousands"] = lambda number: f"{number:,}"
    return environment

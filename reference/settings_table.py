"""Write the tables of settings in `reference/README.md`: `python -m highwater.reference.settings_table`."""

import re
from pathlib import Path
from typing import Final

from highwater.reference.configuration.topic_values import SETTINGS

README: Final = Path(__file__).with_name("README.md")
MARK: Final = "<!-- settings: python -m highwater.reference.settings_table -->"
END: Final = "<!-- end -->"


def unused_settings() -> str:
    """Return the Markdown table of the topic settings that are accepted without effect, each with the reason."""
    rows = [f"| `{name}` | {setting.unused} |" for name, setting in SETTINGS.items() if setting.unused]
    return "\n".join(["| accepted without effect | because |", "|---|---|", *rows])


def update_table(text: str) -> str:
    """Return the text of README.md with the table generated again."""
    body = f"{MARK}\n{unused_settings()}\n{END}"
    text, replaced = re.subn(rf"(?s){re.escape(MARK)}.*?{END}", lambda _: body, text)
    assert replaced == 1, "README.md has no place for the table of settings"
    return text


if __name__ == "__main__":
    README.write_text(update_table(README.read_text()))

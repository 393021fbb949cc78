"""The drawing of ARCHITECTURE.md is that of the imports, and the files that the page names exist."""

import ast
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "ARCHITECTURE.md").read_text()
FOLDERS: Final = ("highwater", "reports", "fuzz", "conformance", "reference", "spec")
ARROW: Final = re.compile(r"^    (?:\w+\[)?(\w+)\]? --> (.+)$", re.MULTILINE)
FILE: Final = re.compile(r"`([\w/]+/[\w/]*\w\.(?:py|toml))`")


def imported(path: Path) -> set[str]:
    """Return the folders that a module imports from; the small modules of `highwater` are below all of them."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("highwater.")} & set(FOLDERS)


def test_the_drawing_shows_which_folder_imports_which() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: dict[str, set[str]] = defaultdict(set)
    for name in listed.split():
        folder = name.split("/")[0]
        if folder in FOLDERS and "/tests/" not in name:
            found[folder] |= imported(ROOT / name) - {folder}
    drawn = {source: set(targets.split(" & ")) for source, targets in ARROW.findall(PAGE)}
    assert drawn == {folder: targets for folder, targets in found.items() if targets}


def test_each_file_that_the_page_names_exists() -> None:
    folders = [ROOT, *(ROOT / name for name in FOLDERS), *(ROOT / "fuzz" / name for name in ("wire", "explore"))]
    missing = [name for name in FILE.findall(PAGE) if not any((folder / name).exists() for folder in folders)]
    assert not missing

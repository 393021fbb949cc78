"""Plain words: tracked text does not use the metaphors and pronouns that earlier versions used instead of terms.

`vocabulary.toml` lists the words, with what to write instead, and how often a file may still use them. A file that uses
one less often than listed must be listed anew (`python -m highwater.tests.test_vocabulary`), so the list only shrinks.
"""

import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = Path(__file__).with_name("vocabulary.toml")
READ: Final = (".py", ".md", ".toml", ".tla", ".cfg", ".j2", ".js", ".css", ".ini", ".yml", ".go", "Makefile", "run")
PART: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
HEAD: Final = """\
# Words that the text of this repository does not use, with what to write instead (test_vocabulary.py).
"""


def tracked() -> list[str]:
    """Return the text files of the repository, or none outside a checkout."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    own = {str(path.relative_to(ROOT)) for path in (TABLE, Path(__file__))}
    names = sorted(set(listed.splitlines()) - own)  # a conflicted file is listed once for each side
    return [name for name in names if name.endswith(READ) and (ROOT / name).exists()]


def used(text: str, words: dict[str, str]) -> dict[str, int]:
    """Return how often each of the words is in the text, also as a part of a name such as `told_of` or `IsTold`."""
    counts = Counter(part.lower() for part in PART.findall(text))
    return {word: counts[word] for word in words if counts[word]}


def table() -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    read = tomllib.loads(TABLE.read_text())
    return read["instead"], read.get("allowed", {})


@pytest.mark.parametrize("name", tracked())
def test_a_file_uses_no_word_of_the_list_more_often_than_allowed(name: str) -> None:
    words, allowed = table()
    found = used((ROOT / name).read_text(errors="replace"), words)
    more = {word: words[word] for word, count in found.items() if count > allowed.get(name, {}).get(word, 0)}
    assert more == {}, f"{name}: write instead"
    fewer = {word: found.get(word, 0) for word, count in allowed.get(name, {}).items() if found.get(word, 0) < count}
    assert fewer == {}, "fewer than listed; run: python -m highwater.tests.test_vocabulary"


def test_the_list_names_files_that_exist() -> None:
    assert set(table()[1]) <= set(tracked())


def rewrite() -> None:
    """Write the table again with what the files use today."""
    words, _ = table()
    lines = [HEAD, "[instead]"] + [f'{word} = "{instead}"' for word, instead in words.items()] + ["", "[allowed]"]
    for name in tracked():
        found = used((ROOT / name).read_text(errors="replace"), words)
        if found:
            inner = ", ".join(f"{word} = {count}" for word, count in found.items())
            lines.append(f'"{name}" = {{ {inner} }}')
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    rewrite()

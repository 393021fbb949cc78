"""Print the C files that mypyc writes for the modules in the current folder: `generate FILE...`, one JSON object.

A process of its own, because mypyc ends the process after an error.
"""

import json
import sys

from mypyc.build import mypycify

CONFIG = "mypy.ini"


def main(paths: list[str]) -> None:
    extensions = mypycify(["--config-file", CONFIG, *paths], multi_file=True, group_name="highwater_native")
    described = [{"name": each.name, "sources": each.sources, "include_dirs": each.include_dirs} for each in extensions]
    print(json.dumps(described))


if __name__ == "__main__":
    main(sys.argv[1:])

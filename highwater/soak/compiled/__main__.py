"""Run a command with the compiled simulator: `python -m highwater.soak.compiled simulate --seeds 0:10000`.

The arguments are those of `highwater`, or `-m MODULE ...` as for Python: `-m highwater.experiments.figures sweep`.
Without arguments the modules are only compiled, if this version is not in the cache yet.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

from highwater.errors import ExitCode, UsageError
from highwater.soak.compiled.build import compiled_tree


def environment(tree: Path) -> dict[str, str]:
    """Return the environment in which Python imports the compiled package, and not one in the working directory."""
    paths = [str(tree), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


def command(arguments: list[str]) -> list[str]:
    """Return the command that runs `-m MODULE ...`, or else `highwater` with these arguments."""
    return [sys.executable, *([] if arguments[:1] == ["-m"] else ["-m", "highwater"]), *arguments]


def run_compiled(arguments: list[str]) -> NoReturn:
    """Compile the modules unless the cache has them, and replace this process by the command."""
    tree = compiled_tree()
    os.execve(sys.executable, command(arguments), environment(tree))


def main(arguments: list[str]) -> None:
    try:
        if not arguments:
            print(compiled_tree())
        else:
            run_compiled(arguments)
    except UsageError as error:
        print(f"highwater: {error}", file=sys.stderr)
        raise SystemExit(ExitCode.USAGE) from None


if __name__ == "__main__":
    main(sys.argv[1:])

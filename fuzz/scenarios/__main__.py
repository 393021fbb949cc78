"""`python -m highwater.fuzz.scenarios [--rewrite]`: run all scenarios, or rewrite their golden output."""

import sys

from highwater.fuzz.scenarios import group_runner
from highwater.fuzz.scenarios.group_runner import GroupScenario
from highwater.fuzz.scenarios.runner import SEPARATOR, Scenario, files, split


def main() -> None:
    """Run every scenario and print whether its output equals the golden output."""
    scenarios = [(path, Scenario) for path in files()] + [(path, GroupScenario) for path in group_runner.files()]
    for path, kind in scenarios:
        script, golden = split(path.read_text())
        output = kind().run(script)
        if "--rewrite" in sys.argv:
            path.write_text(f"{script}{SEPARATOR}\n{output}")
            golden = output
        print(f"{'ok  ' if output == golden else 'DIFF'} {path.name}")


if __name__ == "__main__":
    main()

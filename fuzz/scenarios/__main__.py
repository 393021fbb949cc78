"""`python -m highwater.fuzz.scenarios [--rewrite]`: run all scenarios, or write their golden output anew."""

import sys

from highwater.fuzz.scenarios import group_runner
from highwater.fuzz.scenarios.group_runner import GroupScenario
from highwater.fuzz.scenarios.runner import SEPARATOR, Scenario, files, split


def main() -> None:
    stories = [(path, Scenario) for path in files()] + [(path, GroupScenario) for path in group_runner.files()]
    for path, kind in stories:
        script, golden = split(path.read_text())
        got = kind().run(script)
        if "--rewrite" in sys.argv:
            path.write_text(f"{script}{SEPARATOR}\n{got}")
            golden = got
        print(f"{'ok  ' if got == golden else 'DIFF'} {path.name}")


if __name__ == "__main__":
    main()

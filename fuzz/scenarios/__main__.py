"""`python -m fuzz.scenarios [--rewrite]`: run all scenarios, or write their golden output anew."""

import sys

from fuzz.scenarios.runner import SEPARATOR, Scenario, files, run_file, split


def main() -> None:
    for path in files():
        if "--rewrite" in sys.argv:
            script, _ = split(path.read_text())
            path.write_text(f"{script}{SEPARATOR}\n{Scenario().run(script)}")
        got, golden = run_file(path)
        print(f"{'ok  ' if got == golden else 'DIFF'} {path.name}")


if __name__ == "__main__":
    main()

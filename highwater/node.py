"""Run one node: `python -m highwater.node --config FILE [--trace FOLDER]`.

It does what `highwater broker --config FILE` does.  A cluster starts its nodes with this program: it imports no library
for command lines, which takes a third of the time in which a node starts.
"""

from argparse import ArgumentParser
from pathlib import Path

from highwater.command_line import failure_in_one_line
from highwater.reference.configuration.properties import read_config
from highwater.reference.drivers.process import run_node


def main() -> None:
    parser = ArgumentParser(prog="python -m highwater.node", description="Run one node of the reference broker.")
    parser.add_argument("--config", type=Path, required=True, help="TOML file of the node")
    parser.add_argument("--trace", type=Path, help="folder for the trace of the node")
    given = parser.parse_args()
    with failure_in_one_line("broker"):
        run_node(read_config(given.config), lambda address: print(f"ready {address}", flush=True), trace=given.trace)


if __name__ == "__main__":
    main()

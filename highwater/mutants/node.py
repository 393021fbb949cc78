"""Run one node with mutants: `python -m highwater.mutants.node NAME[,NAME...] --config FILE [--trace FOLDER]`.

A cluster of such nodes is `ReferenceTarget(node_program=node_with(...))`. No module of the broker may be imported
before the mutants are in place.
"""

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from highwater.mutants.mutation import load_instead
from highwater.mutants.table import planted, wire_rows


def node_with(names: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of Python that run a node with rows of the set `wire`; UsageError for an unknown one."""
    wire_rows(names)
    return ("-m", __name__, ",".join(names))


def main() -> None:
    parser = ArgumentParser(prog=f"python -m {__spec__.name}", description="Run one node with mutants.")
    parser.add_argument("names", help="rows of the set `wire`, separated by commas")
    parser.add_argument("--config", type=Path, required=True, help="TOML file of the node")
    parser.add_argument("--trace", type=Path, help="folder for the trace of the node")
    given = parser.parse_args()
    for mutant in planted(wire_rows(given.names.split(","))):
        load_instead(mutant, ())

    from highwater.reference.configuration.properties import read_config
    from highwater.reference.drivers.process import run_node

    run_node(read_config(given.config), lambda address: print(f"ready {address}", flush=True), trace=given.trace)


if __name__ == "__main__":
    main()

"""Run a node of the reference whose connections have planted defects.

`python -m highwater.fuzz.wire.defects.node DEFECT[,DEFECT...] --config FILE`. A cluster of such nodes is
`ReferenceTarget(node_program=defective(...))`. The configuration of the shipped broker has no defects.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from highwater.fuzz.wire.defects.connection import DefectiveConnection
from highwater.fuzz.wire.defects.requests import crash_if_poisoned
from highwater.fuzz.wire.defects.table import check_defects
from highwater.reference.configuration.properties import read_config
from highwater.reference.drivers.process import run_node


def defective(names: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of Python that run a node with these defects; UsageError for an unknown one."""
    check_defects(names)
    return ("-m", "highwater.fuzz.wire.defects.node", ",".join(names))


def main(
    defects: str, config: Annotated[Path, typer.Option()], trace: Annotated[Path | None, typer.Option()] = None
) -> None:
    """Run the node that this TOML file describes, with the defects."""
    names = defects.split(",")
    check_defects(names)
    crash_if_poisoned(config)
    run_node(
        read_config(config),
        lambda address: print(f"ready {address}", flush=True),
        trace=trace,
        connection=lambda driver, listener: DefectiveConnection(driver, listener, names),
    )


if __name__ == "__main__":
    typer.run(main)

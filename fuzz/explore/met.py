"""Write `met.json` again, what each program met on the reference: `python -m highwater.fuzz.explore.met`.

It has error codes by API; a run of `highwater explore` names those that it did not meet.
"""

from pathlib import Path
from typing import Final

import msgspec

from highwater.conformance.cases.programs import PROGRAMS
from highwater.conformance.targets import open_target
from highwater.fuzz.explore.explorer import Explorer
from highwater.fuzz.explore.ground import Ground

MET: Final = Path(__file__).with_name("met.json")
SECONDS: Final = 5.0
Met = dict[str, dict[str, list[int]]]
"""Error codes by program and API."""


def read_met() -> Met:
    return msgspec.json.decode(MET.read_bytes(), type=Met)


def met_on_the_reference(program: str) -> dict[str, list[int]]:
    """Walk a program; return the error codes by API, or nothing if it does not fit."""
    with open_target("simulator:3") as target:
        explorer = Explorer(Ground(target), [program], SECONDS, run_seed=1)
        explorer.run()
    assert not explorer.differences, "the reference gives the answers of the models"
    found: dict[str, list[int]] = {}
    for transition in sorted(explorer.coverage.transitions) if explorer.coverage.walks else ():
        found.setdefault(transition.api, []).append(transition.error)
    return found


def main() -> None:
    met = {program: met_on_the_reference(program) for program in PROGRAMS}
    lines = (f'  "{program}": {msgspec.json.encode(codes).decode()}' for program, codes in met.items() if codes)
    MET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

"""Check that a proof and its TLA+ module define the same transition system, on all states of a tiny instance.

`XCore.tla`, in the folder of each proof, is the transition system of the proof, written in TLA+ by hand.  States have
the form that `explicit.py` defines, without history variables; the initial state is that of `Protocol.start`.
"""

import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError
from highwater.spec.proofs.explicit import Explicit
from highwater.spec.proofs.language import Protocol
from highwater.spec.tlc.run import Options, run_tlc
from highwater.spec.tlc.values import parse

SPEC: Final = Path(__file__).parents[1]
PRINTED: Final = re.compile(r'^<<\s*"STATE",', re.MULTILINE)
TIMEOUT_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The number of states that both reach, and the states that only one of them reaches."""

    both: int
    proof_only: frozenset[Any]
    tla_only: frozenset[Any]
    seconds: float

    @property
    def text(self) -> str:
        if self.same:
            return f"the same {self.both:,} states as the TLA+ module ({self.seconds:.0f} s)"
        only = f"{len(self.proof_only):,} states only in the proof, {len(self.tla_only):,} only in TLA+"
        return f"{only}, {self.both:,} in both"

    @property
    def same(self) -> bool:
        return self.both > 1 and not self.proof_only and not self.tla_only


def compare(
    protocol: Protocol, *, constants: Mapping[str, int] | None = None, off: frozenset[str] = frozenset()
) -> Comparison:
    """Compare all reachable states of the tiny instance; `constants` replace those of the cfg for another instance."""
    started = time.monotonic()
    explicit = Explicit(protocol, protocol.tiny, protocol.start, off)
    proof = frozenset(map(explicit.as_tla, explicit.reachable()))
    tla = tla_states(protocol, sorted(next(iter(proof))), constants or {})
    return Comparison(len(proof & tla), proof - tla, tla - proof, time.monotonic() - started)


def core_module(protocol: Protocol) -> Path:
    """Return the path of the TLA+ module of a protocol."""
    name = "".join(word.capitalize() for word in protocol.name.split("_"))
    return SPEC / protocol.name / f"{name}Core.tla"


def tla_states(protocol: Protocol, variables: list[str], constants: Mapping[str, int]) -> frozenset[Any]:
    """Return the states that TLC finds, printed by an invariant that is always true."""
    core = core_module(protocol)
    record = ", ".join(f"{name} |-> {name}" for name in variables)
    with tempfile.TemporaryDirectory(prefix="highwater-core-") as scratch:
        module, config = Path(scratch, "Shown.tla"), Path(scratch, "Shown.cfg")
        module.write_text(
            f"---- MODULE Shown ----\nEXTENDS {core.stem}, TLC\n"
            f'Shown == Bounds => PrintT(<<"STATE", [{record}]>>)\n====\n'
        )
        settings = core.with_suffix(".cfg").read_text()
        for name, value in constants.items():
            settings = re.sub(rf"\b{name} = \w+", f"{name} = {value}", settings)
        config.write_text(f"{settings}\nINVARIANTS Shown\n")
        result = run_tlc(module, config, Options(library=(core.parent,), timeout_s=TIMEOUT_S))
    if result.verdict != "valid":
        reason = result.reason or f"{result.broken} is violated"
        raise UsageError(f"TLC did not finish: {reason}", where=str(core), hint="run it with more time")
    text = "\n".join(result.lines)
    starts = [match.start() for match in PRINTED.finditer(text)]
    ends = [*starts[1:], len(text)]
    return frozenset(parse(text[start:end])[1] for start, end in zip(starts, ends, strict=True))

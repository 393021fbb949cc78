"""Do proof and TLA+ mean the same? Both are asked for every state of a tiny instance, and the two sets are compared.

Beside each proof stands `XCore.tla`: the transition system that is proved, written by hand in TLA+.  States are told as
`explicit.py` says, without history variables; the start is the one that `Protocol.start` describes.
"""

import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spec.formats.verdict import UsageError
from spec.proofs.explicit import Explicit
from spec.proofs.language import Protocol
from spec.tla_values import parse
from spec.tlc import Options, run_tlc

SPEC: Final = Path(__file__).parents[1]
PRINTED: Final = re.compile(r'^<<\s*"STATE",', re.MULTILINE)
TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """States that both have, and those that only one of them has."""

    both: int
    proof_only: frozenset[Any]
    tla_only: frozenset[Any]
    seconds: float

    @property
    def text(self) -> str:
        if self.same:
            return f"the same {self.both:,} states as the TLA+ module ({self.seconds:.0f} s)"
        return f"{len(self.proof_only):,} states only here, {len(self.tla_only):,} only in TLA+, {self.both:,} in both"

    @property
    def same(self) -> bool:
        return self.both > 1 and not self.proof_only and not self.tla_only


def compare(
    protocol: Protocol, *, constants: Mapping[str, int] | None = None, off: frozenset[str] = frozenset()
) -> Comparison:
    """All reachable states of the tiny instance; `constants` replace those of the cfg, if the instance is another."""
    started = time.monotonic()
    explicit = Explicit(protocol, protocol.tiny, protocol.start, off)
    proof = frozenset(map(explicit.told, explicit.reachable()))
    tla = tla_states(protocol, sorted(next(iter(proof))), constants or {})
    return Comparison(len(proof & tla), proof - tla, tla - proof, time.monotonic() - started)


def core_module(protocol: Protocol) -> Path:
    name = "".join(word.capitalize() for word in protocol.name.split("_"))
    return SPEC / protocol.name / f"{name}Core.tla"


def tla_states(protocol: Protocol, variables: list[str], constants: Mapping[str, int]) -> frozenset[Any]:
    """What TLC finds: an invariant that always holds prints each state."""
    core = core_module(protocol)
    shown = ", ".join(f"{name} |-> {name}" for name in variables)
    with tempfile.TemporaryDirectory(prefix="highwater-core-") as scratch:
        module, config = Path(scratch, "Shown.tla"), Path(scratch, "Shown.cfg")
        module.write_text(
            f"---- MODULE Shown ----\nEXTENDS {core.stem}, TLC\n"
            f'Shown == Bounds => PrintT(<<"STATE", [{shown}]>>)\n====\n'
        )
        settings = core.with_suffix(".cfg").read_text()
        for name, value in constants.items():
            settings = re.sub(rf"\b{name} = \w+", f"{name} = {value}", settings)
        config.write_text(f"{settings}\nINVARIANTS Shown\n")
        result = run_tlc(module, config, Options(library=(core.parent,), timeout_s=TIMEOUT_S))
    if result.verdict != "valid":
        said = result.reason or f"{result.broken} is violated"
        raise UsageError(f"TLC did not finish: {said}", where=str(core), mend="run it with more time")
    text = "\n".join(result.lines)
    starts = [found.start() for found in PRINTED.finditer(text)]
    ends = [*starts[1:], len(text)]
    return frozenset(parse(text[start:end])[1] for start, end in zip(starts, ends, strict=True))

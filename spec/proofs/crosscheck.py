"""Check that a proof and its TLA+ module define the same transition system, on two instances.

`compare` compares all states of a tiny instance, which takes minutes for some proofs.  `compare_steps` compares every
step from some states of a larger one, in seconds.

`XCore.tla`, in the folder of each proof, is the transition system of the proof, written in TLA+ by hand.  States have
the form that `explicit.py` defines, without history variables; the initial state is that of `Protocol.start`.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError
from highwater.spec.proofs.explicit import Explicit, larger
from highwater.spec.proofs.language import Protocol
from highwater.spec.tlc.messages import TlcResult
from highwater.spec.tlc.run import Options, run_tlc
from highwater.spec.tlc.values import Function, parse, to_tla
from highwater.temporary import temporary_folder

SPEC: Final = Path(__file__).parents[1]
PRINTED: Final = re.compile(r'^<<\s*"(?:STATE|STEP)",', re.MULTILINE)
BOUND: Final = re.compile(r"\bMax(\w+) = (\d+)")
MEMBERS: Final = re.compile(r"= \{([^}]*)\}")
TIMEOUT_S: Final = 900.0
SAMPLED: Final = 800
"""So many states: a few seconds for each proof, and every action is followed some tens of times."""
STEPS: Final = """\
---- MODULE Sampled ----
EXTENDS {core}, Sequences, TLC
{members}
VARIABLES number, moved
Samples == <<
{samples}
>>
SampledInit == \\E n \\in 1 .. Len(Samples) : number = n /\\ moved = FALSE /\\ {initial}
SampledNext == ~moved /\\ moved' = TRUE /\\ UNCHANGED number /\\ Next
Shown == moved /\\ Bounds => PrintT(<<"STEP", number, [{record}]>>)
====
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The number of states or steps that both have, and those that only one of them has."""

    both: int
    proof_only: frozenset[Any]
    tla_only: frozenset[Any]
    seconds: float
    what: str = "states"

    @property
    def text(self) -> str:
        if self.same:
            return f"the same {self.both:,} {self.what} as the TLA+ module ({self.seconds:.0f} s)"
        only = f"{len(self.proof_only):,} {self.what} only in the proof, {len(self.tla_only):,} only in TLA+"
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


def compare_steps(protocol: Protocol, *, count: int = SAMPLED, off: frozenset[str] = frozenset()) -> Comparison:
    """Compare every step from `count` states of an instance that is one larger than the tiny one in each number.

    A step is the number of the sampled state and the state after it; steps that change nothing are left out.
    """
    started = time.monotonic()
    explicit = Explicit(protocol, larger(protocol), protocol.start, off)
    sampled = explicit.sampled(count, seed=0)
    states = [explicit.as_tla(cells) for cells in sampled]
    proof = {
        (number, explicit.as_tla(after))
        for number, (cells, steps) in enumerate(sampled.items(), 1)
        for _, after in steps
        if after != cells
    }
    tla = {(number, after) for number, after in _tla_steps(protocol, states) if after != states[number - 1]}
    return Comparison(
        len(proof & tla), frozenset(proof - tla), frozenset(tla - proof), time.monotonic() - started, "steps"
    )


def core_module(protocol: Protocol) -> Path:
    """Return the path of the TLA+ module of a protocol."""
    name = "".join(word.capitalize() for word in protocol.name.split("_"))
    return SPEC / protocol.name / f"{name}Core.tla"


def tla_states(protocol: Protocol, variables: list[str], constants: Mapping[str, int]) -> frozenset[Any]:
    """Return the states that TLC finds, printed by an invariant that is always true."""
    core = core_module(protocol)
    record = ", ".join(f"{name} |-> {name}" for name in variables)
    with temporary_folder("core-") as scratch:
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
    return frozenset(printed[1] for printed in _printed(result, core))


def _tla_steps(protocol: Protocol, states: Sequence[Function]) -> set[tuple[int, Any]]:
    """Return what TLC finds after one step from each of these states, with the number of the state, from 1."""
    core = core_module(protocol)
    names = sorted(states[0])
    settings = BOUND.sub(lambda found: f"Max{found[1]} = {int(found[2]) + 1}", core.with_suffix(".cfg").read_text())
    settings = re.sub(r"(?m)^(SPECIFICATION|CONSTRAINT) .*$", "", settings)
    members = [name.strip() for group in MEMBERS.findall(settings) for name in group.split(",")]
    text = STEPS.format(
        core=core.stem,
        members=f"CONSTANTS {', '.join(members)}" if members else "",
        samples=",\n".join(map(to_tla, states)),
        initial=" /\\ ".join(f"{name} = Samples[n].{name}" for name in names),
        record=", ".join(f"{name} |-> {name}" for name in names),
    )
    with temporary_folder("core-") as scratch:
        module, config = Path(scratch, "Sampled.tla"), Path(scratch, "Sampled.cfg")
        module.write_text(text)
        given = "".join(f"    {name} = {name}\n" for name in members)
        config.write_text(f"INIT SampledInit\nNEXT SampledNext\n{settings}\n{given}INVARIANTS Shown\n")
        result = run_tlc(module, config, Options(library=(core.parent,), timeout_s=TIMEOUT_S))
    return {(number, after) for _, number, after in _printed(result, core)}


def _printed(result: TlcResult, core: Path) -> Iterator[Any]:
    """Yield the values that TLC printed; raise UsageError if it did not finish."""
    if result.verdict != "valid":
        reason = result.reason or f"{result.broken} is violated"
        raise UsageError(f"TLC did not finish: {reason}", where=str(core), hint="run it with more time")
    text = "\n".join(result.lines)
    starts = [match.start() for match in PRINTED.finditer(text)]
    ends = [*starts[1:], len(text)]
    for start, end in zip(starts, ends, strict=True):
        yield parse(text[start:end])

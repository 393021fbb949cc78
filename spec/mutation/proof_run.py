"""Judge the mutants of the proofs: the claims, the runs to each action, or the states must notice a changed action.

A mutant is killed if, in the finite instance, an action no longer preserves a claim, if an action can no longer be
taken, or if one of the steps that `highwater spec prove` compares with `XCore.tla` is another.  Each is judged in a
process of its own, `python -m highwater.spec.mutation.proof_run PROTOCOL MODULE DEFINITION` with the changed module on
standard input, so that one that does not end can be stopped.
"""

import hashlib
import importlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec

from highwater.processes import python_command
from highwater.spec.models import FOLDER
from highwater.spec.mutation.changes import Change
from highwater.spec.mutation.proof_changes import proof_changes
from highwater.spec.mutation.run import Judged, Outcome, Update, chosen, judge_cached, known_folders
from highwater.spec.proofs.bounded import runs_to_actions
from highwater.spec.proofs.crosscheck import SAMPLED
from highwater.spec.proofs.explicit import Cells, Explicit, larger
from highwater.spec.proofs.language import Action, Protocol
from highwater.spec.proofs.prove import FiniteStep, Query
from highwater.spec.proofs.report import MODULES, PROTOCOLS, load
from highwater.spec.tlc.parallel import in_parallel

COMMON: Final = "highwater.spec.proofs.commitment"
SHARED: Final = {"proofs": ("hw_truncation", "isr_commit")}
"""The protocols whose actions are partly in another module than their own."""


def mutate_proofs(
    names: Sequence[str] = (),
    on_outcome: Update | None = None,
    *,
    count: int = 0,
    seed: int = 0,
    limit_s: float,
    jobs: int = 0,
) -> list[Judged]:
    """Judge the mutants of these proofs as `mutate` judges those of the modules; `proofs` is what two of them share."""
    folders = known_folders(names, (*PROTOCOLS, *SHARED))
    wanted = [(name, change) for name in folders for change in mutants_of_proof(name, count, seed)]

    def judge(item: tuple[str, Change]) -> Judged:
        name, change = item
        outcome = judge_cached(change, _fingerprint(change, limit_s), lambda: _judge(name, change, limit_s))
        if on_outcome:
            on_outcome(change, outcome)
        return change, outcome

    return in_parallel(judge, wanted, jobs)


def mutants_of_proof(name: str, count: int = 0, seed: int = 0) -> list[Change]:
    """Return the mutants of a proof's own module, or of the shared one, or a random choice of `count` of them.

    Actions that exist only while a guard is off are not changed.
    """
    if name in SHARED:
        return chosen(proof_changes(FOLDER / name / "commitment.py"), count, seed)
    only_without = {action.run.__name__ for action in load(name).actions if action.without}
    found = [each for each in proof_changes(FOLDER / name / "proof.py") if each.definition not in only_without]
    return chosen(found, count, seed)


@cache
def _sources() -> bytes:
    paths = sorted({*(FOLDER / "proofs").glob("*.py"), *FOLDER.glob("*/proof.py"), Path(__file__)})
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).digest()


def _fingerprint(change: Change, limit_s: float) -> str:
    return hashlib.sha256(_sources() + repr((change.text, limit_s)).encode()).hexdigest()[:32]


def _judge(name: str, change: Change, limit_s: float) -> Outcome:
    """Judge a mutant with every protocol that contains it, until one kills it."""
    outcomes: list[Outcome] = []
    for protocol in SHARED.get(name, (name,)):
        command = python_command("-m", __spec__.name, protocol, COMMON if name in SHARED else MODULES[name])
        try:
            done = subprocess.run(
                [*command, change.definition],
                input=change.text,
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            outcomes.append(Outcome(fate="survived", undecided=(protocol,), seconds=limit_s))
            continue
        if done.returncode:
            return Outcome(fate="not counted", why=done.stderr.strip().splitlines()[-1], model=protocol)
        outcomes.append(msgspec.json.decode(done.stdout, type=Outcome))
        if outcomes[-1].fate == "killed":
            return outcomes[-1]
    undecided = tuple(each for outcome in outcomes for each in outcome.undecided)
    return Outcome(fate="survived", undecided=undecided, seconds=sum(outcome.seconds for outcome in outcomes))


# -- in the process of one mutant ------------------------------------------------------------------------------------


def verdict(original: Protocol, mutated: Protocol, definition: str) -> Outcome:
    """Return what becomes of a protocol in which one definition was changed."""
    for why in (
        *_broken_claims(mutated, definition),
        *_lost_actions(mutated),
        *_other_steps(original, mutated, definition),
    ):
        return Outcome(fate="killed", why=why, model=original.name)
    return Outcome(fate="survived")


def _changed_actions(protocol: Protocol, definition: str) -> tuple[Action, ...]:
    """Return the action that a definition is, or all if several may use it."""
    actions = protocol.actions_without(frozenset())
    return tuple(action for action in actions if action.run.__name__ == definition) or actions


def _broken_claims(protocol: Protocol, definition: str) -> Iterator[str]:
    for action in _changed_actions(protocol, definition):
        finite = FiniteStep(protocol, action, frozenset())
        for claim in (*protocol.invariant, *protocol.steps):
            found = finite.core(claim)
            if isinstance(found, Query):
                yield f"{claim.name} breaks"
                return


def _lost_actions(protocol: Protocol) -> Iterator[str]:
    for action, found in runs_to_actions(protocol, frozenset()):
        if not found.steps:
            yield f"{action.name} is never taken"
            return


def _other_steps(original: Protocol, mutated: Protocol, definition: str) -> Iterator[str]:
    """Yield a reason if the two do not have the same steps from the states that `crosscheck.compare_steps` samples.

    History variables and steps that change nothing are left out, as there.
    """
    before = Explicit(original, larger(original), original.start)
    changed = replace(mutated, actions=_changed_actions(mutated, definition))
    after = Explicit(changed, larger(original), original.start)
    names = {action.name for action in changed.actions}
    shown = [number for number, name in enumerate(before.names) if name not in original.ghosts]

    def seen(cells: Cells) -> Cells:
        return tuple(cells[number] for number in shown)

    for cells, steps in before.sampled(SAMPLED, seed=0).items():
        others = {seen(end) for name, end in steps if name not in names} | {seen(cells)}
        expected = {seen(end) for name, end in steps if name in names} | others
        if {seen(end) for _, end in after.successors(cells)} | others != expected:
            yield "a step is another"
            return


def _mutated(protocol: str, module: str, text: str) -> Protocol:
    """Return the protocol with the text of one module replaced; only this process sees it."""
    changed = ModuleType(module)
    exec(compile(text, module, "exec"), changed.__dict__)
    if module == MODULES[protocol]:
        found: Protocol = changed.PROTOCOL
        return found
    sys.modules[module] = changed
    setattr(sys.modules[module.rpartition(".")[0]], module.rpartition(".")[2], changed)
    for name in (MODULES[protocol],):
        sys.modules.pop(name, None)
    again: Protocol = importlib.import_module(MODULES[protocol]).PROTOCOL
    return again


def main() -> None:
    protocol, module, definition = sys.argv[1:]
    original = load(protocol)
    outcome = verdict(original, _mutated(protocol, module, sys.stdin.read()), definition)
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()

"""The behaviours of the specs of classic groups, as graphs for walks: TLC generates them once, cached by content.

`WalkEagerRebalance.tla` and `WalkCooperativeRebalance.tla` restrict the spec to steps that a client can cause. A node
is a step and the state after it.
"""

import hashlib
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from highwater.artefacts import cache_folder
from highwater.errors import UsageError, Verdict
from highwater.spec.draw import read_dot
from highwater.spec.models import CONTRACTS, FOLDER, modules_of, with_constants
from highwater.spec.tlc.run import Options, run_tlc
from highwater.spec.tlc.values import parse
from highwater.temporary import temporary_folder

FOLDER_OF_WALKS: Final = Path(__file__).parent


class ModelBounds(NamedTuple):
    """The spec, the module of its walks, and constants that differ from the module's configuration."""

    spec: str
    module: str
    constants: tuple[tuple[str, int | str], ...] = ()


THREE: Final = (("Clients", "{c1, c2, c3}"), ("MaxGeneration", 2), ("MaxIds", 1), ("MaxCommits", 0))
EAGER: Final = (
    ModelBounds("eager_rebalance", "WalkEagerRebalance"),
    ModelBounds("eager_rebalance", "WalkEagerRebalance", THREE),
)
COOPERATIVE: Final = (ModelBounds("cooperative_rebalance", "WalkCooperativeRebalance"),)
CONJUNCT: Final = re.compile(r"(?m)^/\\ (group|step) = ")
TIMEOUT_S: Final = 300.0


class ModelStep(msgspec.Struct, frozen=True, array_like=True):
    """A step and the state after it; `next` are the indexes of possible next steps.

    `member` is the model's name of a member id, `assigned` the partitions by member that a leader sends or a member
    receives; `claimed` are the partitions that a cooperative member has owned since generation `since`.
    """

    action: str
    client: str
    member: str
    generation: int
    assigned: dict[str, list[str]]
    expected_error: str
    state: str
    members: int
    leader: str
    claimed: list[str]
    since: int
    next: list[int]


Behaviours = list[ModelStep]
"""The first is the initial state."""


@cache
def behaviours(bounds: ModelBounds) -> Behaviours:
    """Return the behaviours from the cache or from TLC (some seconds); UsageError without Java."""
    module = FOLDER_OF_WALKS / f"{bounds.module}.tla"
    config = with_constants(module.with_suffix(".cfg").read_text(), dict(bounds.constants), where=module.name)
    digest = hashlib.sha256(config.encode() + Path(__file__).read_bytes() + module.read_bytes())
    for module_file in modules_of(next((FOLDER / bounds.spec).glob("MC*.tla"))):
        digest.update(module_file.read_bytes())
    place = cache_folder() / "behaviours" / f"{digest.hexdigest()[:32]}.json"
    if not place.exists():
        found = msgspec.json.encode(_explored(module, config, FOLDER / bounds.spec))
        place.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(place=cache_folder()) as folder:  # another process may write the same file
            (folder / place.name).write_bytes(found)
            (folder / place.name).replace(place)
    return msgspec.json.decode(place.read_bytes(), type=Behaviours)


def _explored(module: Path, config: str, spec: Path) -> Behaviours:
    with temporary_folder("walks-") as folder:
        (folder / "walk.cfg").write_text(config)
        options = Options(small=True, library=(CONTRACTS, spec), dump=folder / "states", timeout_s=TIMEOUT_S)
        outcome = run_tlc(module, folder / "walk.cfg", options)
        if outcome.verdict is not Verdict.VALID:
            raise UsageError(f"no behaviours: {outcome.reason or outcome.broken}", where=module.name)
        graph = read_dot((folder / "states.dot").read_text())
    first = next(number for number, level in graph.levels.items() if level == 0)
    order = {number: place for place, number in enumerate([first, *sorted(graph.states.keys() - {first})])}
    after: dict[str, list[int]] = {number: [] for number in order}
    for source, target, _ in graph.steps:
        if source != target:
            after[source].append(order[target])
    return [_model_step(graph.states[number], sorted(after[number])) for number in order]


def _model_step(state: str, following: list[int]) -> ModelStep:
    places = list(CONJUNCT.finditer(state))
    values = {match[1]: _value(state[match.end() :].partition("\n/\\ ")[0]) for match in places}
    group, step = values["group"], values["step"]
    call = step["call"]
    assignment, claim = call["assignment"], call.get("claim", {})
    shares = assignment.items() if hasattr(assignment, "items") else ()
    shares_by_member = {
        _name(member): sorted(str(p) for p, other in shares if other == member)
        for _, member in shares
        if isinstance(member, tuple)
    }
    if step["action"] == "TakeSyncReply":
        shares_by_member = {_name(call["id"]): sorted(map(str, call["partitions"]))}
    return ModelStep(
        action=step["action"], client=str(step["client"]), member=_name(call["id"]), generation=call["generation"],
        assigned=shares_by_member, expected_error=step["says"], state=group["state"],
        members=len(group["members"] if "members" in group else group["claims"]), leader=_name(group["leader"]),
        claimed=sorted(map(str, claim.get("partitions", ()))), since=claim.get("generation", 0), next=following,
    )  # fmt: skip


@lru_cache(maxsize=10_000)
def _value(text: str) -> Any:
    return parse(text)


def _name(member: Any) -> str:
    """Return the name of a member id, which is a pair in the model."""
    return "-".join(map(str, member)) if isinstance(member, tuple) else ""

"""What the specs of classic groups allow, as graphs for walks: TLC lists the behaviours, and they are kept by content.

`WalkEagerRebalance.tla` and `WalkCooperativeRebalance.tla` say which steps can be brought about from outside. A node is
a step and what is so after it.
"""

import hashlib
import re
import tempfile
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

HERE: Final = Path(__file__).parent


class Bounds(NamedTuple):
    """Of what a walk may meet: the spec, and what differs from the configuration of its walks."""

    spec: str
    module: str
    constants: tuple[tuple[str, int | str], ...] = ()


THREE: Final = (("Clients", "{c1, c2, c3}"), ("MaxGeneration", 2), ("MaxIds", 1), ("MaxCommits", 0))
EAGER: Final = (
    Bounds("eager_rebalance", "WalkEagerRebalance"),
    Bounds("eager_rebalance", "WalkEagerRebalance", THREE),
)
COOPERATIVE: Final = (Bounds("cooperative_rebalance", "WalkCooperativeRebalance"),)
CONJUNCT: Final = re.compile(r"(?m)^/\\ (group|step) = ")
TIMEOUT_S: Final = 300.0


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """A step, and what is so after it; `next` are the places of the moments that may follow.

    `member` is the model's name of a member id, `assigned` what a leader hands in or a member is given; `claimed` is
    what a cooperative member says that it has had since generation `since`.
    """

    action: str
    client: str
    member: str
    generation: int
    assigned: dict[str, list[str]]
    says: str
    state: str
    members: int
    leader: str
    claimed: list[str]
    since: int
    next: list[int]


Behaviours = list[Moment]
"""The first is the beginning."""


@cache
def behaviours(bounds: Bounds) -> Behaviours:
    """From the cache, or from TLC, which takes some seconds; then UsageError without Java."""
    module = HERE / f"{bounds.module}.tla"
    config = with_constants(module.with_suffix(".cfg").read_text(), dict(bounds.constants), where=module.name)
    digest = hashlib.sha256(config.encode() + Path(__file__).read_bytes() + module.read_bytes())
    for each in modules_of(next((FOLDER / bounds.spec).glob("MC*.tla"))):
        digest.update(each.read_bytes())
    place = cache_folder() / "behaviours" / f"{digest.hexdigest()[:32]}.json"
    if not place.exists():
        found = msgspec.json.encode(_explored(module, config, FOLDER / bounds.spec))
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:  # others may be at it as well
            (Path(folder) / place.name).write_bytes(found)
            (Path(folder) / place.name).replace(place)
    return msgspec.json.decode(place.read_bytes(), type=Behaviours)


def _explored(module: Path, config: str, spec: Path) -> Behaviours:
    with tempfile.TemporaryDirectory(prefix="highwater-walks-") as name:
        folder = Path(name)
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
    return [_moment(graph.states[number], sorted(after[number])) for number in order]


def _moment(state: str, following: list[int]) -> Moment:
    places = list(CONJUNCT.finditer(state))
    said = {each[1]: _value(state[each.end() :].partition("\n/\\ ")[0]) for each in places}
    group, step = said["group"], said["step"]
    call = step["call"]
    assignment, claim = call["assignment"], call.get("claim", {})
    shares = assignment.items() if hasattr(assignment, "items") else ()
    given = {
        _name(member): sorted(str(p) for p, other in shares if other == member)
        for _, member in shares
        if isinstance(member, tuple)
    }
    if step["action"] == "TakeSyncReply":
        given = {_name(call["id"]): sorted(map(str, call["partitions"]))}
    return Moment(
        action=step["action"], client=str(step["client"]), member=_name(call["id"]), generation=call["generation"],
        assigned=given, says=step["says"], state=group["state"],
        members=len(group["members"] if "members" in group else group["claims"]), leader=_name(group["leader"]),
        claimed=sorted(map(str, claim.get("partitions", ()))), since=claim.get("generation", 0), next=following,
    )  # fmt: skip


@lru_cache(maxsize=10_000)
def _value(text: str) -> Any:
    return parse(text)


def _name(member: Any) -> str:
    """Of a member id, which the model has as a pair."""
    return "-".join(map(str, member)) if isinstance(member, tuple) else ""

"""Measure how many mutated logs of Apache Kafka the models refuse: `python -m highwater.soak.mutated_kafka_logs`.

Each mutation changes what was extracted from the folders of a real cluster as a broken broker or controller could have
written it: an election outside the ISR and ELR, a truncation that is one record short, a generation that repeats.  The
lives that are mutated are those of partitions and groups in chaos runs (`fuzz/tests/kafka_lives/`).
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer

from highwater.fuzz.kafka_logs.check import MODELS, Checked, Extraction, Judgement, PartitionTrace, check, write_traces
from highwater.fuzz.kafka_logs.folders import METADATA_LOG, ReplicaFolder, Seen
from highwater.fuzz.kafka_logs.metadata_log import Change, State
from highwater.fuzz.kafka_logs.metadata_records import NO_LEADER
from highwater.soak.mutated_kafka_groups import GROUP_MUTATIONS, judge_group, mutated_group, read_group
from highwater.temporary import temporary_folder

LIVES: Final = Path(__file__).parents[2] / "fuzz" / "tests" / "kafka_lives"
GROUP_LIFE: Final = "group-"


class Life(msgspec.Struct, frozen=True):
    """What the folders of a cluster have of one partition."""

    entity: str
    changes: list[Change]
    replicas: dict[int, ReplicaFolder]
    log: str = METADATA_LOG


def read_life(path: Path) -> Life:
    """Return a life that `write_life` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Life)


def write_life(path: Path, trace: PartitionTrace) -> None:
    """Write the life of a partition, to mutate it later."""
    life = Life(trace.entity, list(trace.changes), trace.replicas, trace.log)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(life), indent=1) + b"\n")


def judge(life: Life, folder: Path, *, explain: bool = True, models: Sequence[str] = MODELS) -> list[Checked]:
    """Return what each model says of a life, up to the first one that refuses it."""
    trace = PartitionTrace(life.entity, life.changes, life.replicas, log=life.log)
    trace.build()
    extraction = Extraction(tuple(life.replicas), Seen(), (trace,))
    write_traces(extraction, folder)
    found: list[Checked] = []
    for model in models:
        found += check(extraction, folder, model, explain=explain).checked
        if found and found[-1].judgement is Judgement.REFUSED:
            break
    return found


# Mutations.  Each returns the mutated life and a description, or None if the draw cannot be mutated in this way.

Mutation = Callable[[random.Random, Life], tuple[Life, str] | None]


def _states(life: Life) -> Iterator[tuple[int, State, State]]:
    """Yield the index of each state but the first, the state before it and the state."""
    before = None
    for at, change in enumerate(life.changes):
        if change.state is not None:
            if before is not None:
                yield at, before, change.state
            before = change.state


def _with_state(life: Life, at: int, state: State) -> Life:
    changes = list(life.changes)
    changes[at] = replace(changes[at], state=state)
    return msgspec.structs.replace(life, changes=changes)


def _with_replica(life: Life, node: int, **fields: Any) -> Life:
    return msgspec.structs.replace(life, replicas={**life.replicas, node: replace(life.replicas[node], **fields)})


def _elections_with_outsiders(life: Life) -> list[tuple[int, State, list[int]]]:
    """Return the index and state of each election, and the replicas that were not eligible, if there were some."""
    found = [
        (at, state, sorted(set(state.replicas) - set(before.eligible)))
        for at, before, state in _states(life)
        if life.changes[at].leads
    ]
    return [entry for entry in found if entry[2]]


def elect_outside(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """A broker that is neither in the ISR nor in the ELR is elected, alone in the ISR: an unclean election."""
    found = _elections_with_outsiders(life)
    if not found:
        return None
    at, state, outside = draw.choice(found)
    node = draw.choice(outside)
    return _with_state(life, at, replace(state, leader=node, isr=(node,), elr=())), f"{node} is elected at {at}"


def elect_with_outsider(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """An election adds a broker to the ISR that was not eligible before."""
    found = _elections_with_outsiders(life)
    if not found:
        return None
    at, state, outside = draw.choice(found)
    node = draw.choice(outside)
    return _with_state(life, at, replace(state, isr=(*state.isr, node))), f"{node} joins at the election at {at}"


def forget_election(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """The record of an election is lost: later records elect with an epoch that is too small."""
    used = {epoch for replica in life.replicas.values() for epoch, _ in replica.runs}
    found = [at for at, _, state in _states(life) if life.changes[at].leads and state.leader_epoch in used]
    if not found:
        return None
    lost = draw.choice(found)
    changes = []
    for at, change in enumerate(life.changes):
        if at > lost and change.state is not None:
            earlier = replace(change.state, leader_epoch=change.state.leader_epoch - 1)
            changes.append(replace(change, state=earlier))
        elif at != lost:
            changes.append(change)
    return msgspec.structs.replace(life, changes=changes), f"the election at {lost} is lost"


def repeat_term(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """A controller claims a term that another controller had."""
    claims = [(at, change) for at, change in enumerate(life.changes) if change.what == "claim"]
    pairs = [(at, one) for (_, one), (at, other) in itertools.pairwise(claims) if one.node != other.node]
    if not pairs:
        return None
    at, earlier = draw.choice(pairs)
    changes = list(life.changes)
    changes[at] = replace(changes[at], epoch=earlier.epoch)
    return msgspec.structs.replace(life, changes=changes), f"{changes[at].node} claims term {earlier.epoch} again"


def lower_term(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """A controller claims a term below one that was claimed before."""
    claims = [(at, change) for at, change in enumerate(life.changes) if change.what == "claim"]
    if len(claims) < 2:
        return None
    (_, earlier), (at, later) = draw.choice(list(itertools.pairwise(claims)))
    changes = list(life.changes)
    changes[at] = replace(later, epoch=earlier.epoch - 1)
    return msgspec.structs.replace(life, changes=changes), f"{later.node} claims term {earlier.epoch - 1} at {at}"


def lower_epoch(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """An election has the leader epoch of the state before, or a lower one."""
    found = [(at, before, state) for at, before, state in _states(life) if life.changes[at].leads]
    if not found:
        return None
    at, before, state = draw.choice(found)
    epoch = max(0, before.leader_epoch - draw.randrange(2))
    return _with_state(life, at, replace(state, leader_epoch=epoch)), f"the election at {at} has epoch {epoch}"


def add_stranger(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """The leader adds a broker to the ISR that has no replica."""
    found = [(at, state) for at, _, state in _states(life) if not life.changes[at].leads and state.leader != NO_LEADER]
    if not found:
        return None
    at, state = draw.choice(found)
    node = max(state.replicas) + 1
    return _with_state(life, at, replace(state, isr=(*state.isr, node))), f"{node} is in the ISR at {at}"


def write_by_old_controller(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """A controller that was replaced elects a leader, and names its own controller epoch (KAFKA-6082)."""
    terms: list[Change] = []
    found = []
    elections = {at for at, _, _ in _states(life) if life.changes[at].leads}  # any broker may write the creation
    for at, change in enumerate(life.changes):
        if change.what == "claim":
            terms.append(change)
        elif at in elections:
            found += [(at, old) for old in terms[:-1] if old.node != terms[-1].node]
    if not found:
        return None
    at, old = draw.choice(found)
    changes = list(life.changes)
    state = changes[at].state
    assert state is not None
    changes[at] = replace(changes[at], node=old.node, state=replace(state, controller_epoch=old.epoch))
    return msgspec.structs.replace(life, changes=changes), f"{old.node} of term {old.epoch} elects at {at}"


def truncate_too_little(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """A follower keeps a record that it should have truncated: its next epoch begins one record later."""
    found = []
    for node, replica in life.replicas.items():
        ends = [start for _, start in replica.runs[1:]] + [replica.end]
        found += [(node, at) for at in range(1, len(replica.runs)) if ends[at] - replica.runs[at][1] > 1]
    if not found:
        return None
    node, at = draw.choice(found)
    runs = list(life.replicas[node].runs)
    runs[at] = (runs[at][0], runs[at][1] + 1)
    return _with_replica(life, node, runs=tuple(runs)), f"epoch {runs[at][0]} begins one record later at {node}"


def fall_back(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """Two neighbouring leader epochs of a log are exchanged, so that the epochs fall."""
    found = [node for node, replica in life.replicas.items() if len(replica.runs) > 1]
    if not found:
        return None
    node = draw.choice(found)
    runs = list(life.replicas[node].runs)
    at = draw.randrange(len(runs) - 1)
    (one, first), (other, second) = runs[at : at + 2]
    runs[at : at + 2] = [(other, first), (one, second)]
    return _with_replica(life, node, runs=tuple(runs)), f"the log of {node} has epoch {other} before {one}"


def wrong_checkpoint(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """The leader epoch checkpoint has another start of an epoch than the segments."""
    found = [
        (node, at)
        for node, replica in life.replicas.items()
        for at, (_, start) in enumerate(replica.epochs)
        if start + 1 < min([later for _, later in replica.epochs[at + 1 :]] + [replica.end])
    ]
    if not found:
        return None
    node, at = draw.choice(found)
    epochs = list(life.replicas[node].epochs)
    epochs[at] = (epochs[at][0], epochs[at][1] + 1)
    return _with_replica(life, node, epochs=tuple(epochs)), f"{node} notes epoch {epochs[at][0]} one record later"


def lose_committed(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """A member of the last ISR lacks records below a high watermark that another broker has noted."""
    last = [change.state for change in life.changes if change.state is not None][-1]
    mark = max(replica.high_watermark for replica in life.replicas.values())
    members = [node for node in last.isr if node in life.replicas and life.replicas[node].high_watermark < mark]
    if not members:
        return None
    node = draw.choice(members)
    end = draw.randrange(life.replicas[node].high_watermark, mark)
    kept = tuple(run for run in life.replicas[node].runs if run[1] < end)
    return _with_replica(life, node, end=end, runs=kept), f"the log of {node} ends at {end}, below {mark}"


def raise_high_watermark(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """A broker has noted a high watermark above the end of every log."""
    node = draw.choice(sorted(life.replicas))
    end = max(replica.end for replica in life.replicas.values())
    return _with_replica(life, node, high_watermark=end + 1), f"{node} notes the high watermark {end + 1}"


def write_without_leader(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """The records of an epoch have that of another one, in which no broker led or another one did."""
    known = {state.leader_epoch for _, _, state in _states(life) if state.leader == NO_LEADER}
    used = [run for run in life.replicas[min(life.replicas)].runs if run[0] + 1 in known]
    if not used:
        return None
    epoch, _ = draw.choice(used)

    def later(runs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        return tuple((found + (found == epoch), start) for found, start in runs)

    replicas = {
        node: replace(each, runs=later(each.runs), epochs=later(each.epochs)) for node, each in life.replicas.items()
    }
    return msgspec.structs.replace(life, replicas=replicas), f"epoch {epoch + 1}, without a leader, has records"


def extra_record(draw: random.Random, life: Life) -> tuple[Life, str] | None:
    """A follower has a record of the current epoch that its leader does not have."""
    last = [change.state for change in life.changes if change.state is not None][-1]
    followers = sorted(life.replicas.keys() - {last.leader})
    if last.leader not in life.replicas or not followers:
        return None
    node = draw.choice(followers)
    end = life.replicas[last.leader].end + 1
    return _with_replica(life, node, end=end), f"{node} has a record at {end - 1} that leader {last.leader} lacks"


MUTATIONS: Final[dict[str, Mutation]] = {
    "an election outside ISR and ELR": elect_outside,
    "an election that adds to the ISR": elect_with_outsider,
    "an election that was lost": forget_election,
    "a term that repeats": repeat_term,
    "a term that falls": lower_term,
    "an election whose epoch does not rise": lower_epoch,
    "an ISR with a broker without a replica": add_stranger,
    "an election by a controller that was replaced": write_by_old_controller,
    "a truncation one too few": truncate_too_little,
    "an epoch that falls": fall_back,
    "a wrong epoch checkpoint": wrong_checkpoint,
    "a committed record lost": lose_committed,
    "a high watermark too high": raise_high_watermark,
    "records of an epoch without leader": write_without_leader,
    "a record that the leader lacks": extra_record,
}


def mutated(life: Life, how: str, seed: int) -> tuple[Life, str] | None:
    """Return the life with one drawn mutation and its description; None if it does not apply to this life."""
    return MUTATIONS[how](random.Random(f"{how} {seed}"), life)


class Kind(NamedTuple):
    """How lives of one kind are read, mutated and judged."""

    read: Callable[[Path], Any]
    mutations: Sequence[str]
    mutate: Callable[[Any, str, int], tuple[Any, str] | None]
    judge: Callable[..., list[Checked]]


PARTITIONS: Final = Kind(read_life, tuple(MUTATIONS), mutated, judge)
GROUPS: Final = Kind(read_group, tuple(GROUP_MUTATIONS), mutated_group, judge_group)


def survey(path: Path, kind: Kind, draws: Iterable[int], folder: Path) -> Counter[str]:
    """Mutate a life, print each mutant that is not refused, and count them; the first of each kind is explained."""
    counts: Counter[str] = Counter()
    life = kind.read(path)
    control = kind.judge(life, folder, explain=False)
    assert all(each.judgement is Judgement.ACCEPTED for each in control), f"{path}: the control is refused"
    for how in kind.mutations:
        described: set[str] = set()
        for draw_seed in draws:
            changed = kind.mutate(life, how, draw_seed)
            if changed is None or changed[1] in described:
                continue
            found = kind.judge(changed[0], folder, explain=not described)[-1]
            is_refused = found.judgement is Judgement.REFUSED and found.found.line is not None
            is_named = is_refused and bool(found.found.conjuncts)
            counts += Counter({"mutants": 1, how: 1, "refused": is_refused})
            counts += Counter() if described else Counter({"explained": 1, "named": is_named})
            if not is_refused or (not described and not is_named):
                place = f"line {found.found.line}: {found.found.reason}"
                print(f"  {path.stem} {how} {draw_seed}: {found.judgement}, {changed[1]}; {place}", flush=True)
            described.add(changed[1])
    return counts


def measure(
    lives: Annotated[list[Path] | None, typer.Argument(help="Lives to mutate; those of the tests if none.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Number of draws of each mutation of each life.")] = 5,
    seed: Annotated[int, typer.Option(help="First seed.")] = 0,
) -> None:
    """Print how many different mutated lives are refused at a line, and for how many a false conjunct was found."""
    counts: Counter[str] = Counter()
    with temporary_folder("mutated-") as name:
        for path in lives or sorted(LIVES.glob("*.json")):
            kind = GROUPS if path.name.startswith(GROUP_LIFE) else PARTITIONS
            found = survey(path, kind, range(seed, seed + draws), name)
            print(f"{path.stem}: {found['refused']} of {found['mutants']} refused", flush=True)
            counts += found
    for how in (*MUTATIONS, *GROUP_MUTATIONS):
        print(f"  {counts[how]:>3} {how}")
    print(f"{counts['refused']} of {counts['mutants']} refused at a line")
    print(f"{counts['named']} of {counts['explained']} explained ones with a false conjunct")


if __name__ == "__main__":
    typer.run(measure)

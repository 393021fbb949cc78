"""Hold the folders of an Apache Kafka cluster to the specifications: read them, build traces, validate these."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import quote

from highwater.errors import UsageError, Verdict, worst
from highwater.fuzz.kafka_logs.behaviour import HIDDEN, Behaviour
from highwater.fuzz.kafka_logs.folders import (
    METADATA_LOG,
    BrokerFolder,
    Partition,
    ReplicaFolder,
    Seen,
    open_folder,
    read_replica,
)
from highwater.fuzz.kafka_logs.group_behaviour import GroupBehaviour
from highwater.fuzz.kafka_logs.group_log import OFFSETS_TOPIC, GroupLife, read_groups
from highwater.fuzz.kafka_logs.metadata_log import Change, Lives, read_metadata, replay
from highwater.fuzz.kafka_logs.zookeeper_changes import replay_zookeeper
from highwater.fuzz.kafka_logs.zookeeper_log import ZOOKEEPER_LOG, is_zookeeper, read_zookeeper
from highwater.spec.formats.trace import Step, write_trace
from highwater.spec.tlc.parallel import in_parallel
from highwater.spec.trace import EntityVerdict, describe, encoded_for, read_layouts, validate_trace

MODELS: Final = ("controller_failover", "hw_truncation", "isr_commit")
EAGER_MODEL, COOPERATIVE_MODEL = "eager_rebalance", "cooperative_rebalance"
GROUP_MODELS: Final = (EAGER_MODEL, COOPERATIVE_MODEL)
COOPERATIVE: Final = "cooperative-sticky"
MISSING_BEFORE_KIP_966: Final[Mapping[str, tuple[str, ...]]] = {"hw_truncation": ("UncleanRestartLeavesIsr",)}
"""Guards that no release with ZooKeeper has, by model: a broker that was killed may stay in the ISR there, and lead."""


class Judgement(StrEnum):
    """What a specification says of a cluster's logs."""

    ACCEPTED = "accepted"
    AS_FAR_AS_SEEN = "accepted as far as seen"
    REFUSED = "refused"
    UNDECIDED = "undecided"


@dataclass(slots=True)
class PartitionTrace:
    """The trace of a partition, and what of it could not be read."""

    entity: str
    changes: Sequence[Change]
    replicas: dict[int, ReplicaFolder]
    steps: list[Step] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    log: str = METADATA_LOG
    """The log whose offsets are the times of the lines."""
    cut: bool = False
    """That log goes on, but not here: what the replicas have was perhaps decided later."""
    models: ClassVar[Sequence[str]] = MODELS

    @property
    def file_name(self) -> str:
        return f"{self.entity}.ndjson"

    @property
    def guards_off(self) -> Mapping[str, tuple[str, ...]]:
        return MISSING_BEFORE_KIP_966 if self.log == ZOOKEEPER_LOG else {}

    def build(self) -> None:
        """Build the lines; a partition whose replicas were reassigned has none."""
        states = [change.state for change in self.changes if change.state is not None]
        assigned = {node for state in states for node in state.replicas}
        if any(set(state.replicas) != assigned for state in states):
            self.gaps.append("its replicas were reassigned, which is not followed")
            return
        if not states or (states[0].leader_epoch, states[0].partition_epoch) != (0, 0):
            self.gaps.append(f"its creation is not in {self.log}")
            return
        created = next(at for at, change in enumerate(self.changes) if change.state is not None)
        if all(change.what != "claim" for change in self.changes[:created]):
            self.gaps.append(f"the term of the controller that created it is not in {self.log}")
            return
        if missing := assigned - self.replicas.keys():
            self.gaps.append(f"no log of broker {', '.join(map(str, sorted(missing)))}")
        if any(replica.start > 0 for replica in self.replicas.values()):
            self.gaps.append("records below the largest log start offset")
        if self.cut:
            self.gaps.append(f"replicas, which are not compared because the end of {self.log} is missing")
        self.steps = Behaviour(self.entity, self.changes, self.replicas).build(compares=not self.cut)


@dataclass(slots=True)
class GroupTrace:
    """The trace of a consumer group, and what of it could not be read."""

    life: GroupLife
    steps: list[Step] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    guards_off: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @property
    def entity(self) -> str:
        return self.life.group

    @property
    def file_name(self) -> str:
        """A name that no partition has, whatever the group is called."""
        return f"group={quote(self.entity, safe='')}.ndjson"

    @property
    def log(self) -> str:
        return self.life.log

    @property
    def models(self) -> Sequence[str]:
        """The model of its protocol; none for a cooperative group with static members, which no model has."""
        is_cooperative = any(stored.protocol == COOPERATIVE for stored in self.life.records())
        is_static = any(member.instance_id for stored in self.life.records() for member in stored.members)
        return (COOPERATIVE_MODEL,) * (not is_static) if is_cooperative else (EAGER_MODEL,)

    def build(self) -> None:
        """Build the lines; a group without group records has none."""
        behaviour = GroupBehaviour(self.life)
        if any(self.life.records()):
            self.steps = behaviour.build()
        self.gaps = [f"{reason}: {count}" for reason, count in self.life.gaps.items()]
        if behaviour.unexplained:
            self.gaps.append(f"offset commits while the log has no member: {behaviour.unexplained}")
        if not self.models:
            self.gaps.append(f"static members, which {COOPERATIVE_MODEL} does not have")


Trace = PartitionTrace | GroupTrace


@dataclass(frozen=True, slots=True)
class Extraction:
    """What the folders of a cluster have: counts, and the traces of each partition and of each group."""

    brokers: tuple[int, ...]
    seen: Seen
    traces: tuple[PartitionTrace, ...]
    groups: tuple[GroupTrace, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of one specification for one partition or group; `hidden` are the lines that no log has, by action.

    A refused line is behind `offset` of `log`. `guards_off`: guards of the model that the release lacks.
    """

    found: EntityVerdict
    judgement: Judgement
    hidden: Counter[str]
    log: str
    offset: int | None = None
    guards_off: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignVerdict:
    """The results of all partitions, and what was read."""

    extraction: Extraction
    checked: tuple[Checked, ...]
    reasons: tuple[str, ...]

    @property
    def judgement(self) -> Judgement:
        found = {each.judgement for each in self.checked}
        if Judgement.REFUSED in found:
            return Judgement.REFUSED
        if not self.checked or Judgement.UNDECIDED in found:
            return Judgement.UNDECIDED
        return Judgement.AS_FAR_AS_SEEN if self.reasons or Judgement.AS_FAR_AS_SEEN in found else Judgement.ACCEPTED

    @property
    def verdict(self) -> Verdict:
        refused = Verdict.INVALID if self.judgement is Judgement.REFUSED else Verdict.UNKNOWN
        return worst([Verdict.VALID if self.judgement is Judgement.ACCEPTED else refused])


def extract(folders: Iterable[Path]) -> Extraction:
    """Read the data folders of all brokers of one cluster, and before KRaft that of a ZooKeeper server.

    Raises UsageError for a folder of no broker, of another cluster or of a broker that was given before, and if no
    folder has the metadata log or ZooKeeper's.
    """
    paths = list(folders)
    stores = [path for path in paths if is_zookeeper(path)]
    brokers = [open_folder(path) for path in paths if path not in stores]
    for at, broker in enumerate(brokers):
        if broker.cluster != brokers[0].cluster:
            hint = "give the folders of one cluster"
            raise UsageError(f"another cluster.id than {brokers[0].path}", where=str(broker.path), hint=hint)
        if broker.node in {other.node for other in brokers[:at]}:
            raise UsageError(f"a second folder of broker {broker.node}", where=str(broker.path))
    seen = Seen()
    lives = _zookeeper_lives(stores, brokers, seen) if stores else _kraft_lives(brokers, seen)
    traces = tuple(_traces(brokers, lives, seen))
    groups = tuple(_groups(brokers, traces, seen))
    return Extraction(tuple(broker.node for broker in brokers), seen, traces, groups)


def _kraft_lives(brokers: Sequence[BrokerFolder], seen: Seen) -> Lives:
    entries = read_metadata(brokers, seen)
    if not entries:
        where = ", ".join(str(broker.path) for broker in brokers)
        hint = "KRaft has one since 3.3; of an older cluster give ZooKeeper's dataDir beside the brokers' folders"
        raise UsageError(f"no {METADATA_LOG} here", where=where, hint=hint)
    return replay(entries, seen)


def _zookeeper_lives(stores: Sequence[Path], brokers: Sequence[BrokerFolder], seen: Seen) -> Lives:
    """Return what ZooKeeper held; a partition of the brokers that its log does not name has a life without changes."""
    if len(stores) > 1:
        hint = "every server of an ensemble has the same log: give one of them"
        raise UsageError("a second folder of ZooKeeper", where=str(stores[1]), hint=hint)
    lives = replay_zookeeper(read_zookeeper(stores[0], seen), seen)
    for broker in brokers:
        if lives.cluster and broker.cluster and broker.cluster != lives.cluster:
            hint = "give the folders of one cluster"
            raise UsageError(f"another cluster.id than in {stores[0]}", where=str(broker.path), hint=hint)
        for partition, _ in broker.partitions():
            lives.changes.setdefault(partition, [])
    return lives


def _groups(brokers: Sequence[BrokerFolder], traces: Iterable[PartitionTrace], seen: Seen) -> Iterable[GroupTrace]:
    for trace in traces:
        topic, _, number = trace.entity.rpartition("-")
        if topic == OFFSETS_TOPIC:
            for life in read_groups(brokers, (topic, int(number)), trace.changes, trace.replicas, seen):
                group = GroupTrace(life)
                group.build()
                yield group


def _traces(brokers: Sequence[BrokerFolder], lives: Lives, seen: Seen) -> Iterable[PartitionTrace]:
    replicas: dict[Partition, dict[int, ReplicaFolder]] = {}
    for broker in brokers:
        for partition, folder in broker.partitions():
            if partition in lives.changes and partition not in lives.deleted:
                replicas.setdefault(partition, {})[broker.node] = read_replica(broker, partition, folder, seen)
    for partition, changes in sorted(lives.changes.items()):
        if partition in lives.deleted:
            seen.skipped["partition of a topic that was deleted"] += 1
            continue
        name = f"{partition[0]}-{partition[1]}"
        trace = PartitionTrace(name, changes, replicas.get(partition, {}), log=lives.log, cut=lives.cut)
        trace.build()
        yield trace


def write_traces(extraction: Extraction, folder: Path) -> None:
    """Write the trace of each partition to `PARTITION.ndjson`, and of each group to `group=GROUP.ndjson`."""
    traces: tuple[Trace, ...] = (*extraction.traces, *extraction.groups)
    for trace in traces:
        if trace.steps:
            write_trace(folder / trace.file_name, trace.steps)


def check(
    extraction: Extraction, folder: Path, model: str | None = None, entity: str | None = None, *, explain: bool = True
) -> ForeignVerdict:
    """Validate the traces that `write_traces` wrote to `folder`; raise UsageError for an unknown partition or model.

    Traces that are the same for a model are validated once. `explain` adds the false conjuncts of the first refusal of
    each model.
    """
    if model is not None and model not in (*MODELS, *GROUP_MODELS):
        hint = f"known: {', '.join((*MODELS, *GROUP_MODELS))}"
        raise UsageError(f"no model {model!r} for Apache Kafka's logs", hint=hint)
    traces: tuple[Trace, ...] = (*extraction.traces, *extraction.groups)
    chosen = [trace for trace in traces if entity in {None, trace.entity}]
    if not chosen:
        known = ", ".join(trace.entity for trace in traces)
        raise UsageError(f"no partition or group {entity!r} in the logs", hint=f"there are {known}" if known else "")
    runs: dict[tuple[str, bytes], list[Trace]] = {}
    for trace in chosen:
        for each in trace.models if trace.steps else ():
            if model in {None, each}:
                runs.setdefault((each, encoded_for(each, trace.steps)), []).append(trace)
    found = in_parallel(lambda run: _validate(folder, run[1][0], run[0][0]), runs.items())
    checked = [
        _check(trace, traces[0], verdict)
        for traces, verdict in zip(runs.values(), found, strict=True)
        for trace in traces
    ]
    order = {trace.entity: at for at, trace in enumerate(chosen)}
    checked.sort(key=lambda each: (order[each.found.entity], each.found.model))
    reasons = [f"{reason}: {count}" for reason, count in sorted(extraction.seen.skipped.items())]
    reasons += [f"{trace.entity}: {gap}" for trace in chosen for gap in trace.gaps]
    return ForeignVerdict(
        extraction, tuple(_explained(checked, chosen, folder) if explain else checked), tuple(reasons)
    )


def _validate(folder: Path, trace: Trace, model: str, *, explain: bool = False) -> EntityVerdict:
    path, guards_off = folder / trace.file_name, trace.guards_off.get(model, ())
    (found,) = validate_trace(path, model, entity=trace.entity, explain=explain, guards_off=guards_off).entities
    return found


def _explained(checked: Sequence[Checked], traces: Iterable[Trace], folder: Path) -> Iterable[Checked]:
    """Explain the first refusal of each model: TLC runs once for each conjunct, half a minute for each refusal."""
    explained: set[str] = set()
    for each in checked:
        found = each.found
        if each.judgement is Judgement.REFUSED and found.model not in explained:
            explained.add(found.model)
            trace = next(trace for trace in traces if trace.entity == found.entity)
            yield replace(each, found=_validate(folder, trace, found.model, explain=True))
        else:
            yield each


def _check(trace: Trace, same: Trace, verdict: EntityVerdict) -> Checked:
    """Return the result for a trace from the verdict for one that is the same for the model."""
    actions = read_layouts()[verdict.model].actions
    steps = trace.steps
    own = [at for at, step in enumerate(steps) if step.action in actions]
    found = replace(verdict, entity=trace.entity, file=trace.file_name if verdict.file else "")
    offset = None
    if verdict.line is not None:
        others = [at for at, step in enumerate(same.steps) if step.action in actions]
        at = own[others.index(verdict.line - 1)]
        reason = verdict.reason.replace(describe(same.steps[verdict.line - 1]), describe(steps[at]))
        found, offset = replace(found, line=at + 1, reason=reason), steps[at].time_ns
    hidden = Counter(steps[at].action for at in own if HIDDEN in steps[at].choices)
    judgement = {
        Verdict.VALID: Judgement.AS_FAR_AS_SEEN if trace.gaps else Judgement.ACCEPTED,
        Verdict.INVALID: Judgement.REFUSED,
    }.get(found.verdict, Judgement.UNDECIDED)
    if judgement is Judgement.ACCEPTED and found.steps - hidden.total() <= 0:
        judgement = Judgement.UNDECIDED
    return Checked(found, judgement, hidden, trace.log, offset, trace.guards_off.get(verdict.model, ()))

"""The conditions of each experiment, by scale."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from highwater.experiments.conditions import Condition, Setting

MIN_ISR: Final = {1: (1,), 2: (1, 2), 3: (1, 2), 4: (1, 2, 4)}
"""The values of min.insync.replicas that the documents measure, by the number of replicas."""
NOT_APPLICABLE: Final = 0
"""min.insync.replicas of a condition in which it has no effect, since acks is not `all`."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: repetitions, seconds of each measurement, and which values of each parameter.

    `failures`: how often a record is sent again, and which brokers are killed. `replicated_partitions` are those of one
    producer with acks=all, `topic_partitions` those of three producers with one replica.
    """

    repetitions: int
    seconds: float
    warm_up_s: float
    latency_s: float
    load_s: float
    records_to_read: int
    replicas: tuple[int, ...]
    partitions: tuple[int, ...]
    producers: tuple[int, ...]
    replicated_partitions: tuple[int, ...]
    topic_partitions: tuple[int, ...]
    idle_partitions: tuple[int, ...]
    sizes: tuple[int, ...]
    record_bytes: tuple[int, ...]
    members: int
    protocols: tuple[str, ...]
    clients: tuple[str, ...]
    pause_repetitions: int
    fault_kinds: tuple[str, ...] | None
    queue_times_ms: tuple[int, ...]
    failures: tuple[tuple[int, str], ...]
    left_out: tuple[str, ...] = ()
    """Experiments that are measured only if they are asked for by name."""


EAGER, COOPERATIVE = "eager", "cooperative"
STATIC, NEW_PROTOCOL = "eager, static members", "KIP-848"
ALL_PROTOCOLS: Final = (EAGER, COOPERATIVE, STATIC, NEW_PROTOCOL)
LIBRDKAFKA, JAVA, SIMULATED = "confluent-kafka", "Java", "simulated"
SYNC, ASYNC = "sync", "async"
RDKAFKA_PRODUCER, OLD_PRODUCER = "librdkafka", "Kafka 0.7"
ALL_SIZES: Final = (10, 20, 40, 60, 80, 100, 150, 200, 400, 800, 1_000, 2_000, 5_000, 10_000)

KILLED, RETRIED, RESTARTED = (0, "all but two"), (100_000_000, "all but two"), (100_000_000, "all but one, restarted")

SCALES: Final[Mapping[str, Scale]] = {
    "tiny": Scale(
        repetitions=3, seconds=0.3, warm_up_s=4, latency_s=2, load_s=6, records_to_read=60_000, replicas=(1, 3),
        partitions=(12,), producers=(1, 2), replicated_partitions=(1, 4, 12), topic_partitions=(1, 3, 6),
        idle_partitions=(100, 1_000),
        sizes=(100, 1_000, 10_000), record_bytes=(1_000,), members=3, protocols=(EAGER, COOPERATIVE),
        clients=(LIBRDKAFKA, SIMULATED),
        pause_repetitions=1, fault_kinds=("kill", "pause"), queue_times_ms=(1_000,), failures=(RESTARTED,),
        left_out=("partitions", "idle", "size", "clients", "latency", "dispatch", "durability", "availability"),
    ),
    "default": Scale(
        repetitions=5, seconds=0.5, warm_up_s=8, latency_s=6, load_s=12, records_to_read=300_000,
        replicas=(1, 2, 3, 4), partitions=(1, 12), producers=(1, 2, 3), replicated_partitions=(1, 4, 12),
        topic_partitions=(1, 2, 3, 6, 9), idle_partitions=(100, 1_000),
        sizes=(10, 40, 100, 400, 1_000, 2_000, 10_000), record_bytes=(1_000,),
        members=10, protocols=ALL_PROTOCOLS,
        clients=(LIBRDKAFKA, SIMULATED), pause_repetitions=1, fault_kinds=None,
        queue_times_ms=(10, 100, 1_000), failures=(KILLED, RETRIED, RESTARTED), left_out=("idle",),
    ),
    "full": Scale(
        repetitions=10, seconds=2.0, warm_up_s=20, latency_s=120, load_s=30, records_to_read=2_000_000,
        replicas=(1, 2, 3, 4), partitions=(1, 12), producers=(1, 2, 3),
        replicated_partitions=(1, 2, 3, 4, 5, 6, 7, 8, 9, 12), topic_partitions=(1, 2, 3, 4, 5, 6, 7, 8, 9),
        idle_partitions=(100, 1_000, 2_000),
        sizes=ALL_SIZES, record_bytes=(100, 1_000), members=10,
        protocols=ALL_PROTOCOLS, clients=(LIBRDKAFKA, JAVA, SIMULATED), pause_repetitions=3, fault_kinds=None,
        queue_times_ms=(1, 10, 100, 1_000), failures=(KILLED, RETRIED, RESTARTED),
    ),
}  # fmt: skip


def _send(experiment: str, **settings: Setting) -> Condition:
    """Return a condition with the settings of one producer unless others are given."""
    defaults: dict[str, Setting] = {
        "clients": "producers", "producers": 1, "consumers": 0, "acks": "all", "replicas": 1,
        "min_insync_replicas": 1, "partitions": 12, "record_bytes": 1_000,
    }  # fmt: skip
    whole = defaults | settings
    replicas = whole["replicas"]
    assert isinstance(replicas, int)
    return Condition(experiment=experiment, settings=whole, brokers=replicas)


def throughput(scale: Scale) -> Iterator[Condition]:
    """Yield acks × replicas × min.insync.replicas × partitions × record sizes, and replicas for three producers."""
    for record_bytes in scale.record_bytes:
        for partitions in scale.partitions:
            for replicas in scale.replicas:
                topic: dict[str, Setting] = {
                    "replicas": replicas,
                    "partitions": partitions,
                    "record_bytes": record_bytes,
                }
                for acks in ("0", "1"):
                    yield _send("throughput", acks=acks, min_insync_replicas=NOT_APPLICABLE, **topic)
                for least in MIN_ISR[replicas]:
                    yield _send("throughput", acks="all", min_insync_replicas=least, **topic)
    for replicas in scale.replicas[:3] if 3 in scale.producers else ():
        yield _async("throughput", producers=3, replicas=replicas)


def _async(experiment: str, **settings: Setting) -> Condition:
    """Return a condition of the 0.8 document: asynchronous producers, 100 bytes, six partitions, one replica."""
    defaults: dict[str, Setting] = {
        "acks": "1", "min_insync_replicas": NOT_APPLICABLE, "partitions": 6, "record_bytes": 100
    }  # fmt: skip
    return _send(experiment, **(defaults | settings))


def partitions(scale: Scale) -> Iterator[Condition]:
    """Yield numbers of partitions: replicated twice with acks=all, and with three producers and one replica."""
    for count in scale.replicated_partitions:
        yield _send("partitions", replicas=2, min_insync_replicas=2, partitions=count)
    for count in scale.topic_partitions:
        yield _async("partitions", producers=3, partitions=count)


def idle(scale: Scale) -> Iterator[Condition]:
    """Yield numbers of partitions, each with three replicas, that exist beside those that a producer uses."""
    for count in scale.idle_partitions:
        yield _send("idle", replicas=3, min_insync_replicas=1, idle=count)


def size(scale: Scale) -> Iterator[Condition]:
    for record_bytes in scale.sizes:
        yield _async("size", producers=3, record_bytes=record_bytes)


def clients(scale: Scale) -> Iterator[Condition]:
    """Yield one to three producers, one to three consumers, and a pair of both at the same time."""
    for count in scale.producers:
        yield _async("clients", producers=count)
    for count in scale.producers:
        yield _async("clients", clients="consumers", producers=0, consumers=count)
    yield _async("clients", clients="pair", consumers=1)


def latency(scale: Scale) -> Iterator[Condition]:
    """Yield three replicas and the four of the document."""
    for replicas in dict.fromkeys((3, max(scale.replicas))):
        yield _send("latency", replicas=replicas, min_insync_replicas=min(2, replicas))


def dispatch(scale: Scale) -> Iterator[Condition]:
    """Yield a synchronous producer and asynchronous ones by queue time, of Kafka 0.7 and of today."""
    for producer in (OLD_PRODUCER, RDKAFKA_PRODUCER):
        for queue_time_ms in (0, *scale.queue_times_ms):
            settings: dict[str, Setting] = {
                "producer": producer, "dispatch": ASYNC if queue_time_ms else SYNC, "queue_time_ms": queue_time_ms,
                "record_bytes": 100,
            }  # fmt: skip
            yield Condition(experiment="dispatch", settings=settings)


def failures(scale: Scale) -> Iterator[Condition]:
    """Yield two brokers killed without and with retries, and all but one killed and restarted, as of four brokers."""
    for retries, killed in scale.failures:
        yield Condition(
            experiment="failures", brokers=3,
            settings={"acks": "all", "min_insync_replicas": 2, "partitions": 12, "retries": retries, "killed": killed},
        )  # fmt: skip


def durability(scale: Scale) -> Iterator[Condition]:
    """Yield a loss of all brokers at once, by acks: what was acknowledged must be there when they have restarted."""
    for acks in ("0", "1", "all"):
        yield Condition(
            experiment="durability", brokers=1,
            settings={"acks": acks, "min_insync_replicas": 2, "partitions": 12, "killed": "all, restarted"},
        )  # fmt: skip


def rebalance(scale: Scale) -> Iterator[Condition]:
    for client in scale.clients:
        for protocol in scale.protocols:
            yield Condition(
                experiment="rebalance",
                settings={"protocol": protocol, "client": client, "members": scale.members,
                          "partitions": 3 * scale.members},
            )  # fmt: skip


def availability(scale: Scale) -> Iterator[Condition]:
    """Yield one condition: the faults are in turn in one run, which yields a measurement for each of them."""
    kinds = "all" if scale.fault_kinds is None else ",".join(scale.fault_kinds)
    yield Condition(experiment="availability", settings={"faults": kinds}, brokers=3)


EXPERIMENTS: Final[Mapping[str, Callable[[Scale], Iterator[Condition]]]] = {
    "throughput": throughput,
    "partitions": partitions,
    "idle": idle,
    "size": size,
    "clients": clients,
    "latency": latency,
    "dispatch": dispatch,
    "failures": failures,
    "durability": durability,
    "rebalance": rebalance,
    "availability": availability,
}
"""In the order in which they are measured."""


def experiments_of(scale: str, wanted: Collection[str]) -> list[str]:
    """Return the experiments that are wanted, or all that the scale does not leave out, in the order of measuring."""
    left_out = SCALES[scale].left_out
    return [name for name in EXPERIMENTS if (name in wanted if wanted else name not in left_out)]


ONCE: Final = frozenset({"idle", "dispatch", "failures", "durability", "rebalance", "availability"})
"""Experiments that take long and are repeated `pause_repetitions` times."""

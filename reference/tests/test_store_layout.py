"""Paths and JSON in the metadata store follow kafka-0.8-principles, "HA and ZooKeeper", as do admin nodes."""

import json
from typing import Any

from highwater.reference.effects import STORE, Effect, Instant, broker_peer
from highwater.reference.store.messages import Create, Operation
from highwater.reference.store.metadata_store import MetadataStore
from highwater.reference.tests.simulated import Simulated

# Examples of the source document; our nodes may have more fields.
FIELDS = {
    "/brokers/ids/1": {"jmx_port", "host", "version", "port"},
    "/brokers/topics/t": {"version", "partitions"},
    "/brokers/topics/t/partitions/0/state": {"controller_epoch", "leader", "version", "leader_epoch", "isr"},
    "/controller": {"version", "brokerid"},
}


def peek(simulated: Simulated, path: str) -> Any:
    store = simulated.world.hosts[STORE].node
    assert isinstance(store, MetadataStore)
    return store.peek(path, lambda data, version: json.loads(data or b"true"))


def put(simulated: Simulated, operation: Operation, broker_id: int = 0) -> None:
    """Write to the store as an operator with a ZooKeeper shell would."""
    broker_id = broker_id or simulated.up[0]
    broker = simulated.broker(broker_id)

    def step(now: Instant) -> list[Effect]:
        broker.store.call(operation)
        return broker.fire(now, "unknown")  # any event makes the broker send its pending requests

    simulated.world.enter(broker_peer(broker_id), step)


def test_nodes_have_the_fields_of_the_source_document() -> None:
    simulated = Simulated(3)
    simulated.create("t", partitions=2)
    for path, fields in FIELDS.items():
        assert fields <= set(peek(simulated, path)), path
    assert peek(simulated, "/brokers/topics/t")["partitions"].keys() == {"0", "1"}
    assert peek(simulated, "/controller_epoch") == 1
    assert peek(simulated, "/controller")["brokerid"] in {1, 2, 3}


def test_a_reassignment_is_read_from_its_node_and_the_node_deleted_at_the_end() -> None:
    simulated = Simulated(3)
    simulated.create("t")
    (first, *rest) = peek(simulated, "/brokers/topics/t")["partitions"]["0"]
    wish = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": rest}]}
    put(simulated, Create("/admin/reassign_partitions", json.dumps(wish).encode()))
    simulated.wait(lambda: peek(simulated, "/brokers/topics/t")["partitions"]["0"] == rest)
    simulated.wait(lambda: peek(simulated, "/admin/reassign_partitions") is None)
    assert first not in peek(simulated, "/brokers/topics/t/partitions/0/state")["isr"]


def test_a_preferred_election_is_read_from_its_node_and_the_node_deleted() -> None:
    simulated = Simulated(3, auto_leader_rebalance_enable=False)
    simulated.create("t")
    preferred = peek(simulated, "/brokers/topics/t")["partitions"]["0"][0]
    state = "/brokers/topics/t/partitions/0/state"
    simulated.world.crash(broker_peer(preferred), lose_unflushed=False)
    simulated.wait(lambda: peek(simulated, state)["leader"] != preferred)
    simulated.world.start(broker_peer(preferred))
    simulated.wait(lambda: preferred in peek(simulated, state)["isr"])
    wish = {"version": 1, "partitions": [{"topic": "t", "partition": 0}]}
    put(simulated, Create("/admin/preferred_replica_election", json.dumps(wish).encode()))
    simulated.wait(lambda: peek(simulated, state)["leader"] == preferred)
    simulated.wait(lambda: peek(simulated, "/admin/preferred_replica_election") is None)
    assert peek(simulated, state)["leader"] == preferred


def test_leader_imbalance_triggers_a_preferred_election() -> None:
    simulated = Simulated(3, leader_imbalance_check_interval_ms=500)
    simulated.create("t")
    preferred = peek(simulated, "/brokers/topics/t")["partitions"]["0"][0]
    state = "/brokers/topics/t/partitions/0/state"
    simulated.world.crash(broker_peer(preferred), lose_unflushed=False)
    simulated.wait(lambda: peek(simulated, state)["leader"] != preferred)
    simulated.world.start(broker_peer(preferred))
    simulated.wait(lambda: peek(simulated, state)["leader"] == preferred)
    assert preferred in peek(simulated, state)["isr"]


def test_a_topic_is_recreated_only_after_its_deletion_is_complete() -> None:
    """Otherwise the deletion would remove the new settings. The controller pauses between two steps of the deletion."""
    simulated = Simulated(3)
    simulated.create("t")
    old = peek(simulated, "/brokers/topics/t")["topic_id"]
    controller = peek(simulated, "/controller")["brokerid"]
    other = next(each for each in (1, 2, 3) if each != controller)
    put(simulated, Create("/admin/delete_topics/t"), other)
    while peek(simulated, "/brokers/topics/t") is not None:
        simulated.run(1)
    simulated.world.pause(broker_peer(controller))
    assert peek(simulated, "/config/topics/t") == {}
    simulated.leader("t", broker_id=other)  # Metadata creates a missing topic
    simulated.run(100)
    assert peek(simulated, "/brokers/topics/t") is None
    simulated.world.resume(broker_peer(controller))
    simulated.wait(lambda: peek(simulated, "/admin/delete_topics/t") is None)
    assert peek(simulated, "/config/topics/t") is None
    simulated.wait(lambda: simulated.leader("t", broker_id=other) > 0)
    assert peek(simulated, "/brokers/topics/t")["topic_id"] != old
    assert peek(simulated, "/config/topics/t") == {}

"""Controller failover: the twelve steps of kafka-0.8-principles and kafka-0.9-controller, in order.

A watch is set before the node is read, so that no change in between is missed. Apache Kafka:
KafkaController.onControllerFailover.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from highwater.reference.controller.cluster import (
    BROKERS,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    LOG_DIR_EVENTS,
    PREFERRED_ELECTION,
    REASSIGN,
    TOPICS,
    read_brokers,
    read_states,
    read_topics,
)
from highwater.reference.controller.context import ControllerMovedError
from highwater.reference.controller.epoch import Term
from highwater.reference.controller.steps import Step
from highwater.reference.controller.transitions import PartitionStatus, ReplicaStatus


def _watch(*paths: str) -> Callable[[Term], Coroutine[Any, Any, None]]:
    """Return a step that sets watches on these paths."""

    async def run(term: Term) -> None:
        for path in paths:
            await term.controller_context.wait_for(term.controller_context.store.watch(path))

    return run


async def _check_epoch(term: Term) -> None:
    """Raise ControllerMovedError if the epoch is not the one written with the controller node (KAFKA-6082)."""
    found = await term.controller_context.wait_for(term.controller_context.store.get(CONTROLLER_EPOCH))
    if found.stat is None or found.stat.version != term.epoch_version:
        raise ControllerMovedError


async def _load(term: Term) -> None:
    controller_context = term.controller_context
    brokers = await read_brokers(controller_context.store)
    deleting = set((await controller_context.wait_for(controller_context.store.children(DELETE_TOPICS))).children)
    topics = await read_topics(controller_context.store)
    keys = [(topic, partition) for topic, info in topics.items() for partition in info.assignment]
    states = await read_states(controller_context.store, keys)
    controller_context.check_active()
    cluster = controller_context.cluster
    cluster.brokers, cluster.topics, cluster.states, cluster.deleting = brokers, topics, states, deleting


async def _start_machines(term: Term) -> None:
    """Initialize the state machines, elect leaders where there is no live one, remove dead brokers from ISRs."""
    controller_context, cluster = term.controller_context, term.controller_context.cluster
    for key in cluster.partitions():
        state = cluster.states.get(key)
        status = PartitionStatus.NEW
        if state is not None:
            status = PartitionStatus.ONLINE if state.leader in cluster.brokers else PartitionStatus.OFFLINE
        controller_context.partitions.initialize(key, status)
        for replica in cluster.replicas(key):
            alive = ReplicaStatus.ONLINE if replica in cluster.brokers else ReplicaStatus.OFFLINE
            controller_context.replicas.initialize((*key, replica), alive)
    for broker_id in cluster.brokers:
        controller_context.open_channel(broker_id)
    await term.brokers.recover_leaders(cluster.brokers)
    await term.brokers.remove_dead_from_isr()


async def _run(term: Term) -> None:
    term.controller_context.running = True


async def _announce(term: Term) -> None:
    controller_context = term.controller_context
    controller_context.announce(list(controller_context.cluster.states), controller_context.cluster.brokers)
    await term.topics.create_partitions(*controller_context.cluster.topics)
    await term.reassignments.resume()
    await term.elections.run_requested()


async def _start_rebalance(term: Term) -> None:
    if term.controller_context.broker_context.config.auto_leader_rebalance_enable:
        term.controller_context.spawn(term.elections.rebalance_periodically)


async def _resume_deletions(term: Term) -> None:
    for topic in sorted(term.controller_context.cluster.deleting):
        term.deletions.start_or_resume(topic)


STEPS: Final[tuple[Step[Term, None], ...]] = (
    Step("Read and raise the controller epoch.", _check_epoch),
    Step("Watch the reassignments.", _watch(REASSIGN)),
    Step("Watch the requests for preferred leader elections.", _watch(PREFERRED_ELECTION)),
    Step("Watch the topics.", _watch(TOPICS)),
    Step("Watch the topics to be deleted.", _watch(DELETE_TOPICS)),
    Step("Watch the brokers and their disk failure notifications.", _watch(BROKERS, LOG_DIR_EVENTS)),
    Step("Read brokers, topics, assignments, leaders and ISRs.", _load),
    Step("Start the state machines of replicas and partitions.", _start_machines),
    Step("Act as controller from now on.", _run),
    Step("Send the leaders to every live broker.", _announce),
    Step("Start the periodic leader rebalance.", _start_rebalance),
    Step("Resume the requested topic deletions.", _resume_deletions),
)

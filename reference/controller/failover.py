"""What a new controller does first: the twelve steps of kafka-0.8-principles and kafka-0.9-controller, in order.

A watch is set before what it watches is read, so nothing is missed in between.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from reference.controller.cluster import read_brokers, read_states, read_topics
from reference.controller.office import OfficeOverError
from reference.controller.paths import (
    BROKERS,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    LOG_DIR_EVENTS,
    PREFERRED_ELECTION,
    REASSIGN,
    TOPICS,
)
from reference.controller.steps import Step
from reference.controller.term import Term
from reference.controller.transitions import PartitionStatus, ReplicaStatus


def _watch(*paths: str) -> Callable[[Term], Coroutine[Any, Any, None]]:
    async def take(term: Term) -> None:
        for path in paths:
            await term.office.ask(term.office.store.watch(path))

    return take


async def _check_epoch(term: Term) -> None:
    """It was raised together with the claim of the node, in one write (KAFKA-6082)."""
    found = await term.office.ask(term.office.store.get(CONTROLLER_EPOCH))
    if found.stat is None or found.stat.version != term.epoch_version:
        raise OfficeOverError


async def _load(term: Term) -> None:
    office = term.office
    brokers = await read_brokers(office.store)
    deleting = set((await office.ask(office.store.children(DELETE_TOPICS))).children)
    topics = await read_topics(office.store)
    keys = [(topic, partition) for topic, info in topics.items() for partition in info.assignment]
    states = await read_states(office.store, keys)
    office.check()
    cluster = office.cluster
    cluster.brokers, cluster.topics, cluster.states, cluster.deleting = brokers, topics, states, deleting


async def _start_machines(term: Term) -> None:
    """Note how everything stands; elect where nobody fit leads; who is dead leaves the ISR."""
    office, cluster = term.office, term.office.cluster
    for key in cluster.assigned():
        state = cluster.states.get(key)
        status = PartitionStatus.NEW
        if state is not None:
            status = PartitionStatus.ONLINE if state.leader in cluster.brokers else PartitionStatus.OFFLINE
        office.partitions.assume(key, status)
        for replica in cluster.replicas(key):
            alive = ReplicaStatus.ONLINE if replica in cluster.brokers else ReplicaStatus.OFFLINE
            office.replicas.assume((*key, replica), alive)
    for broker_id in cluster.brokers:
        office.open_channel(broker_id)
    await term.brokers.repair(cluster.brokers)
    await term.brokers.drop_dead()


async def _run(term: Term) -> None:
    term.office.running = True


async def _announce(term: Term) -> None:
    office = term.office
    office.announce(list(office.cluster.states), office.cluster.brokers)
    for topic in list(office.cluster.topics):
        await term.topics.create_partitions(topic)
    await term.reassignments.resume()
    await term.elections.take_up()


async def _start_rebalance(term: Term) -> None:
    if term.office.context.config.auto_leader_rebalance_enable:
        term.office.begin(term.elections.rebalance_now_and_then)


async def _resume_deletions(term: Term) -> None:
    for topic in sorted(term.office.cluster.deleting):
        term.deletions.want(topic)


STEPS: Final[tuple[Step[Term, None], ...]] = (
    Step("Read and raise the controller epoch.", _check_epoch),
    Step("Watch the reassignments.", _watch(REASSIGN)),
    Step("Watch the wishes for preferred replicas.", _watch(PREFERRED_ELECTION)),
    Step("Watch the topics.", _watch(TOPICS)),
    Step("Watch the topics to be deleted.", _watch(DELETE_TOPICS)),
    Step("Watch the brokers, and what they say of their disks.", _watch(BROKERS, LOG_DIR_EVENTS)),
    Step("Read brokers, topics, assignments, leaders and ISRs.", _load),
    Step("Start the state machines of replicas and partitions.", _start_machines),
    Step("Act as controller from here on.", _run),
    Step("Tell every live broker who leads what.", _announce),
    Step("Begin to rebalance leaders.", _start_rebalance),
    Step("Delete what is to be deleted.", _resume_deletions),
)

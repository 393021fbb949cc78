"""Brokers come and go: who leads for the dead, and what a newcomer is told."""

from dataclasses import replace

from reference.controller.cluster import BrokerInfo, Key, read_brokers, registration
from reference.controller.deletion import Deletions
from reference.controller.election import elect_offline, shrink, succeed
from reference.controller.eligible import trusted_isr
from reference.controller.office import Decision, Office
from reference.controller.paths import BROKERS
from reference.controller.topic_changes import TopicChanges
from reference.controller.transitions import PartitionStatus, ReplicaStatus
from reference.replication.states import NO_LEADER, PartitionState
from reference.store_messages import SetData


class BrokerChanges:
    def __init__(self, office: Office, topics: TopicChanges, deletions: Deletions) -> None:
        self._office, self._topics, self._deletions = office, topics, deletions
        office.on_disk_failure = self._disk_failed

    async def look(self) -> None:
        """Compare the registered brokers with those known; another broker epoch is another life."""
        cluster, found = self._office.cluster, await read_brokers(self._office.store)
        self._office.check()
        known = cluster.brokers
        gone = {b for b, info in known.items() if b not in found or found[b].epoch != info.epoch}
        come = {b: info for b, info in found.items() if b not in known or known[b].epoch != info.epoch}
        if gone:
            cluster.brokers = {b: info for b, info in known.items() if b not in gone}
            cluster.leaving -= gone
            cluster.offline = {replica for replica in cluster.offline if replica[2] not in gone}
            for broker_id in gone:
                self._office.close_channel(broker_id)
            await self._died(gone)
        if come:
            cluster.brokers = dict(sorted({**cluster.brokers, **come}.items()))
            for broker_id in come:
                self._office.open_channel(broker_id)
            await self._started(come)

    # -- failure -----------------------------------------------------------------------------------

    async def _died(self, gone: set[int]) -> None:
        office, cluster = self._office, self._office.cluster
        office.log(f"brokers {sorted(gone)} died")
        for broker_id in sorted(gone):
            for key in cluster.assigned_to(broker_id):
                self._deletions.replica_died((*key, broker_id))
        for key, state in cluster.states.items():
            if state.leader in gone:
                office.partitions.move(key, PartitionStatus.OFFLINE)
        await self._change(self._without_dead)
        office.send_metadata([], cluster.brokers)

    async def drop_dead(self) -> None:
        """Who died while nobody was in office leaves the ISR now: a leader drops only who lags."""
        await self._change(self._without_dead)

    def _without_dead(self, key: Key, state: PartitionState) -> PartitionState | None:
        live = self._office.cluster.live(key)
        if state.leader not in live:
            return self._elected(key, state)
        if not self._office.context.guards.fenced_leaves_isr:
            return None
        return shrink(state, set(self._office.cluster.replicas(key)) - live)

    async def _change(self, decide: Decision) -> None:
        cluster = self._office.cluster
        keys = [key for key in cluster.states if key[0] not in cluster.deleting]
        await self._office.change(keys, decide)

    # -- disks -------------------------------------------------------------------------------------

    def look_at_disk(self, broker_id: int) -> None:
        """A broker says that a disk failed; its answer to LeaderAndIsr tells which replicas that concerns."""
        cluster = self._office.cluster
        if broker_id in cluster.brokers:
            self._office.send_leaders(cluster.hosted_by(broker_id), {broker_id})

    async def _disk_failed(self, broker_id: int, keys: list[Key]) -> None:
        office, cluster = self._office, self._office.cluster
        failed = [key for key in keys if key in cluster.states and (*key, broker_id) not in cluster.offline]
        for key in failed:
            office.log(f"{key[0]}-{key[1]} is offline on broker {broker_id}")
            cluster.offline.add((*key, broker_id))
            self._deletions.replica_died((*key, broker_id))
        await office.change(failed, self._without_dead)

    # -- start -------------------------------------------------------------------------------------

    async def _started(self, come: dict[int, BrokerInfo]) -> None:
        office, cluster = self._office, self._office.cluster
        office.log(f"brokers {sorted(come)} started")
        # Who lost its tail must not hear that it leads; so repair comes before telling what it hosts.
        await self.repair(come)
        office.send_metadata(list(cluster.states), cluster.brokers)
        for broker_id in come:
            office.send_leaders(cluster.hosted_by(broker_id), {broker_id})
            for key in cluster.assigned_to(broker_id):
                if office.replicas[(*key, broker_id)] in {ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE}:
                    office.replicas.move((*key, broker_id), ReplicaStatus.ONLINE)
        for topic in list(cluster.topics):
            await self._topics.create_partitions(topic)
        for topic in sorted(cluster.deleting):
            self._deletions.want(topic)

    async def repair(self, come: dict[int, BrokerInfo]) -> None:
        """Elect where there is no live leader; before that, who restarted uncleanly leaves the ISR (KIP-966).

        The last member stays where no eligible replica is left: nobody else is known to have everything.
        """
        unclean = {broker_id for broker_id, info in come.items() if info.unclean}
        if unclean and self._office.context.guards.unclean_restart_leaves_isr:
            await self._change(lambda key, state: self._without_unclean(key, state, unclean))
            for broker_id in sorted(unclean):  # it is out: later controllers need not do this
                info = come[broker_id]
                data = registration(info.host, info.port, unclean=False, rack=info.rack)
                await self._office.ask(self._office.store.call(SetData(f"{BROKERS}/{broker_id}", data)))
                self._office.cluster.brokers[broker_id] = replace(info, unclean=False)
        cluster = self._office.cluster
        await self._change(lambda key, state: None if state.leader in cluster.live(key) else self._elected(key, state))

    def _without_unclean(self, key: Key, state: PartitionState, unclean: set[int]) -> PartitionState | None:
        """A new state wherever such a broker is assigned, even outside the ISR.

        A leader may be about to let it in by what its former life fetched (KIP-903); the new partition epoch refuses
        that, and the new leader epoch makes the leader forget. Where an unclean leader stays because it is the last
        member, the new epoch tells its records from the lost ones.
        """
        if not unclean.intersection(self._office.cluster.replicas(key)):
            return None
        isr = trusted_isr(state, unclean)
        if state.leader in unclean:
            return self._elected(key, replace(state, isr=isr))
        unchanged = isr == state.isr and not unclean.intersection(state.elr)
        return None if state.leader == NO_LEADER and unchanged else succeed(state, state.leader, isr)

    def _elected(self, key: Key, state: PartitionState) -> PartitionState | None:
        office = self._office
        unclean = office.configs.value(key[0], "unclean.leader.election.enable") == "true"
        allowed = unclean or not office.context.guards.elect_from_isr
        return elect_offline(state, office.cluster.replicas(key), office.cluster.live(key), unclean=allowed)

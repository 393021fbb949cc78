"""Broker startup and failure: electing new leaders, and the requests that a started broker receives."""

from dataclasses import replace

from highwater.reference.controller.cluster import BROKERS, BrokerInfo, Key, read_brokers, registration
from highwater.reference.controller.context import ControllerContext, Decision
from highwater.reference.controller.deletion import Deletions
from highwater.reference.controller.election import elect_offline, shrink, trusted_isr, with_new_epoch
from highwater.reference.controller.topic_changes import TopicChanges
from highwater.reference.controller.transitions import PartitionStatus, ReplicaStatus
from highwater.reference.replication.states import NO_LEADER, PartitionState
from highwater.reference.store.messages import SetData


class BrokerChanges:
    """Apache Kafka: KafkaController.onBrokerStartup, onBrokerFailure and onReplicasBecomeOffline."""

    def __init__(self, controller_context: ControllerContext, topics: TopicChanges, deletions: Deletions) -> None:
        self._controller_context, self._topics, self._deletions = controller_context, topics, deletions
        controller_context.on_disk_failure = self._on_log_dir_failure

    async def refresh(self) -> None:
        """Compare the registered brokers with the cached ones; a changed broker epoch is a restart (KIP-380)."""
        cluster, registered = self._controller_context.cluster, await read_brokers(self._controller_context.store)
        self._controller_context.check_active()
        known = cluster.brokers
        failed = {b for b, info in known.items() if b not in registered or registered[b].epoch != info.epoch}
        started = {b: info for b, info in registered.items() if b not in known or known[b].epoch != info.epoch}
        if failed:
            cluster.brokers = {b: info for b, info in known.items() if b not in failed}
            cluster.shutting_down -= failed
            cluster.offline_replicas = {replica for replica in cluster.offline_replicas if replica[2] not in failed}
            removed = self._controller_context.remove_channels(failed)
            await self._on_broker_failure(failed)
            for channel in removed:  # what waits for a reply finds the brokers gone, and their replicas offline
                channel.close()
        if started:
            cluster.brokers = dict(sorted({**cluster.brokers, **started}.items()))
            for broker_id in started:
                self._controller_context.open_channel(broker_id)
            await self._on_broker_startup(started)

    # -- failure -----------------------------------------------------------------------------------

    async def _on_broker_failure(self, failed: set[int]) -> None:
        controller_context, cluster = self._controller_context, self._controller_context.cluster
        controller_context.log(f"brokers {sorted(failed)} died")
        for broker_id in sorted(failed):
            for key in cluster.assigned_to(broker_id):
                self._deletions.on_replica_offline((*key, broker_id))
        for key, state in cluster.states.items():  # the deletion of a topic takes its partitions offline itself
            if state.leader in failed and key[0] not in cluster.deleting:
                controller_context.partitions.move(key, PartitionStatus.OFFLINE)
        await self._update_partitions(self._remove_dead)
        controller_context.send_update_metadata([], cluster.brokers)

    async def remove_dead_from_isr(self) -> None:
        """Remove from the ISRs the brokers that died while there was no controller.

        A leader removes a replica only after replica.lag.time.max.ms.
        """
        await self._update_partitions(self._remove_dead)

    def _remove_dead(self, key: Key, state: PartitionState) -> PartitionState | None:
        live = self._controller_context.cluster.live(key)
        if state.leader not in live:
            return self._elect(key, state)
        if not self._controller_context.broker_context.guards.fenced_leaves_isr:
            return None
        return shrink(state, set(self._controller_context.cluster.replicas(key)) - live)

    async def _update_partitions(self, decide: Decision) -> None:
        cluster = self._controller_context.cluster
        keys = [key for key in cluster.states if key[0] not in cluster.deleting]
        await self._controller_context.update_partitions(keys, decide)

    # -- disks -------------------------------------------------------------------------------------

    def query_offline_replicas(self, broker_id: int) -> None:
        """Send LeaderAndIsr to a broker with a failed disk; its response names the offline replicas (KIP-112)."""
        cluster = self._controller_context.cluster
        if broker_id in cluster.brokers:
            self._controller_context.send_leader_and_isr(cluster.hosted_by(broker_id), {broker_id})

    async def _on_log_dir_failure(self, broker_id: int, keys: list[Key]) -> None:
        controller_context, cluster = self._controller_context, self._controller_context.cluster
        failed = [key for key in keys if key in cluster.states and (*key, broker_id) not in cluster.offline_replicas]
        for key in failed:
            controller_context.log(f"{key[0]}-{key[1]} is offline on broker {broker_id}")
            cluster.offline_replicas.add((*key, broker_id))
            self._deletions.on_replica_offline((*key, broker_id))
        await controller_context.update_partitions(failed, self._remove_dead)
        controller_context.send_update_metadata(failed, cluster.brokers)

    # -- start -------------------------------------------------------------------------------------

    async def _on_broker_startup(self, started: dict[int, BrokerInfo]) -> None:
        controller_context, cluster = self._controller_context, self._controller_context.cluster
        controller_context.log(f"brokers {sorted(started)} started")
        # A broker that lost the end of its log must not be made leader, so leaders are elected before LeaderAndIsr.
        await self.recover_leaders(started)
        controller_context.send_update_metadata(list(cluster.states), cluster.brokers)
        for broker_id in started:
            hosted = cluster.hosted_by(broker_id)
            present = [key for key in hosted if controller_context.partitions[key] != PartitionStatus.NON_EXISTENT]
            controller_context.send_leader_and_isr(present, {broker_id})  # not those whose replicas are all deleted
            for key in cluster.assigned_to(broker_id):
                if controller_context.replicas[(*key, broker_id)] in {
                    ReplicaStatus.OFFLINE,
                    ReplicaStatus.DELETION_INELIGIBLE,
                }:
                    controller_context.replicas.move((*key, broker_id), ReplicaStatus.ONLINE)
        await self._topics.create_partitions(*cluster.topics)
        for topic in sorted(cluster.deleting):
            self._deletions.start_or_resume(topic)

    async def recover_leaders(self, started: dict[int, BrokerInfo]) -> None:
        """Elect leaders for partitions without a live one, after removing unclean brokers from the ISR (KIP-966).

        The last member stays in the ISR if there is no eligible leader replica: no other replica is known to have all
        committed records.
        """
        unclean = {broker_id for broker_id, info in started.items() if info.unclean}
        if unclean and self._controller_context.broker_context.guards.unclean_restart_leaves_isr:
            await self._update_partitions(lambda key, state: self._remove_unclean(key, state, unclean))
            for broker_id in sorted(unclean):  # it is out of the ISR: later controllers need not repeat this
                info = started[broker_id]
                data = registration(info.host, info.port, unclean=False, rack=info.rack)
                await self._controller_context.wait_for(
                    self._controller_context.store.call(SetData(f"{BROKERS}/{broker_id}", data))
                )
                self._controller_context.cluster.brokers[broker_id] = replace(info, unclean=False)
        cluster = self._controller_context.cluster
        await self._update_partitions(
            lambda key, state: None if state.leader in cluster.live(key) else self._elect(key, state)
        )

    def _remove_unclean(self, key: Key, state: PartitionState, unclean: set[int]) -> PartitionState | None:
        """Return a new state for each partition assigned to an unclean broker, even one outside the ISR.

        The leader may be about to add the broker to the ISR because of fetches before its restart (KIP-903). The new
        partition epoch makes that write fail, and the new leader epoch makes the leader discard the fetch state. If an
        unclean leader stays because it is the last member, the new epoch distinguishes its records from the lost ones.
        """
        if not unclean.intersection(self._controller_context.cluster.replicas(key)):
            return None
        isr = trusted_isr(state, unclean)
        if state.leader in unclean:
            return self._elect(key, replace(state, isr=isr))
        unchanged = isr == state.isr and not unclean.intersection(state.elr)
        return None if state.leader == NO_LEADER and unchanged else with_new_epoch(state, state.leader, isr)

    def _elect(self, key: Key, state: PartitionState) -> PartitionState | None:
        controller_context = self._controller_context
        unclean = controller_context.configs.is_true(key[0], "unclean.leader.election.enable")
        allowed = unclean or not controller_context.broker_context.guards.elect_from_isr
        return elect_offline(
            state, controller_context.cluster.replicas(key), controller_context.cluster.live(key), unclean=allowed
        )

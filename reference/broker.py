"""One broker: creates its components and dispatches requests, timers and completions to them."""

from typing import Any

from highwater.reference.admin import acls
from highwater.reference.admin.alter_configs import AlterConfigs
from highwater.reference.admin.describe_configs import DescribeConfigs
from highwater.reference.admin.log_dirs import LogDirs
from highwater.reference.admin.topic_partitions import TopicPartitions
from highwater.reference.api_versions import (
    API_VERSIONS,
    ELIGIBLE_LEADER_REPLICAS,
    GROUP_VERSION,
    TRANSACTION_VERSION,
    ApiVersionsHandler,
    ServedApi,
    by_key,
)
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.configuration.brokers import ROOT as BROKER_CONFIGS
from highwater.reference.configuration.brokers import BrokerConfigs
from highwater.reference.configuration.topics import ROOT as CONFIGS
from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.context import Context, to_json
from highwater.reference.controller.cluster import (
    BROKERS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    LOG_DIR_EVENTS,
    TOPICS,
    parse_topic,
    registration,
)
from highwater.reference.controller.controller import Controller
from highwater.reference.controller.handlers import ControllerHandlers
from highwater.reference.effects import STORE, Close, Effect, HandlerFailed, Instant, Outbox, Request, Response
from highwater.reference.groups.consumer.classic_members import ClassicMembers
from highwater.reference.groups.consumer.coordinator import ConsumerGroupCoordinator
from highwater.reference.groups.consumer.describe import ConsumerGroupDescriber
from highwater.reference.groups.consumer.steps import GroupSteps
from highwater.reference.groups.coordinator import GroupCoordinator
from highwater.reference.groups.expiry import GroupExpiry
from highwater.reference.groups.group import Group
from highwater.reference.groups.offsets import OffsetsCoordinator
from highwater.reference.groups.store import GroupStore
from highwater.reference.metadata import MetadataHandler
from highwater.reference.metadata_cache import Endpoint, MetadataCache
from highwater.reference.peers import SWEEP, Peers
from highwater.reference.procedures import spawn
from highwater.reference.replication.delete_records import DeleteRecordsHandler
from highwater.reference.replication.fetch import FetchHandler
from highwater.reference.replication.isr_changes import AlterPartitionManager, ZkIsrManager
from highwater.reference.replication.log_maintenance import LogMaintenance
from highwater.reference.replication.offsets import OffsetsHandler
from highwater.reference.replication.partition import Partition
from highwater.reference.replication.produce import ProduceHandler
from highwater.reference.replication.purgatory import PREFIX, Purgatory
from highwater.reference.replication.replica_manager import Key, ReplicaManager
from highwater.reference.security.sasl import refuse_authenticate, refuse_handshake
from highwater.reference.storage.filesystem import FileSystem
from highwater.reference.store.client import PING, RECONNECT, StoreClient
from highwater.reference.store.messages import Create, Delete, StoreReply, WatchEvent
from highwater.reference.topics import ROOTS, Topics
from highwater.reference.transactions.coordinator import PRODUCER_IDS
from highwater.reference.transactions.service import Transactions
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.controller import (
    ControlledShutdownRequest,
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    StopReplicaPartitionError,
    StopReplicaResponse,
    UpdateMetadataResponse,
)

PRODUCE = 0
CONTROLLED_SHUTDOWN_VERSION = 3
CONTROLLED_SHUTDOWN_RETRY_MS = 1_000
STRAYS_MS = 1_000
CLUSTER_ID = "/cluster_id"


class Broker:
    """A broker node (see `reference.effects`). After a crash, create a new instance: it recovers from its disk."""

    def __init__(self, config: BrokerConfig, fs: FileSystem, *, tracing: bool = False) -> None:
        self.config = config
        self._out = Outbox(tracing=tracing)
        self._context = context = Context(config, fs, self._out)
        self.meters = context.meters
        self._purgatory = self.purgatory = Purgatory(context)
        self._peers = Peers(context)
        self.store = StoreClient(
            context,
            on_session=self._on_session_started,
            on_event=self._on_watch_event,
            on_resumed=self._on_session_resumed,
        )
        self.cache = MetadataCache()
        self._broker_configs = BrokerConfigs(config)
        self.configs = TopicConfigs(self._broker_configs)
        isr_changes = (
            ZkIsrManager(context, self.store)
            if config.isr_update == "zookeeper"
            else AlterPartitionManager(context, self._peers, self.cache)
        )
        self.replicas = ReplicaManager(context, isr_changes, self._peers, self._purgatory, self.configs)
        self.replicas.is_alive, self.replicas.partition_exists = self.cache.is_alive, self.cache.knows
        self.maintenance = LogMaintenance(context, self.replicas, self.configs)
        self.controller = Controller(context, self.store, self._peers, self._purgatory, self.configs)
        self.groups = GroupStore(context, self.cache)
        self._coordinator = GroupCoordinator(context, self._purgatory, self.groups)
        self._group_steps = steps = GroupSteps(context, self._purgatory, self.groups, self.cache)
        self._consumer_groups = ConsumerGroupCoordinator(context, self.groups, self.cache, steps)
        self._members = ClassicMembers(
            context, self.groups, self.cache, steps, self._coordinator, self._consumer_groups
        )
        self._group_expiry = GroupExpiry(context, self._purgatory, self.groups)
        self.groups.on_loaded, self.groups.on_unloaded = self._resume_groups, self._resign_groups
        self.transactions = Transactions(
            context, self.cache, self.replicas, self._peers, self._purgatory, self.groups, self.store
        )
        self.replicas.on_role_change = self._on_role_change
        self.replicas.on_disk_failure = lambda: spawn(self._report_failed_disk())
        self._registration = f"{BROKERS}/{config.broker_id}"
        self._registered = 0  # id of the session that owns the registration; 0: none
        self.may_stop = False
        self.served = self._handlers()

    def _handlers(self) -> dict[int, ServedApi]:
        """Return API key -> handler with the versions that ApiVersions advertises."""
        context, cache = self._context, self.cache
        produce = ProduceHandler(context, self.replicas, self.configs, self.transactions.verifier.verify)
        fetch = FetchHandler(context, self.replicas, self._purgatory, cache.rack_of)
        offsets = OffsetsHandler(self.replicas)
        deletion = DeleteRecordsHandler(context, self.replicas, self.configs, self._purgatory)
        controller_handlers = ControllerHandlers(self.controller, cache.name_of)
        topics = Topics(context, self.store, cache, self.configs, self.controller, self._purgatory)
        metadata = MetadataHandler(context, cache, topics, self.groups, self.transactions.store, self._purgatory)
        alter_configs = AlterConfigs(self.store, cache, self.configs, self._broker_configs, topics, self._apply_configs)
        committed = OffsetsCoordinator(context, self.groups, self._coordinator, cache)
        log_dirs = LogDirs(context, self.replicas)
        members = self._members
        served = by_key(
            {
                "Produce": ServedApi(produce.produce, 0, self.transactions.newest_produce),
                "Fetch": ServedApi(fetch.fetch, 0, 12),
                "ListOffsets": ServedApi(offsets.list_offsets, 1, 7),
                "Metadata": ServedApi(metadata.metadata, 0, 12),
                "LeaderAndIsr": ServedApi(self._leader_and_isr, 2, 4, inter_broker=True),
                "StopReplica": ServedApi(self._stop_replica, 3, 3, inter_broker=True),
                "UpdateMetadata": ServedApi(self._update_metadata, 5, 7, inter_broker=True),
                "ControlledShutdown": ServedApi(controller_handlers.controlled_shutdown, 0, 3, inter_broker=True),
                "OffsetCommit": ServedApi(committed.commit, 0, 9),
                "OffsetFetch": ServedApi(committed.fetch, 1, 9 if context.config.group_version else 8),
                "FindCoordinator": ServedApi(metadata.find_coordinator, 0, 4),
                "JoinGroup": ServedApi(members.join, 0, 9),
                "Heartbeat": ServedApi(members.heartbeat, 0, 4),
                "LeaveGroup": ServedApi(members.leave, 0, 5),
                "SyncGroup": ServedApi(members.sync, 0, 5),
                "DescribeGroups": ServedApi(committed.describe, 0, 6),
                "ListGroups": ServedApi(committed.list, 0, 5),
                "SaslHandshake": ServedApi(refuse_handshake, 0, 1),
                "CreateTopics": ServedApi(topics.create, 0, 7),
                "DeleteTopics": ServedApi(topics.delete, 0, 6),
                "DeleteRecords": ServedApi(deletion.delete_records, 0, 2),
                "OffsetForLeaderEpoch": ServedApi(offsets.offset_for_leader_epoch, 0, 4),
                "DescribeConfigs": ServedApi(DescribeConfigs(self._broker_configs, cache, self.configs).describe, 0, 4),
                "AlterConfigs": ServedApi(alter_configs.replace, 0, 2),
                "AlterReplicaLogDirs": ServedApi(log_dirs.alter, 0, 2),
                "DescribeLogDirs": ServedApi(log_dirs.describe, 0, 4),
                "SaslAuthenticate": ServedApi(refuse_authenticate, 0, 2),
                "CreatePartitions": ServedApi(topics.create_partitions, 0, 3),
                "DeleteGroups": ServedApi(committed.delete, 0, 2),
                "ElectLeaders": ServedApi(controller_handlers.elect_leaders, 0, 2),
                "IncrementalAlterConfigs": ServedApi(alter_configs.change, 0, 1),
                "AlterPartitionReassignments": ServedApi(controller_handlers.alter_reassignments, 0, 1),
                "ListPartitionReassignments": ServedApi(controller_handlers.list_reassignments, 0, 0),
                "OffsetDelete": ServedApi(committed.delete_offsets, 0, 0),
                "AlterPartition": ServedApi(controller_handlers.alter_partition, 0, 3, inter_broker=True),
                "DescribeCluster": ServedApi(metadata.describe_cluster, 0, 1),
                "DescribeTopicPartitions": ServedApi(TopicPartitions(cache).describe, 0, 0),
            }
            | acls.SERVED
            | self.transactions.served(committed)
            | self._consumer_group_apis()
        )
        features = {
            TRANSACTION_VERSION: self.transactions.version,
            ELIGIBLE_LEADER_REPLICAS: int(context.config.isr_update == "alter_partition"),
            GROUP_VERSION: context.config.group_version,
        }
        api_versions = ApiVersionsHandler(served, features)
        served[API_VERSIONS] = ServedApi(api_versions.api_versions, 0, 4)
        return served

    def _consumer_group_apis(self) -> dict[str, ServedApi]:
        """Return the handlers of KIP-848, if the level of group.version has them."""
        if not self.config.group_version:
            return {}
        return {
            "ConsumerGroupHeartbeat": ServedApi(self._consumer_groups.heartbeat, 0, 1),
            "ConsumerGroupDescribe": ServedApi(
                ConsumerGroupDescriber(self._context, self.groups, self.cache).describe, 0, 1
            ),
        }

    # -- entry points ----------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        self._context.now = now
        self.replicas.start()
        self.maintenance.start()
        self._peers.start()
        self.store.start()
        self.transactions.expiry.start()
        self._group_expiry.start()
        return self._out.drain()

    def receive(self, now: Instant, source: str, message: Any) -> list[Effect]:
        self._context.now = now
        if isinstance(message, Request):
            self._request(source, message)
        elif isinstance(message, Response):
            self._peers.receive(message)
        elif isinstance(message, StoreReply | WatchEvent):
            self.store.receive(message)
        return self._out.drain()

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        self._context.now = now
        if timer.startswith(PREFIX):
            self._purgatory.fire(timer)
        elif timer in {PING, RECONNECT}:
            self.store.fire(timer)
        elif timer == SWEEP:
            self._peers.sweep()
        else:
            self.replicas.fire(timer)
            self.maintenance.fire(timer)
        return self._out.drain()

    def complete(self, now: Instant, token: str) -> list[Effect]:
        self._context.now = now
        self.replicas.complete(token)
        self.maintenance.complete(token)
        return self._out.drain()

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        self._context.now = now
        if peer == STORE:
            self.store.closed()
        else:
            self._peers.closed(peer)
        return self._out.drain()

    def shut_down(self, now: Instant) -> list[Effect]:
        """Begin a controlled shutdown (KAFKA-340): move leaders away, end the session, then set `may_stop`."""
        self._context.now = now
        spawn(self._shut_down())
        return self._out.drain()

    async def _shut_down(self) -> None:
        config, remaining = self.config, True
        request = ControlledShutdownRequest(broker_id=config.broker_id, broker_epoch=self._context.broker_epoch)
        tries = config.controlled_shutdown_max_retries if config.controlled_shutdown_enable else 0
        while remaining and tries > 0:
            tries -= 1
            reply = await self._peers.call(self.cache.controller_id, request, CONTROLLED_SHUTDOWN_VERSION)
            remaining = reply is None or reply.error_code != ErrorCode.NONE or bool(reply.remaining_partitions)
            if remaining and tries > 0:
                await self._purgatory.sleep(CONTROLLED_SHUTDOWN_RETRY_MS)
        await self.store.close()
        self.may_stop = True

    def stop(self, now: Instant) -> list[Effect]:
        """Write the checkpoints and the clean-shutdown marker; the driver then flushes and exits."""
        self._context.now = now
        self.replicas.close_cleanly()
        return self._out.drain()

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Return the address of another broker, or None if it is unknown; for the driver that connects to it."""
        known = self.cache.brokers.get(broker_id)
        if known is None and broker_id in self.controller.cluster.brokers:
            info = self.controller.cluster.brokers[broker_id]
            return Endpoint(info.host, info.port)
        return known

    # -- requests --------------------------------------------------------------------------------

    def _request(self, source: str, request: Request) -> None:
        key = getattr(type(request.body), "__schema__").api_key if request.body is not None else API_VERSIONS  # noqa: B009
        spawn(self._answer(source, request, key))

    async def _answer(self, source: str, request: Request, key: int) -> None:
        try:
            response = await self.served[key].handler(request)
        except OSError:
            raise  # a failed disk: the broker must stop, since its replies could be wrong
        except Exception as error:
            self._out.add(HandlerFailed(source, error))
            return
        if key == PRODUCE and request.body.acks == 0:
            refused = any(part.error_code for topic in response.responses for part in topic.partition_responses)
            if refused:  # a producer with acks=0 gets no response; closing the connection is the only error signal
                self._out.add(Close(source))
                return
            response = None
        version = 0 if request.body is None else request.api_version
        self._out.send(source, Response(request.correlation_id, version, response))

    async def _leader_and_isr(self, request: Request) -> LeaderAndIsrResponse:
        body = request.body
        error = self.replicas.check_controller(body.controller_epoch, body.broker_epoch)
        results = self.replicas.leader_and_isr(body) if error is ErrorCode.NONE else []
        return LeaderAndIsrResponse(
            error_code=error,
            partition_errors=tuple(
                LeaderAndIsrPartitionError(topic_name=topic, partition_index=partition, error_code=code)
                for topic, partition, code in results
            ),
        )

    async def _stop_replica(self, request: Request) -> StopReplicaResponse:
        body = request.body
        error = self.replicas.check_controller(body.controller_epoch, body.broker_epoch)
        results = self.replicas.stop_replicas(body) if error is ErrorCode.NONE else []
        return StopReplicaResponse(
            error_code=error,
            partition_errors=tuple(
                StopReplicaPartitionError(topic_name=topic, partition_index=partition, error_code=code)
                for topic, partition, code in results
            ),
        )

    async def _update_metadata(self, request: Request) -> UpdateMetadataResponse:
        body = request.body
        error = self.replicas.check_controller(body.controller_epoch, body.broker_epoch)
        if error is ErrorCode.NONE:
            for topic in self.cache.update(body):
                self.replicas.topic_deleted(topic)
                self._group_expiry.topic_deleted(topic)
        return UpdateMetadataResponse(error_code=error)

    def _resume_groups(self, groups: list[Group]) -> None:
        self._coordinator.resume(groups)
        self._group_steps.resume(groups)

    def _resign_groups(self, groups: list[Group]) -> None:
        self._coordinator.resign(groups)
        self._group_steps.resign(groups)

    def _on_role_change(self, partition: Partition) -> None:
        self.groups.role_changed(partition)
        self.transactions.store.role_changed(partition)

    # -- the metadata store ------------------------------------------------------------------------

    def _on_session_started(self) -> None:
        """Register under the new session, then take part in the controller election."""
        self.controller.resign()
        self._context.broker_epoch = self.store.session_id  # the registration epoch will be larger than the session id
        spawn(self._register())

    def _on_session_resumed(self) -> None:
        self.controller.resign()  # watch events may have been missed
        spawn(self._refresh())

    async def _refresh(self) -> None:
        if self._registered != self.store.session_id:  # the link broke during the registration
            await self._register()
            return
        # A restarted store has lost its watches.
        for path in (CONTROLLER, BROKER_CONFIGS, CONFIGS, self._registration):
            await self.store.watch(path)
        await self._load_configs()
        await self.controller.elect()

    async def _register(self) -> None:
        for root in (*ROOTS, "/admin"):
            await self.store.ensure(root)
        for path, initial in ((CONTROLLER_EPOCH, 0), (PRODUCER_IDS, 0), (CLUSTER_ID, self.config.cluster_id)):
            await self.store.call(Create(path, to_json(initial)))
        for path in (CONTROLLER, BROKER_CONFIGS, CONFIGS):
            await self.store.watch(path)
        await self._load_configs()
        path = self._registration
        config, unclean = self.config, not self.replicas.started_clean
        port = config.advertised_port or config.port
        data = registration(config.host, port, unclean=unclean, rack=config.broker_rack)
        session_id = self.store.session_id
        # A node of an earlier session may still exist. Replacing it changes the broker epoch, so that the controller
        # treats this broker as restarted.
        await self.store.call(Delete(path))
        reply = await self.store.call(Create(path, data, ephemeral=True))
        if reply.error or reply.stat is None:
            return
        self._context.broker_epoch, self._registered = reply.stat.created, session_id
        await self.store.watch(path)
        spawn(self._drop_strays(session_id))
        await self.controller.elect()

    # -- settings ----------------------------------------------------------------------------------

    @property
    def config_in_effect(self) -> BrokerConfig:
        """The config file with the altered settings in place of its own (KIP-226)."""
        return self._context.config

    async def _load_configs(self) -> None:
        await self._broker_configs.load(self.store)
        await self.configs.load(self.store)
        self._apply_configs()

    async def _update_configs(self, event: WatchEvent) -> None:
        is_of_brokers = await self._broker_configs.on_event(self.store, event)
        await self.configs.on_event(self.store, event)
        if is_of_brokers:
            self._apply_configs()
        else:
            self.maintenance.refresh_configs()
        if self.configs.is_true(event.path.removeprefix(CONFIGS + "/"), "unclean.leader.election.enable"):
            self.controller.recover_leaders()

    def _apply_configs(self) -> None:
        self._context.config = self._broker_configs.in_effect
        self.configs.refresh_defaults()
        self.maintenance.refresh_configs()

    # -- start -------------------------------------------------------------------------------------

    async def _drop_strays(self, session_id: int) -> None:
        """Delete stray replicas: those reassigned to other brokers while this broker was down or had no session.

        The final assignment may not be stored yet, so retry while a reassignment is removing a replica.
        """
        known = self.replicas.leader_epochs()
        topics = sorted({topic for topic, _ in known})
        while topics and self._registered == session_id:
            topics = [topic for topic in topics if await self._may_have_strays(topic, known)]
            if topics:
                await self._purgatory.sleep(STRAYS_MS)

    async def _may_have_strays(self, topic: str, known: dict[Key, int]) -> bool:
        """Delete the stray replicas of one topic; return whether to check the topic again later."""
        found = await self.store.get(f"{TOPICS}/{topic}")
        if found.error:
            return found.error != "NoNode"
        info = parse_topic(found.data)
        return self.replicas.delete_strays(topic, info.assignment, info.removing, known)

    async def _report_failed_disk(self) -> None:
        """Notify the controller of a failed disk; it then asks which replicas are offline (KIP-112)."""
        path = f"{LOG_DIR_EVENTS}/{self.config.broker_id}"
        await self.store.ensure(path)
        await self.store.set(path, b"")

    def _on_watch_event(self, event: WatchEvent) -> None:
        if event.path == CONTROLLER and event.kind == "deleted":
            self.controller.resign()
            spawn(self.controller.elect())
        elif event.path == self._registration and event.kind == "changed":
            # The controller has removed this broker from the ISRs after its unclean start. A new session alone loses
            # no data, so the next registration is clean.
            self.replicas.started_clean = True
            self.controller.on_event(event)
        elif event.path.startswith((BROKER_CONFIGS + "/", CONFIGS + "/")):
            spawn(self._update_configs(event))
        else:
            self.controller.on_event(event)

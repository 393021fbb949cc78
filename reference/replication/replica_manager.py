"""All replicas of one broker: what the controller asks of them, and the checkpoints behind them."""

from collections.abc import Callable, Mapping

from reference.context import Context
from reference.effects import Flush
from reference.peers import Peers
from reference.replication.fetcher import Fetcher
from reference.replication.isr_changes import IsrChanges
from reference.replication.partition import Partition, Role
from reference.replication.purgatory import Purgatory
from reference.replication.states import PartitionState
from reference.storage.checkpoints import Checkpoint
from reference.storage.log import Log
from reference.storage.recovery import CorruptLogError
from reference.topic_configs import TopicConfigs
from reference.wire.errors import ErrorCode
from reference.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from reference.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest
from spec.formats.verdict import UsageError

ISR_CHECK = "isr-check"
HIGH_WATERMARK_CHECKPOINT = "high-watermark-checkpoint"
LOG_FLUSH = "log-flush"
LOGS_FLUSHED = "logs-flushed"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

Key = tuple[str, int]
Replicas = Mapping[int, tuple[int, ...]]  # brokers by partition


class ReplicaManager:
    def __init__(
        self, context: Context, isr_changes: IsrChanges, peers: Peers, purgatory: Purgatory, configs: TopicConfigs
    ) -> None:
        self._context, self._isr_changes, self._peers, self._purgatory = context, isr_changes, peers, purgatory
        self._configs = configs
        self.partitions: dict[Key, Partition] = {}
        self.controller_epoch = -1
        self.is_alive: Callable[[int], bool] = lambda broker_id: True
        self.knows: Callable[[str, int], bool] = lambda topic, partition: False
        self.refused: dict[Key, CorruptLogError] = {}  # logs that could not be opened (KIP-112: offline replicas)
        self.on_role_change: Callable[[Partition], None] = lambda partition: None
        self.on_disk_failure: Callable[[], None] = lambda: None
        self._fetchers: dict[int, Fetcher] = {}
        self._high_watermarks = Checkpoint(context.fs, context.out, "replication-offset-checkpoint")
        self._recovery_points = Checkpoint(context.fs, context.out, "recovery-point-offset-checkpoint")
        self._log_starts = Checkpoint(context.fs, context.out, "log-start-offset-checkpoint")
        self._found: dict[str, dict[Key, int]] = {}
        self._flushing: dict[Key, tuple[str, ...]] = {}
        self._stopped: dict[Key, int] = {}  # leader epochs up to which a deleted replica stays deleted
        self.started_clean = True

    # -- start and stop ----------------------------------------------------------------------------

    def start(self) -> None:
        """Open what is on disk. Without the clean-shutdown marker the logs are checked and the tail may be gone."""
        fs, config = self._context.fs, self._context.config
        folders = [name for name in fs.names("") if fs.names(name) and "-" in name]
        # An empty disk is no clean one: it may be what a crash left (KIP-903). A new broker is in no ISR anyway.
        self.started_clean = fs.exists(CLEAN_SHUTDOWN)
        if fs.exists(CLEAN_SHUTDOWN):
            fs.delete(CLEAN_SHUTDOWN)
        checkpoints = (self._high_watermarks, self._recovery_points, self._log_starts)
        self._found = {checkpoint.path: checkpoint.read() for checkpoint in checkpoints}
        if self._high_watermarks.damaged and not self._context.guards.truncate_by_epoch:
            raise UsageError(
                "the high watermarks are damaged, and truncation = high_watermark would cut every log at its start",
                where=self._high_watermarks.path,
                mend="restore the file, or start once with truncation = kip320",
            )
        for folder in folders:
            topic, _, number = folder.rpartition("-")
            if number.isdigit():
                opened = self._open(topic, int(number))
                if opened is not None:
                    self._trace_restart(opened)
        self._context.timer(ISR_CHECK, config.replica_lag_time_max_ms // 2)
        self._context.timer(HIGH_WATERMARK_CHECKPOINT, config.high_watermark_checkpoint_interval_ms)
        self._context.timer(LOG_FLUSH, config.log_flush_interval_ms)

    def not_leader(self, topic: str, number: int) -> ErrorCode:
        """Why a partition that is not led here is not."""
        partition = self.partitions.get((topic, number))
        if (topic, number) in self.refused or (partition is not None and partition.offline):
            return ErrorCode.KAFKA_STORAGE_ERROR
        known = partition is not None or self.knows(topic, number)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _open(self, topic: str, number: int) -> Partition | None:
        """None when the log is damaged where it was flushed: the replica is offline, and the reason is logged."""
        key = (topic, number)
        if key in self.refused:
            return None
        try:
            partition = self._opened(topic, number)
        except CorruptLogError as refused:
            self._context.log("log", f"{topic}-{number} is offline: {refused}", "error")
            self.refused[key] = refused
            return None
        self.partitions[key] = partition
        return partition

    def _opened(self, topic: str, number: int) -> Partition:
        key = (topic, number)
        found = [
            self._found[c.path].get(key, 0) for c in (self._high_watermarks, self._recovery_points, self._log_starts)
        ]
        high_watermark, recovery_point, log_start = found
        log = Log(
            self._context.fs,
            f"{topic}-{number}",
            self._configs.log_config(topic),
            recovery_point=recovery_point,
            clean=self.started_clean,
            log_start_offset=log_start,
        )
        for warning in log.warnings:
            self._context.log("log", warning, "warning")
        partition = Partition(self._context, self._isr_changes, self._purgatory, topic, number, log)
        partition.high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        partition.is_alive = self.is_alive
        partition.min_insync_replicas = lambda: self._configs.min_insync_replicas(topic)
        partition.on_offline, partition.on_flush_due = self._went_offline, self._flush_logs
        return partition

    def _trace_restart(self, partition: Partition) -> None:
        self._context.trace(
            partition.entity,
            "Restart",
            choices={"clean": self.started_clean},
            log_end_offset=partition.log.log_end_offset,
            high_watermark=partition.high_watermark,
        )

    def close_cleanly(self) -> None:
        """Checkpoint everything and leave the marker; the driver flushes all files when the process ends."""
        for partition in self.partitions.values():
            partition.log.close()
        for checkpoint, offsets in self._checkpoints():
            checkpoint.write_now(offsets)
        self._context.fs.write(CLEAN_SHUTDOWN, b"")

    # -- the controller's requests -------------------------------------------------------------------

    def check_controller(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Refuse a controller that was replaced, and what was meant for an earlier life of this broker (KIP-380)."""
        if controller_epoch < self.controller_epoch and self._context.guards.fence_stale_controller:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if 0 <= broker_epoch < self._context.broker_epoch and self._context.guards.fence_old_broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> list[tuple[str, int, ErrorCode]]:
        """The seven steps of kafka-0.8-principles, behind the first (`check_controller`).

        Step 2 refuses what is stale or not ours; 3 to 5 make leaders and followers; the high watermark checkpoint
        (6) runs from the start; 7, a fetcher that nobody needs ends by itself.
        """
        results = []
        changed: list[Partition] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                error = self._apply(topic.topic_name, state)
                if error is ErrorCode.NONE:
                    changed.append(self.partitions[topic.topic_name, state.partition_index])
                results.append((topic.topic_name, state.partition_index, error))
        for partition in changed:
            self._assign_fetcher(partition)
            self.on_role_change(partition)
        return results

    def _apply(self, topic: str, state: LeaderAndIsrPartitionState) -> ErrorCode:
        key = (topic, state.partition_index)
        if self._context.broker_id not in state.replicas:
            self._context.log(
                "state.change", f"{topic}-{state.partition_index}: told of, though it is not assigned here"
            )
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if key in self._stopped and state.leader_epoch <= self._stopped[key]:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        partition = self.partitions.get(key)
        if partition is None:
            partition = self._open(topic, state.partition_index)
            if partition is not None and state.leader_epoch > 0:  # not new to the cluster: what we had of it is gone
                self._trace_restart(partition)
        if partition is None or partition.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not partition.accepts(state.leader_epoch):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        found = PartitionState(
            state.leader, state.leader_epoch, tuple(state.isr), state.controller_epoch, state.partition_epoch
        )
        if state.leader == self._context.broker_id:
            partition.become_leader(found, tuple(state.replicas))
        else:
            partition.become_follower(found, tuple(state.replicas))
        return ErrorCode.NONE

    def stop_replicas(self, request: StopReplicaRequest) -> list[tuple[str, int, ErrorCode]]:
        results = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                error = self._stop(topic.topic_name, state)
                results.append((topic.topic_name, state.partition_index, error))
        return results

    def _stop(self, topic: str, state: StopReplicaPartitionState) -> ErrorCode:
        """Refused when this replica has heard of a later leader epoch: it was given back since (KIP-570)."""
        key = (topic, state.partition_index)
        partition = self.partitions.get(key)
        known = partition.leader_epoch if partition is not None else self._stopped.get(key, -1)
        if 0 <= state.leader_epoch < known and self._context.guards.fence_stale_stop_replica:
            return ErrorCode.FENCED_LEADER_EPOCH
        if state.delete_partition and self.knows(topic, 0):  # when the topic goes, the next of its name begins anew
            self._stopped[key] = max(state.leader_epoch, known)
        if partition is not None:
            self._give_up(partition)
            if state.delete_partition:
                self._delete(key)
        return ErrorCode.NONE

    def _give_up(self, partition: Partition) -> None:
        self._unassign_fetcher(partition)
        partition.stop()
        self.on_role_change(partition)

    def _delete(self, key: Key) -> None:
        del self.partitions[key]
        self._context.fs.delete_folder(f"{key[0]}-{key[1]}")

    def leader_epochs(self) -> dict[Key, int]:
        """Of all replicas; -1 of one of which no controller has told this broker since it started."""
        return {key: partition.leader_epoch for key, partition in self.partitions.items()}

    def drop_strays(self, topic: str, assigned: Replicas, removing: Replicas, known: Mapping[Key, int]) -> bool:
        """Delete what this broker has of a topic and others are assigned; True while one of its replicas is leaving.

        `known`: the leader epochs when it registered. Who has another now was told by a controller what to do.
        """
        me, leaving = self._context.broker_id, False
        for key, partition in list(self.partitions.items()):
            if key[0] != topic or partition.leader_epoch != known.get(key):
                continue
            leaving |= me in removing.get(key[1], ())
            if me not in assigned.get(key[1], (me,)):
                self._context.log("log", f"{partition.entity}: moved to {assigned[key[1]]} meanwhile; deleted here")
                self._give_up(partition)
                self._delete(key)
        return leaving

    def topic_deleted(self, topic: str) -> None:
        """What comes under this name from now on is another topic, whose leader epochs begin anew."""
        self._stopped = {key: epoch for key, epoch in self._stopped.items() if key[0] != topic}

    def _went_offline(self, partition: Partition) -> None:
        self._unassign_fetcher(partition)
        self.on_disk_failure()

    # -- fetchers ----------------------------------------------------------------------------------

    def _unassign_fetcher(self, partition: Partition) -> None:
        for fetcher in self._fetchers.values():
            fetcher.remove(partition)

    def _assign_fetcher(self, partition: Partition) -> None:
        self._unassign_fetcher(partition)
        if partition.role is not Role.FOLLOWER or partition.leader < 0:
            return
        fetcher = self._fetchers.get(partition.leader)
        if fetcher is None:
            fetcher = Fetcher(self._context, self._peers, self._purgatory, partition.leader)
            self._fetchers[partition.leader] = fetcher
        fetcher.add(partition)

    # -- timers and completions ----------------------------------------------------------------------

    def fire(self, timer: str) -> None:
        config = self._context.config
        if timer == ISR_CHECK:
            for partition in list(self.partitions.values()):
                partition.check_isr()
            self._context.timer(ISR_CHECK, config.replica_lag_time_max_ms // 2)
        elif timer == HIGH_WATERMARK_CHECKPOINT:
            self.checkpoint_high_watermarks()
            self._context.timer(HIGH_WATERMARK_CHECKPOINT, config.high_watermark_checkpoint_interval_ms)
        elif timer == LOG_FLUSH:
            self._flush_logs()
            self._context.timer(LOG_FLUSH, config.log_flush_interval_ms)

    def _checkpoints(self) -> list[tuple[Checkpoint, dict[Key, int]]]:
        partitions = self.partitions.items()
        return [
            (self._high_watermarks, {key: partition.high_watermark for key, partition in partitions}),
            (self._recovery_points, {key: partition.log.recovery_point for key, partition in partitions}),
            (self._log_starts, {key: partition.log.log_start_offset for key, partition in partitions}),
        ]

    def checkpoint_high_watermarks(self) -> None:
        """All checkpoints: a truncation moves the recovery point back, which a later start must know."""
        for checkpoint, offsets in self._checkpoints():
            checkpoint.write(offsets)

    def _flush_logs(self) -> None:
        """Flush what was written since the last time; one flush at a time."""
        if self._flushing:
            return
        for key, partition in self.partitions.items():
            paths: tuple[str, ...] = ()
            with partition.storage():
                paths = partition.log.begin_flush()
            if paths:
                self._flushing[key] = paths
        if self._flushing:
            paths = tuple(path for paths in self._flushing.values() for path in paths)
            self._context.out.add(Flush(paths, LOGS_FLUSHED))

    def complete(self, token: str) -> None:
        for checkpoint in (self._high_watermarks, self._recovery_points, self._log_starts):
            if token == checkpoint.token:
                checkpoint.flushed()
        if token == LOGS_FLUSHED:
            flushed, self._flushing = self._flushing, {}
            for key in flushed:
                if key in self.partitions:
                    with self.partitions[key].storage():
                        self.partitions[key].log.flushed()
            self._recovery_points.write({key: p.log.recovery_point for key, p in self.partitions.items()})

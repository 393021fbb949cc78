"""Manage all replicas of one broker: the controller's requests, fetchers, and checkpoint files (ReplicaManager)."""

from collections.abc import Callable, Mapping

from highwater.errors import UsageError
from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.context import Context
from highwater.reference.effects import Flush
from highwater.reference.peers import Peers
from highwater.reference.replication.fetcher import Fetcher
from highwater.reference.replication.isr_changes import IsrChanges
from highwater.reference.replication.partition import Partition, Role
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.replication.states import PartitionState
from highwater.reference.storage.checkpoints import Checkpoint
from highwater.reference.storage.corruption import DamagedDataError
from highwater.reference.storage.log import Log
from highwater.reference.storage.recovery import CorruptLogError
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.messages.controller import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    StopReplicaPartitionState,
    StopReplicaRequest,
)
from highwater.reference.wire.records import TimestampType

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
        self.partition_exists: Callable[[str, int], bool] = lambda topic, partition: False
        self.corrupt_logs: dict[Key, Exception] = {}  # logs that could not be opened: offline (KIP-112)
        self.on_role_change: Callable[[Partition], None] = lambda partition: None
        self.on_disk_failure: Callable[[], None] = lambda: None
        self._fetchers: dict[int, Fetcher] = {}
        self._high_watermarks = Checkpoint(context.fs, context.out, "replication-offset-checkpoint")
        self._recovery_points = Checkpoint(context.fs, context.out, "recovery-point-offset-checkpoint")
        self._log_starts = Checkpoint(context.fs, context.out, "log-start-offset-checkpoint")
        self._checkpointed: dict[str, dict[Key, int]] = {}  # offsets read at startup, by checkpoint path
        self._flushing: dict[Key, tuple[str, ...]] = {}
        self._stopped: dict[Key, int] = {}  # deleted replicas: requests up to this leader epoch are stale
        self.started_clean = True

    # -- start and stop ----------------------------------------------------------------------------

    def start(self) -> None:
        """Open all logs on disk. Without the clean-shutdown marker, recover them; their tails may be truncated."""
        fs, config = self._context.fs, self._context.config
        folders = [name for name in fs.names("") if fs.names(name) and "-" in name]
        # An empty disk counts as unclean, because a crash may have emptied it (KIP-903). A new broker is in no ISR.
        self.started_clean = fs.exists(CLEAN_SHUTDOWN)
        if fs.exists(CLEAN_SHUTDOWN):
            fs.delete(CLEAN_SHUTDOWN)
        checkpoints = (self._high_watermarks, self._recovery_points, self._log_starts)
        self._checkpointed = {checkpoint.path: checkpoint.read() for checkpoint in checkpoints}
        if self._high_watermarks.damaged and not self._context.guards.truncate_by_epoch:
            raise UsageError(
                "The high watermark checkpoint is damaged. With truncation = high_watermark, every log would be"
                " truncated to its start.",
                where=self._high_watermarks.path,
                hint="restore the file, or start once with truncation = kip320",
            )
        for folder in folders:
            topic, _, number = folder.rpartition("-")
            if number.isdigit():
                opened = self._open(topic, int(number))
                if opened is not None:
                    self._trace_restart(opened)
        self._context.timer(ISR_CHECK, config.replica_lag_time_max_ms // 2)
        self._context.timer(HIGH_WATERMARK_CHECKPOINT, config.high_watermark_checkpoint_interval_ms)
        self._context.timer(LOG_FLUSH, max(1, config.log_flush_interval_ms))

    def not_leader(self, topic: str, number: int) -> ErrorCode:
        """Return the error code for a partition that this broker does not lead: offline, not leader, or unknown."""
        partition = self.partitions.get((topic, number))
        if (topic, number) in self.corrupt_logs or (partition is not None and partition.offline):
            return ErrorCode.KAFKA_STORAGE_ERROR
        known = partition is not None or self.partition_exists(topic, number)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _open(self, topic: str, number: int) -> Partition | None:
        """Open a replica's log. Return None, and log the reason, if flushed data is corrupt: the replica is offline."""
        key = (topic, number)
        if key in self.corrupt_logs:
            return None
        try:
            partition = self._load_partition(topic, number)
        except (CorruptLogError, DamagedDataError, DecodeError) as error:
            self._context.log("log", f"{topic}-{number} is offline: {error}", "error")
            self.corrupt_logs[key] = error
            return None
        self.partitions[key] = partition
        return partition

    def timestamp_type(self, topic: str) -> TimestampType:
        """Return the type of the timestamps in the log of a topic, markers included (message.timestamp.type)."""
        append_time = self._configs.value(topic, "message.timestamp.type") == "LogAppendTime"
        return TimestampType(append_time)

    def _load_partition(self, topic: str, number: int) -> Partition:
        key = (topic, number)
        high_watermark, recovery_point, log_start = (
            self._checkpointed[checkpoint.path].get(key, 0)
            for checkpoint in (self._high_watermarks, self._recovery_points, self._log_starts)
        )
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
        partition.on_offline, partition.on_flush_due = self._handle_disk_failure, self._flush_logs
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
        """Write all checkpoints and the clean-shutdown marker; the driver fsyncs all files when the process ends.

        There is no marker while a log is offline: the next start would open it without a look at its records. Nor is
        there one before the controller has removed this broker from the ISRs after an unclean start, which would be
        forgotten otherwise. Apache Kafka's marker has the broker epoch for this (KIP-966, CleanShutdownFileHandler).
        """
        for partition in self.partitions.values():
            partition.log.close()
        for checkpoint, offsets in self._checkpoints():
            checkpoint.write_now(offsets)
        is_handled = self.started_clean or not self._context.guards.unclean_restart_leaves_isr
        if is_handled and not self.corrupt_logs:
            self._context.fs.write(CLEAN_SHUTDOWN, b"")

    # -- the controller's requests -------------------------------------------------------------------

    def check_controller(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Reject requests of an old controller epoch, and requests for an older broker epoch (KIP-380)."""
        if controller_epoch < self.controller_epoch and self._context.guards.fence_stale_controller:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if 0 <= broker_epoch < self._context.broker_epoch and self._context.guards.fence_old_broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> list[tuple[str, int, ErrorCode]]:
        """Apply a LeaderAndIsr request; return an error code per partition.

        These are the steps of kafka-0.8-principles after step 1 (`check_controller`): step 2 rejects stale and foreign
        partitions, steps 3 to 5 make leaders and followers. The high watermark checkpoint (6) runs from startup, and an
        idle fetcher (7) stops by itself.
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
                "state.change",
                f"{topic}-{state.partition_index}: LeaderAndIsr names a partition that is not assigned to this broker",
            )
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if key in self._stopped and state.leader_epoch <= self._stopped[key]:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        partition = self.partitions.get(key)
        if partition is None:
            partition = self._open(topic, state.partition_index)
            if partition is not None and state.leader_epoch > 0:  # not a new partition: this replica lost its data
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
        if any(state.delete_partition for topic in request.topic_states for state in topic.partition_states):
            self.checkpoint_high_watermarks()
        return results

    def _stop(self, topic: str, state: StopReplicaPartitionState) -> ErrorCode:
        """Stop one replica; reject the request if a later LeaderAndIsr has assigned it again (KIP-570)."""
        key = (topic, state.partition_index)
        partition = self.partitions.get(key)
        known = partition.leader_epoch if partition is not None else self._stopped.get(key, -1)
        if 0 <= state.leader_epoch < known and self._context.guards.fence_stale_stop_replica:
            return ErrorCode.FENCED_LEADER_EPOCH
        # Not for a deleted topic: a new topic of the same name begins with leader epoch 0 again.
        if state.delete_partition and self.partition_exists(topic, 0):
            self._stopped[key] = max(state.leader_epoch, known)
        if partition is not None:
            self._stop_partition(partition)
        if state.delete_partition and (partition is not None or key in self.corrupt_logs):
            self._delete(key)
        return ErrorCode.NONE

    def _stop_partition(self, partition: Partition) -> None:
        self._unassign_fetcher(partition)
        partition.stop()
        self.on_role_change(partition)

    def _delete(self, key: Key) -> None:
        """Delete a replica with all that is known of it: a new topic of this name begins with an empty log."""
        self.partitions.pop(key, None)
        self.corrupt_logs.pop(key, None)
        for offsets in self._checkpointed.values():
            offsets.pop(key, None)
        self._context.fs.delete_folder(f"{key[0]}-{key[1]}")

    def leader_epochs(self) -> dict[Key, int]:
        """Return the leader epoch of every replica; -1 if no LeaderAndIsr has named it since startup."""
        return {key: partition.leader_epoch for key, partition in self.partitions.items()}

    def delete_strays(self, topic: str, assigned: Replicas, removing: Replicas, known: Mapping[Key, int]) -> bool:
        """Delete replicas of a topic that are assigned to other brokers; return whether one is still being removed.

        `known`: the leader epochs when the broker registered. A replica with another epoch is skipped, because the
        controller has sent LeaderAndIsr or StopReplica for it since.
        """
        broker_id, leaving = self._context.broker_id, False
        for key, partition in list(self.partitions.items()):
            if key[0] != topic or partition.leader_epoch != known.get(key):
                continue
            leaving |= broker_id in removing.get(key[1], ())
            if broker_id not in assigned.get(key[1], (broker_id,)):
                self._context.log(
                    "log", f"{partition.entity} was reassigned to {assigned[key[1]]} meanwhile; deleted its log here"
                )
                self._stop_partition(partition)
                self._delete(key)
        return leaving

    def topic_deleted(self, topic: str) -> None:
        """Forget the stopped replicas of a deleted topic: a new topic of this name restarts its leader epochs."""
        self._stopped = {key: epoch for key, epoch in self._stopped.items() if key[0] != topic}

    def _handle_disk_failure(self, partition: Partition) -> None:
        self._unassign_fetcher(partition)
        self.on_role_change(partition)
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
            self._context.timer(LOG_FLUSH, max(1, config.log_flush_interval_ms))

    def _checkpoints(self) -> list[tuple[Checkpoint, dict[Key, int]]]:
        return [
            (self._high_watermarks, self._offsets(self._high_watermarks, lambda each: each.high_watermark)),
            (
                self._recovery_points,
                self._offsets(self._recovery_points, lambda each: each.log.recovery_point),
            ),
            (self._log_starts, self._offsets(self._log_starts, lambda each: each.log.log_start_offset)),
        ]

    def _offsets(self, checkpoint: Checkpoint, offset_of: Callable[[Partition], int]) -> dict[Key, int]:
        """Return what to write; the offsets of logs that are offline stay, or the next start would truncate them."""
        known = self._checkpointed.get(checkpoint.path, {})
        offline = {key: known[key] for key in self.corrupt_logs if key in known}
        return offline | {key: offset_of(partition) for key, partition in self.partitions.items()}

    def checkpoint_high_watermarks(self) -> None:
        """Write all three checkpoints: a truncation also moves the recovery point back, and recovery depends on it."""
        for checkpoint, offsets in self._checkpoints():
            checkpoint.write(offsets)

    def _flush_logs(self) -> None:
        """Flush the files written since the last flush. Only one flush runs at a time."""
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
                checkpoint.complete_flush()
        if token == LOGS_FLUSHED:
            flushed, self._flushing = self._flushing, {}
            for key in flushed:
                if key in self.partitions:
                    with self.partitions[key].storage():
                        self.partitions[key].log.complete_flush()
            points = self._offsets(self._recovery_points, lambda partition: partition.log.recovery_point)
            self._recovery_points.write(points)

"""Run log retention and log compaction in the background, on separate timers."""

from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.context import Context
from highwater.reference.effects import Flush
from highwater.reference.replication.partition import Partition
from highwater.reference.replication.replica_manager import Key, ReplicaManager
from highwater.reference.storage.checkpoints import Checkpoint
from highwater.reference.storage.cleaner import Cleaning, clean, cleanable_end, dirty_ratio, install, is_overdue

RETENTION = "log-retention"
CLEANER = "log-cleaner"
CLEANED = "log-cleaned"


class LogMaintenance:
    """Applies retention to all logs; compacts one log at a time, the one with the largest dirty ratio (LogCleaner)."""

    def __init__(self, context: Context, replicas: ReplicaManager, configs: TopicConfigs) -> None:
        self._context, self._replicas, self._configs = context, replicas, configs
        self._checkpoint = Checkpoint(context.fs, context.out, "cleaner-offset-checkpoint")
        self._cleaning: tuple[Partition, Cleaning] | None = None

    def start(self) -> None:
        """Begin, after the replicas were opened."""
        for key, offset in self._checkpoint.read().items():
            partition = self._replicas.partitions.get(key)
            if partition is not None and offset <= partition.log.log_end_offset:
                partition.log.cleaned_until = offset
        self._set_timers()

    def _set_timers(self) -> None:
        config = self._context.config
        self._context.timer(RETENTION, config.log_retention_check_interval_ms)
        self._context.timer(CLEANER, config.log_cleaner_backoff_ms)

    def fire(self, timer: str) -> None:
        if timer == RETENTION:
            self._context.timer(RETENTION, self._context.config.log_retention_check_interval_ms)
            self._retain()
        elif timer == CLEANER:
            self._context.timer(CLEANER, self._context.config.log_cleaner_backoff_ms)
            self._clean_dirtiest()
            self._write_checkpoint()

    def refresh_configs(self) -> None:
        """Give every log its topic's settings, which may have changed."""
        for partition in self._replicas.partitions.values():
            partition.log.config = self._configs.log_config(partition.topic)

    def _retain(self) -> None:
        if not self._configs.loaded:
            return  # a topic that keeps all its records would lose some by the default retention time
        for partition in list(self._replicas.partitions.values()):
            if "delete" in partition.log.config.cleanup_policy and not partition.offline:
                partition.retain(self._context.now.wall_ms)

    # -- compaction ------------------------------------------------------------------------------

    def _clean_dirtiest(self) -> None:
        if self._cleaning is not None or not self._configs.loaded:
            return
        candidates = [
            candidate for partition in self._replicas.partitions.values() for candidate in self._candidate(partition)
        ]
        if not candidates:
            return
        _, key, end = max(candidates)
        partition, wall_ms = self._replicas.partitions[key], self._context.now.wall_ms
        with partition.storage():
            cleaning = clean(partition.log, partition.log.cleaned_until, end, wall_ms)
            self._cleaning = partition, cleaning
            self._context.out.add(Flush(cleaning.paths, CLEANED))

    def cleaned_until(self, topic: str, partition: int) -> int:
        """Return the first offset that is not compacted yet."""
        return self._replicas.partitions[topic, partition].log.cleaned_until

    def _write_checkpoint(self) -> None:
        partitions = self._replicas.partitions.items()
        self._checkpoint.write({key: each.log.cleaned_until for key, each in partitions if each.log.cleaned_until})

    def _candidate(self, partition: Partition) -> list[tuple[float, Key, int]]:
        log = partition.log
        if "compact" not in log.config.cleanup_policy or partition.offline:
            return []
        wall_ms, first_dirty = self._context.now.wall_ms, log.cleaned_until
        end = cleanable_end(log, wall_ms, partition.high_watermark)
        ratio = dirty_ratio(log, first_dirty, end)
        enough = ratio > log.config.min_cleanable_dirty_ratio or is_overdue(log, first_dirty, end, wall_ms)
        return [(ratio, (partition.topic, partition.partition), end)] if ratio > 0 and enough else []

    def complete(self, token: str) -> None:
        if token == self._checkpoint.token:
            self._checkpoint.complete_flush()
        if token != CLEANED or self._cleaning is None:
            return
        (partition, cleaning), self._cleaning = self._cleaning, None
        # A replica of the same name may have been created since: its log has other records.
        if self._replicas.partitions.get((partition.topic, partition.partition)) is not partition:
            return
        with partition.storage():
            if install(partition.log, cleaning):
                partition.log.cleaned_until = cleaning.end
                self._write_checkpoint()

"""The rules of the auditor, one for each anomaly of `spec/anomalies.toml`."""

from enum import IntEnum


class Rule(IntEnum):
    """An anomaly by the number in verdicts and `--json`; the catalogue has its name in lower case with dashes."""

    NOT_LINEARIZABLE = 0  # registers, sets and counters: one rule for each, not in the catalogue of log anomalies
    INCONSISTENT_OFFSETS = 1
    DUPLICATE = 2
    PHANTOM_READ = 3
    LOST_WRITE = 4
    UNSEEN = 5
    TRUNCATED_AFTER_READ = 6
    NONMONOTONIC_POLL = 7
    POLL_SKIP = 8
    INT_NONMONOTONIC_POLL = 9
    NONMONOTONIC_SEND = 10
    INT_SEND_SKIP = 11
    PRODUCER_REORDER = 12
    APPEND_INVERSION = 13
    STALE_READ = 14
    FUTURE_READ = 15
    HIGH_WATERMARK_REGRESSION = 16
    ABORTED_READ = 17
    PRECOMMITTED_READ = 18
    EARLY_READ = 19
    TORN_TRANSACTION = 20
    G1C = 21
    DOUBLE_PROCESSING = 22
    ABORT_REWIND = 23
    COMMIT_AHEAD = 24
    COMMITTED_OFFSET_REGRESSION = 25
    DOUBLE_OWNERSHIP = 26
    ZOMBIE_COMMIT = 27
    EPOCH_SAFETY = 28
    HANGING_TRANSACTION = 29
    STUCK = 30
    DUPLICATE_PRODUCER_ID = 31
    FORGOTTEN_COMMIT = 32
    SILENT_RESET = 33
    EARLY_RETENTION = 34
    RESURRECTED_RECORD = 35
    REPLICA_DIVERGENCE = 36
    ABORTED_OFFSETS_VISIBLE = 37
    TOPIC_REBORN = 38
    READ_BEYOND_END = 39
    STABLE_OFFSET_BEYOND_END = 40
    REJECTED_RECORD_READ = 41
    UNEXPLAINED_OFFSET = 42

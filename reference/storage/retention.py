"""Retention: which whole segments are old, or too much (kafka-0.7-design, "Deletes").

Age is that of the records, by their own timestamps: a file's date and a broker's restart change nothing.
"""

from reference.storage.log import Log


def retention_bound(log: Log, wall_ms: int, high_watermark: int) -> int:
    """The offset below which all segments may go; the log start when none may. What is not committed stays."""
    config = log.config
    excess = sum(segment.size for segment in log.segments) - config.retention_bytes
    ends = [*(segment.base_offset for segment in log.segments[1:]), log.log_end_offset]
    bound = log.log_start_offset
    for segment, end in zip(log.segments, ends, strict=True):
        too_old = 0 <= config.retention_ms < wall_ms - segment.largest_timestamp and segment.largest_timestamp >= 0
        too_much = config.retention_bytes >= 0 and excess >= segment.size
        if not segment.size or end > high_watermark or not (too_old or too_much):
            break
        excess -= segment.size
        bound = end
    return bound


def retain(log: Log, wall_ms: int, high_watermark: int) -> None:
    """Delete what may go. An active segment that is too old is closed first, as Apache Kafka does."""
    bound = retention_bound(log, wall_ms, high_watermark)
    if bound > log.log_start_offset:
        if bound == log.log_end_offset:
            log.roll()
        log.advance_log_start(bound)

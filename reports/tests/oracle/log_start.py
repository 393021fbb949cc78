"""What explains an absent record: the log start, and what a read passed (docs/audit/rules.md)."""

from collections.abc import Iterator

from highwater.reports.columns import UNKNOWN, Kind, Status
from highwater.reports.rules.findings import Weight
from highwater.reports.tests.oracle.history import UNLIMITED, History, Row


def deletions(history: History) -> Iterator[tuple[Row, int, int]]:
    """Return (deletion, smallest T, largest T) for each deletion that may have happened."""
    for row in history.rows:
        if row.kind is not Kind.DELETE or row.status is Status.FAIL:
            continue
        assert row.offset is not None
        if row.offset != UNKNOWN:
            yield row, row.offset, row.offset
        elif row.log_start_offset is not None:
            yield row, row.log_start_offset, row.log_start_offset
        else:
            yield row, history.proved_end(row), largest_end(history, row)


def largest_end(history: History, deletion: Row) -> int:
    """Return where the log ended at most when a finished deletion of everything took effect.

    A deletion of unknown outcome may take effect after its client gave up, so that later sends do not limit it.
    """
    if not history.promise.acks_all or history.promise.unclean_election or not deletion.succeeded:
        return UNLIMITED
    later = [send.offset for send in history.acknowledged if send.offset is not None and deletion.precedes(send)]
    return min(later, default=UNLIMITED)


def reported_log_starts(history: History) -> Iterator[tuple[Row, int]]:
    for row in history.rows:
        if row.succeeded and row.log_start_offset is not None and row.kind is not Kind.FORMER:
            yield row, row.log_start_offset


def proved_log_starts(history: History) -> Iterator[tuple[Row, int]]:
    """Return (operation, log start) for each report, and for T of each successful deletion."""
    yield from reported_log_starts(history)
    yield from ((row, least) for row, least, _ in deletions(history) if row.succeeded)


def is_explained(history: History, report: Row, log_start: int) -> bool:
    """Return whether a deletion explains that an operation reported this log start."""
    return any(row.invoked < report.returned and most >= log_start for row, _, most in deletions(history))


def log_start_of(history: History, read: Row) -> tuple[int, int]:
    """Return `certain` and `possible` of a read."""
    if read.log_start_offset is not None:
        certain = possible = read.log_start_offset
    else:
        certain = max((start for row, start in proved_log_starts(history) if row.precedes(read)), default=0)
        possible = UNLIMITED if history.promise.retention else max(
            [certain]
            + [most for row, _, most in deletions(history) if row.invoked < read.returned]
            + [start for row, start in reported_log_starts(history) if not is_explained(history, row, start)]
        )  # fmt: skip
    limits = [read.first] if read.records else []
    limits += [end for end in [final_end(history, read)] if end is not None]
    return min([certain, *limits]), min([possible, *limits])


def begin_of(history: History, read: Row) -> int:
    """Return where a read with records began."""
    if read.position is not None:
        return min(read.position, read.first)
    previous = history.previous_read(read)
    return read.first if previous is None else min(previous.last + 1, read.first)


def final_end(history: History, row: Row) -> int | None:
    """Return from where on an operation of the final phase proves that there is nothing."""
    if not row.quiet or not row.replies_as_leader:
        return None
    if row.kind is Kind.LIST_OFFSETS:
        return row.high_watermark
    end = row.last + 1 if row.records else row.position
    if end is None or row.high_watermark is None or history.is_of_follower(row):
        return None
    return end if end >= row.high_watermark else None


def passed_up_to_last(history: History, row: Row, offset: int) -> bool:
    """Return whether an offset is between the begin of a successful read and its last record."""
    if row.kind is not Kind.READ or not row.succeeded or not row.records:
        return False
    return begin_of(history, row) <= offset <= row.last


def passed(history: History, row: Row, offset: int) -> bool:
    """Return whether a successful read passed an offset, or proved that there is nothing from there on."""
    end = final_end(history, row)
    begin = begin_of(history, row) if row.records else 0  # above the end if the records are not in order
    return passed_up_to_last(history, row, offset) or (end is not None and offset >= max(begin, end))


def weight_of_gap(history: History, read: Row, offset: int) -> Weight | None:
    """Return the weight of a record that a read passed and lacks; None if it was deleted before the read."""
    if read.records and read.first < offset < read.last:
        return Weight.VIOLATION
    certain, possible = log_start_of(history, read)
    if offset < certain:
        return None
    return Weight.UNDECIDED if offset < possible else Weight.VIOLATION

"""Map API names to the functions that observe their requests."""

from collections.abc import Callable
from typing import Any

from highwater.reports.recorder import groups, reads, topics
from highwater.reports.recorder.exchanges import Finish, Link
from highwater.reports.recorder.sends import Sends
from highwater.reports.recorder.transactions import Transactions

Observe = Callable[[Link, Any], Finish | None]


class Observer:
    """Calls the observer of a request before it is forwarded, and returns the callback for its reply."""

    def __init__(self) -> None:
        transactions = Transactions()
        self.table: dict[str, Observe] = {
            "Produce": Sends(transactions).request,
            "Fetch": reads.fetch,
            "ListOffsets": reads.list_offsets,
            "Metadata": reads.metadata,
            "InitProducerId": transactions.init_producer,
            "AddPartitionsToTxn": transactions.add_partitions,
            "TxnOffsetCommit": transactions.offsets,
            "EndTxn": transactions.end,
            "SyncGroup": groups.sync,
            "ConsumerGroupHeartbeat": groups.heartbeat,
            "OffsetCommit": groups.commit,
            "OffsetFetch": groups.committed,
            "OffsetDelete": groups.delete_offsets,
            "DeleteGroups": groups.delete_groups,
            "CreateTopics": topics.create,
            "DeleteTopics": topics.delete,
            "DeleteRecords": topics.delete_records,
        }

    def request(self, link: Link, name: str, request: Any) -> Finish | None:
        observe = self.table.get(name)
        return observe(link, request) if observe is not None else None

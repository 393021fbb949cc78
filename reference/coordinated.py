"""What a coordinator answers before it has loaded, in one place for groups and for transactions.

A coordinator serves the partitions of its topic that it has loaded. Of a partition that the metadata says it leads, and
that is not loaded, it knows neither groups nor transactions: COORDINATOR_LOAD_IN_PROGRESS makes a client repeat the
request here, NOT_COORDINATOR makes it look for another broker. After a restart a broker does not know what it leads
until the controller says so. Apache Kafka 4.3.1 does the same: for a moment a list is empty, without an error.

| request | before the broker knows that it leads | while it loads |
|---|---|---|
| with a group or a transactional id | NOT_COORDINATOR | COORDINATOR_LOAD_IN_PROGRESS |
| Heartbeat | NOT_COORDINATOR | no error: the member waits, and keeps what it has |
| ListGroups, ListTransactions | no error, no entries | COORDINATOR_LOAD_IN_PROGRESS, no entries |
| FindCoordinator | COORDINATOR_NOT_AVAILABLE, or another broker | the broker itself |

Apache Kafka: CoordinatorRuntime.withActiveContextOrThrow, GroupCoordinatorService.heartbeat and listGroups,
TransactionStateManager.getAndMaybeAddTransactionState and listTransactionStates.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Coordinated:
    """The partitions of a coordinator's topic; `loaded` has those that this broker leads and has loaded, by number."""

    broker_id: int
    cache: MetadataCache
    topic: str
    loaded: Mapping[int, object]

    def error(self, number: int) -> ErrorCode:
        """Return NONE if requests about what this partition stores are served here."""
        if number in self.loaded:
            return ErrorCode.NONE
        leads = self.cache.leader_of(self.topic, number) == self.broker_id
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if leads else ErrorCode.NOT_COORDINATOR

    def list_error(self) -> ErrorCode:
        """Return NONE if all partitions are loaded that this broker knows to lead."""
        topic = self.cache.topics.get(self.topic)
        errors = {self.error(number) for number in topic.partitions} if topic else set()
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return loading if loading in errors else ErrorCode.NONE

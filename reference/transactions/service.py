"""Create the components of the transaction coordinator and list the APIs that they serve."""

from highwater.reference.api_versions import ServedApi
from highwater.reference.context import Context
from highwater.reference.groups.offsets import OffsetsCoordinator
from highwater.reference.groups.store import GroupStore
from highwater.reference.guards import Guards
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.peers import Peers
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.replication.replica_manager import ReplicaManager
from highwater.reference.store.client import StoreClient
from highwater.reference.transactions.coordinator import ProducerIds, TransactionCoordinator
from highwater.reference.transactions.describe import DescribeHandler
from highwater.reference.transactions.expiry import Expiry
from highwater.reference.transactions.markers import MarkerSender, MarkerWriter
from highwater.reference.transactions.offsets import TransactionalOffsets
from highwater.reference.transactions.partitions import AddPartitionsHandler
from highwater.reference.transactions.store import TransactionStore
from highwater.reference.transactions.transaction import EPOCH_BUMP_VERSION
from highwater.reference.transactions.verification import TransactionVerifier

CLASSIC_TRANSACTION_VERSION = 1


def transaction_version(guards: Guards) -> int:
    """Return the level of the feature `transaction.version`; at level 2 clients use EndTxn 5 (KIP-890)."""
    return EPOCH_BUMP_VERSION if guards.end_txn_bumps_epoch else CLASSIC_TRANSACTION_VERSION


class Transactions:
    """The transaction components of one broker."""

    def __init__(
        self,
        context: Context,
        cache: MetadataCache,
        replicas: ReplicaManager,
        peers: Peers,
        purgatory: Purgatory,
        groups: GroupStore,
        store_client: StoreClient,
    ) -> None:
        self._context = context
        self.version = transaction_version(context.guards)
        self.store = TransactionStore(context, cache)
        self._writer = MarkerWriter(context, replicas, groups)
        self.coordinator = TransactionCoordinator(
            context,
            self.store,
            groups,
            ProducerIds(store_client),
            MarkerSender(context, cache, peers, purgatory, self._writer),
        )
        self.store.on_loaded = self.coordinator.resume
        self._partitions = AddPartitionsHandler(cache, self.coordinator)
        self.verifier = TransactionVerifier(context, cache, peers, purgatory, self.store, self._partitions)
        self._describe = DescribeHandler(context, replicas, self.store)
        self.expiry = Expiry(context, purgatory, replicas, self.store, self.coordinator)
        self._groups = groups

    def served(self, offsets: OffsetsCoordinator) -> dict[str, ServedApi]:
        """Return the handlers by API name; the versions that need transaction version 2 are omitted below it."""
        commits = TransactionalOffsets(self._context, self._groups, offsets, self.verifier)
        newest = self.version >= EPOCH_BUMP_VERSION
        return {
            "InitProducerId": ServedApi(self.coordinator.init_producer_id, 0, 5),
            "AddPartitionsToTxn": ServedApi(self._partitions.add_partitions, 0, 5),
            "AddOffsetsToTxn": ServedApi(self.coordinator.add_offsets, 0, 4),
            "EndTxn": ServedApi(self.coordinator.end_txn, 0, 5 if newest else 4),
            "WriteTxnMarkers": ServedApi(self._writer.write, 1, 2, inter_broker=True),
            "TxnOffsetCommit": ServedApi(commits.commit, 0, 5 if newest else 4),
            "DescribeProducers": ServedApi(self._describe.producers, 0, 0),
            "DescribeTransactions": ServedApi(self._describe.transactions, 0, 0),
            "ListTransactions": ServedApi(self._describe.list, 0, 2),
        }

    @property
    def newest_produce(self) -> int:
        """Return the highest Produce version; from 12 on a batch adds its partition to the transaction (KIP-890)."""
        return 12 if self.version >= EPOCH_BUMP_VERSION else 11

"""Transactions (KIP-98, KIP-360, KIP-447, KIP-890).

The coordinator of a transactional id is the broker that leads the id's partition of `__transaction_state`.  The outcome
of a transaction is decided when PrepareCommit or PrepareAbort is committed to that log.  The coordinator then writes
markers to the partitions; until a partition has its marker, read_committed consumers read up to its last stable offset.

- `states`: the state table; `transaction`: one transaction and its transitions, as pure functions;
- `store` with `records`: loads and writes `__transaction_state`;
- `coordinator`: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn; `expiry`: timeouts;
- `markers`: WriteTxnMarkers, both sides; `verification`: a leader verifies a batch with the coordinator;
- `offsets`: TxnOffsetCommit; `describe`: the requests of admin tools (KIP-664).
"""

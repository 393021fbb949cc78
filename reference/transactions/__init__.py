"""Transactions (KIP-98, KIP-360, KIP-447, KIP-890).

The coordinator of a transactional id is the leader of one partition of `__transaction_state`, and what it decides is
what that log says: a transaction is committed when PrepareCommit is replicated, whatever happens after.  Markers in
the partitions follow; until they are there, the partitions' last stable offset holds read_committed readers back.

- `states`: the state table; `transaction`: one transaction and its transitions, as pure functions;
- `store` with `records`: `__transaction_state`, loaded, kept, written;
- `coordinator`: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn; `expiry`: what time ends;
- `markers`: WriteTxnMarkers, both sides; `verification`: a leader asks the coordinator about a batch;
- `offsets`: TxnOffsetCommit; `describe`: what tools ask.
"""

"""Fields of AddPartitionsToTxn, TxnOffsetCommit, DescribeProducers and WriteTxnMarkers."""

from highwater.conformance.cases.fields.program import together

test_fields_of_an_addition_of_partitions = together("transaction_partitions.AddPartitionsToTxn")
test_fields_of_an_addition_to_several_transactions = together("transaction_partitions.AddPartitionsToTxn in batches")
test_fields_of_a_commit_in_a_transaction = together("transaction_partitions.TxnOffsetCommit")
test_fields_of_a_description_of_producers = together("transaction_partitions.DescribeProducers")
test_fields_of_markers = together("transaction_partitions.WriteTxnMarkers")

"""Fields of InitProducerId, AddOffsetsToTxn, EndTxn, and of the lists and descriptions of transactions."""

from highwater.conformance.cases.fields.program import together

test_fields_of_a_request_for_a_producer_id = together("transactions.InitProducerId")
test_fields_of_an_addition_of_offsets = together("transactions.AddOffsetsToTxn")
test_fields_of_the_end_of_a_transaction = together("transactions.EndTxn")
test_fields_of_a_list_of_transactions = together("transactions.ListTransactions")
test_fields_of_a_description_of_transactions = together("transactions.DescribeTransactions")
test_fields_of_a_search_for_transaction_coordinators = together("transactions.FindCoordinator")

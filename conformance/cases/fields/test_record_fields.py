"""Fields of ListOffsets, OffsetForLeaderEpoch, DeleteRecords, Fetch and Produce."""

from highwater.conformance.cases.fields.program import together

test_fields_of_a_search_for_offsets = together("records.ListOffsets")
test_fields_of_a_search_for_the_end_of_an_epoch = together("records.OffsetForLeaderEpoch")
test_fields_of_a_deletion_of_records = together("records.DeleteRecords")
test_fields_of_a_fetch = together("records.Fetch")
test_fields_of_a_produce = together("records.Produce")

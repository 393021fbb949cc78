"""Fields of CreateTopics and CreatePartitions."""

from highwater.conformance.cases.fields.program import one_by_one, twice

test_fields_of_a_new_topic = one_by_one("topics.CreateTopics")
test_a_new_topic_that_is_given_twice_is_refused_alone = twice("topics.CreateTopics")
test_fields_of_more_partitions = one_by_one("topics.CreatePartitions")
test_an_extended_topic_that_is_given_twice_is_refused_alone = twice("topics.CreatePartitions")

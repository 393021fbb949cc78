"""Fields of requests about client quotas, SCRAM users and access control lists."""

from highwater.conformance.cases.fields.program import together

test_fields_of_a_change_of_quotas = together("entities.AlterClientQuotas")
test_fields_of_a_description_of_quotas = together("entities.DescribeClientQuotas")
test_fields_of_a_change_of_users = together("entities.AlterUserScramCredentials")
test_fields_of_a_description_of_users = together("entities.DescribeUserScramCredentials")
test_fields_of_new_entries_of_access_control_lists = together("entities.CreateAcls")
test_fields_of_a_filter_of_access_control_lists = together("entities.DescribeAcls")
test_fields_of_a_deletion_from_access_control_lists = together("entities.DeleteAcls")

"""Fields of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from highwater.conformance.cases.fields.program import one_by_one, twice

test_fields_of_a_description_of_settings = one_by_one("configs.DescribeConfigs")
test_fields_of_a_change_of_settings = one_by_one("configs.IncrementalAlterConfigs")
test_a_changed_resource_that_is_given_twice_is_refused_alone = twice("configs.IncrementalAlterConfigs", since="3.9")
test_fields_of_settings_that_replace_all = one_by_one("configs.AlterConfigs")

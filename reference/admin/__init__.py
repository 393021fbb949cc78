"""Handlers for admin requests: configs, log directories, ACLs and DescribeTopicPartitions."""

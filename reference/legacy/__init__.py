"""Kafka 0.7: the design before replication, logical offsets and group coordinators. See README.md."""

"""Kafka 0.7: the design before replication, offsets that count, and coordinators. See README.md."""

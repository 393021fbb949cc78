"""Repeat the measurements that Kafka's documents publish, and say which of their claims hold on a broker today."""

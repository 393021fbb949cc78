"""Walks over the logs of partitions: requests with drawn parts, and each reply compared with `conformance.models`."""

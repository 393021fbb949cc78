"""Walks over groups and their offsets: members and requests whose replies are compared with `conformance.models`."""

"""Consumer groups: the coordinator of the classic protocol, which stores groups and offsets in `__consumer_offsets`."""

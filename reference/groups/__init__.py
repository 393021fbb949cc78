"""Consumer groups: the classic protocol's coordinator, with offsets and groups kept in `__consumer_offsets`."""

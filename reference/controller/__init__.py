"""The controller: one of the brokers, elected through the metadata store."""

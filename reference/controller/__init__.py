"""The controller: the one broker, elected through the metadata store, that manages partition and replica states."""

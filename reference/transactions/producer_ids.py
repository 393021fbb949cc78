"""Allocate producer ids that are unique in the cluster: each broker reserves blocks of them in the metadata store."""

from reference.context import from_json, to_json
from reference.store_client import StoreClient

PRODUCER_IDS = "/latest_producer_id_block"
PRODUCER_ID_BLOCK = 1_000


class ProducerIds:
    """The block of producer ids that this broker has reserved (Apache Kafka: ProducerIdManager)."""

    def __init__(self, store: StoreClient) -> None:
        self._store = store
        self._block = range(0)

    async def take(self) -> int | None:
        """Return an unused producer id, or None if the metadata store is not available."""
        while not self._block:
            block = await self._next_block()
            if block is None:
                return None
            self._block = block
        producer_id, self._block = self._block[0], self._block[1:]
        return producer_id

    async def _next_block(self) -> range | None:
        while True:
            stored = await self._store.get(PRODUCER_IDS)
            if stored.error or stored.stat is None:
                return None
            start = int(from_json(stored.data))
            end = to_json(start + PRODUCER_ID_BLOCK)
            reply = await self._store.set(PRODUCER_IDS, end, stored.stat.version)
            if not reply.error:
                return range(start, start + PRODUCER_ID_BLOCK)
            if reply.error != "BadVersion":
                return None

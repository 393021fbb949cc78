"""Producer ids: unique in the cluster, because the metadata store hands them out in blocks, one broker each."""

from reference.context import from_json, to_json
from reference.store_client import StoreClient

PRODUCER_IDS = "/latest_producer_id_block"
PRODUCER_ID_BLOCK = 1_000


class ProducerIds:
    def __init__(self, store: StoreClient) -> None:
        self._store = store
        self._block = range(0)

    async def take(self) -> int | None:
        """An id that nobody had before; None when the store does not answer now."""
        while not self._block:
            block = await self._next_block()
            if block is None:
                return None
            self._block = block
        producer_id, self._block = self._block[0], self._block[1:]
        return producer_id

    async def _next_block(self) -> range | None:
        while True:
            found = await self._store.get(PRODUCER_IDS)
            if found.error or found.stat is None:
                return None
            start = int(from_json(found.data))
            end = to_json(start + PRODUCER_ID_BLOCK)
            reply = await self._store.set(PRODUCER_IDS, end, found.stat.version)
            if not reply.error:
                return range(start, start + PRODUCER_ID_BLOCK)
            if reply.error != "BadVersion":
                return None

"""aiokafka: a producer and a group consumer."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from highwater.fuzz.wire.clients.subjects import GROUP, PATIENCE_S, RECORDS, TOPIC


async def round_trip(bootstrap: str) -> int:
    """The records consumed."""
    patience_ms = int(PATIENCE_S * 1000)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, request_timeout_ms=patience_ms) as producer:
        for number in range(RECORDS):
            await producer.send_and_wait(TOPIC, b"%d" % number)
    seen = 0
    async with AIOKafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest", request_timeout_ms=patience_ms
    ) as consumer:
        while seen < RECORDS:
            seen += sum(map(len, (await consumer.getmany(timeout_ms=200)).values()))
    return seen


async def bounded(bootstrap: str) -> int:
    async with asyncio.timeout(2 * PATIENCE_S):
        return await round_trip(bootstrap)


if __name__ == "__main__":
    try:
        sys.exit(0 if asyncio.run(bounded(sys.argv[1])) else 1)
    except (KafkaError, TimeoutError) as error:
        sys.exit(f"{type(error).__name__}: {error}")

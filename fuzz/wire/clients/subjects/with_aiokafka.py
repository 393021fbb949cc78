"""aiokafka: a producer and a group consumer."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from highwater.fuzz.wire.clients.subjects import GROUP, RECORDS, TIMEOUT_S, TOPIC


async def round_trip(bootstrap: str) -> int:
    """Return the number of consumed records."""
    timeout_ms = int(TIMEOUT_S * 1000)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, request_timeout_ms=timeout_ms) as producer:
        for number in range(RECORDS):
            await producer.send_and_wait(TOPIC, b"%d" % number)
    consumed = 0
    async with AIOKafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest", request_timeout_ms=timeout_ms
    ) as consumer:
        while consumed < RECORDS:
            consumed += sum(map(len, (await consumer.getmany(timeout_ms=200)).values()))
    return consumed


async def bounded(bootstrap: str) -> int:
    async with asyncio.timeout(2 * TIMEOUT_S):
        return await round_trip(bootstrap)


if __name__ == "__main__":
    try:
        sys.exit(0 if asyncio.run(bounded(sys.argv[1])) else 1)
    except (KafkaError, TimeoutError) as error:
        sys.exit(f"{type(error).__name__}: {error}")

"""Kafka 0.7 over TCP: `python -m highwater.reference.drivers.kafka_0_7 FOLDER` serves it; `ListedProducer` sends to it.

One process is one broker, without ZooKeeper: clients have a list of brokers (`broker.list`).
"""

import argparse
import asyncio
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from highwater.reference.drivers.files import Disk
from highwater.reference.legacy.broker import LegacyBroker
from highwater.reference.legacy.log import LegacyLogConfig
from highwater.reference.legacy.producer import (
    DispatchQueue,
    Item,
    ProducerConfig,
    QueueFullError,
    listed,
    request_of,
)
from highwater.reference.wire.errors import DecodeError

LISTENING: Final = "listening on "
MAX_FRAME_BYTES: Final = 100 << 20
BACKGROUND_S: Final = 0.1
_SIZE: Final = struct.Struct(">i")


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


# -- the broker ------------------------------------------------------------------------------------


async def serve(folder: Path, port: int, partitions: int, config: LegacyLogConfig) -> None:
    """Serve one broker on the loopback address until cancelled, and print its address."""
    disk = Disk(folder)
    broker = LegacyBroker(disk, config, partitions)
    try:
        server = await asyncio.start_server(partial(_connection, broker, disk), "127.0.0.1", port)
        print(f"{LISTENING}127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        async with server:
            while (
                True
            ):  # what is due is flushed without waiting for a request: "S seconds after which a flush is forced"
                await asyncio.sleep(BACKGROUND_S)
                _flush_due(broker, disk)
    finally:
        disk.close()


def _flush_due(broker: LegacyBroker, disk: Disk) -> None:
    for log in broker.logs.values():
        if paths := log.flush_due(now_ms()):
            for descriptor in disk.duplicates(paths):
                os.fsync(descriptor)
                os.close(descriptor)
            log.flushed(now_ms())


async def _connection(
    broker: LegacyBroker, disk: Disk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer the requests of one connection in order; an invalid one ends it."""
    try:
        while True:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
            if not 0 < size <= MAX_FRAME_BYTES:
                return
            reply = broker.handle(await reader.readexactly(size), now_ms())
            _flush_due(broker, disk)
            if reply is not None:
                writer.write(reply)
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, DecodeError):
        return
    finally:
        writer.close()


# -- the producer ----------------------------------------------------------------------------------


class ListedProducer:
    """A producer with a `broker.list`. Asynchronous, it has a thread and a queue for each broker, as 0.7 has.

    `send` waits while the queue is full. Raises OSError for a broker that is down if synchronous; what an asynchronous
    producer cannot send counts in `failed`.
    """

    def __init__(
        self, brokers: Mapping[int, str], topic: str, config: ProducerConfig, partitions: int = 1, seed: int = 0
    ) -> None:
        self._topic, self._config = topic, config
        self._view = listed(brokers, partitions, topic, random.Random(seed).randrange)
        self._sockets: dict[int, socket.socket] = {}
        self._changed = threading.Condition()
        self._closing = False
        self.failed = 0
        self._queues = {broker: DispatchQueue(config) for broker in brokers} if config.producer_type == "async" else {}
        self._threads = [
            threading.Thread(target=self._dispatch, args=(broker,), daemon=True) for broker in self._queues
        ]
        for thread in self._threads:
            thread.start()

    def send(self, payload: bytes, key: bytes | None = None) -> None:
        """Send one message, or put it into the queue of its broker. Raises OSError if synchronous."""
        broker, partition = self._view.pick(self._topic, key)
        item = Item(self._topic, partition, payload)
        if not self._queues:
            self._write(broker, [item])
            return
        with self._changed:
            while True:
                try:
                    self._queues[broker].offer(now_ms(), item)
                    break
                except QueueFullError:
                    self._changed.wait(BACKGROUND_S)
            if len(self._queues[broker]) in {1, self._config.batch_size}:
                self._changed.notify_all()

    def close(self) -> None:
        """Send what is in the queues and close the connections."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        for connection in self._sockets.values():
            connection.close()

    def _dispatch(self, broker: int) -> None:
        """Send batches of one broker until the producer is closed and its queue is empty."""
        queue = self._queues[broker]
        while True:
            with self._changed:
                while not (batch := queue.take(now_ms(), whatever=self._closing)):
                    if self._closing:
                        return
                    wait_ms = queue.due_ms - now_ms() if queue.due_ms is not None else None
                    self._changed.wait(None if wait_ms is None else max(wait_ms, 1) / 1e3)
                self._changed.notify_all()
            try:
                self._write(broker, batch)
            except OSError:
                self.failed += len(batch)

    def _write(self, broker: int, items: Iterable[Item]) -> None:
        """Write one request; a connection that fails is opened again by the next one."""
        try:
            if broker not in self._sockets:
                host, _, port = self._view.addresses[broker].rpartition(":")
                self._sockets[broker] = socket.create_connection((host, int(port)))
                self._sockets[broker].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets[broker].sendall(request_of(items, self._config.compression))
        except OSError:
            if broker in self._sockets:
                self._sockets.pop(broker).close()
            raise


class Exchange:
    """A connection of a simple consumer: sends a framed request and returns the framed reply."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._file = self._socket.makefile("rb")

    def __call__(self, frame: bytes) -> bytes:
        self._socket.sendall(_SIZE.pack(len(frame)) + frame)
        head = self._file.read(_SIZE.size)
        if len(head) < _SIZE.size:
            raise ConnectionResetError("the broker has closed the connection")
        return head + self._file.read(_SIZE.unpack(head)[0])

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a broker of Kafka 0.7 on the loopback address.")
    parser.add_argument("folder", type=Path, help="where the logs are")
    parser.add_argument("--port", type=int, default=0, help="0: a free one, which is printed")
    parser.add_argument("--partitions", type=int, default=1, help="of each topic")
    parser.add_argument("--flush-messages", type=int, default=500, help="messages after which they are flushed")
    parser.add_argument("--flush-ms", type=int, default=1_000, help="milliseconds after which they are flushed")
    options = parser.parse_args()
    config = LegacyLogConfig(flush_messages=options.flush_messages, flush_ms=options.flush_ms)
    asyncio.run(serve(options.folder, options.port, options.partitions, config))


if __name__ == "__main__":
    main()

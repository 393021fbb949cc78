"""Run one node as one process: listen, report when it is ready, shut down cleanly on SIGTERM and Ctrl-C."""

import asyncio
import contextlib
import os
import resource
import signal
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from highwater.errors import UsageError
from highwater.reference.broker import Broker
from highwater.reference.configuration.broker import ZOOKEEPER, BrokerConfig, StoreConfig
from highwater.reference.connections.limits import Limits
from highwater.reference.connections.server import Listener
from highwater.reference.drivers.connection import ClientConnection
from highwater.reference.drivers.files import Disk
from highwater.reference.drivers.logs import log_as, log_to_stderr
from highwater.reference.drivers.metrics_port import REQUEST_MAX, MetricsPort
from highwater.reference.drivers.security import Security
from highwater.reference.drivers.tcp import Driver, StoreConnection
from highwater.reference.drivers.trace_file import TraceFile
from highwater.reference.effects import STORE
from highwater.reference.metadata_cache import Endpoint
from highwater.reference.metrics import exposition
from highwater.reference.store.metadata_store import MetadataStore

SWEEP_S = 1.0
POLL_S = 0.02
SHUTDOWN_TIMEOUT_S = 5.0
PARENT = "HIGHWATER_PARENT"
"""Variable with the process id of the parent at whose end a node stops."""
Ready = Callable[[str], None]


def run_node(config: BrokerConfig | StoreConfig, on_ready: Ready, *, trace: Path | None = None) -> None:
    """Run a node until SIGTERM or Ctrl-C.

    Raises UsageError for a port in use, a data folder of another node, or a disk error. The node writes its protocol
    steps to the folder `trace`.
    """
    if isinstance(config, BrokerConfig):
        run = _run_broker(config, on_ready, TraceFile(trace, str(config.broker_id)) if trace else None)
    else:
        run = _run_store(config, on_ready, TraceFile(trace, STORE) if trace else None)
    _allow_descriptors()
    asyncio.run(run)


def _allow_descriptors() -> None:
    """Raise the soft limit of open files (often 1024): every connection and segment uses a descriptor."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _run_broker(config: BrokerConfig, on_ready: Ready, trace: TraceFile | None) -> None:
    disk = Disk(Path(config.log_dir))
    disk.claim({"cluster.id": config.cluster_id, "broker.id": str(config.broker_id)})
    log_as(config, disk.root)
    broker = Broker(config, disk, tracing=trace is not None)

    def resolve(peer: str) -> Endpoint | None:
        if peer == STORE:
            store_host, _, store_port = config.metadata_store.rpartition(":")
            return Endpoint(store_host, int(store_port))
        return broker.endpoint(int(peer.partition(":")[2]))

    security = Security(config)
    driver = Driver(broker, disk, resolve, security, trace)
    if config.metadata_store.startswith(ZOOKEEPER):
        from highwater.reference.drivers.zookeeper import ZooKeeperLink  # needs the extra `zookeeper`

        hosts = config.metadata_store.removeprefix(ZOOKEEPER)
        link = ZooKeeperLink(hosts, lambda message: driver.receive(STORE, message), lambda: driver.closed(STORE, STORE))
        driver.store_link = link
    limits = Limits(lambda: broker.config_in_effect)
    listener = Listener(broker.served, config.socket_request_max_bytes, limits, broker.meters, security.authenticator)
    server = await _listen(
        lambda: ClientConnection(driver, listener), config.host, config.port, security.server_context
    )
    driver.start()
    if config.metrics_port:
        await _serve_metrics(config, broker, limits)

    async def announce() -> None:
        while not broker.cache.is_alive(config.broker_id):
            await asyncio.sleep(POLL_S)
        on_ready(f"{config.host}:{config.port}")
        while True:
            await asyncio.sleep(SWEEP_S)
            limits.sweep(driver.now().monotonic_ms)

    await _run_until_stopped(driver, server, announce(), lambda: _shut_down(driver, broker))
    broker.stop(driver.now())
    disk.flush_all()
    disk.close()


async def _run_store(config: StoreConfig, on_ready: Ready, trace: TraceFile | None) -> None:
    log_to_stderr()
    disk = Disk(Path(config.data_dir))
    disk.claim({"cluster.id": config.cluster_id})
    store = MetadataStore(config, disk, tracing=trace is not None)
    driver = Driver(store, disk, lambda peer: None, trace=trace)
    server = await _listen(lambda: StoreConnection(driver), config.host, config.port)
    driver.start()

    async def announce() -> None:
        on_ready(f"{config.host}:{config.port}")

    await _run_until_stopped(driver, server, announce())
    disk.close()


async def _serve_metrics(config: BrokerConfig, broker: Broker, limits: Limits) -> None:
    def metrics() -> str:
        return exposition(broker, {"ConnectionCount": len(limits), "QueuedBytes": limits.total})

    try:
        await asyncio.start_server(MetricsPort(metrics).serve, config.host, config.metrics_port, limit=REQUEST_MAX)
    except OSError as error:
        where = f"{config.host}:{config.metrics_port}"
        raise UsageError(f"cannot listen ({error.strerror})", where=where, hint="set another metrics_port") from error


async def _listen(
    factory: Callable[[], asyncio.Protocol], host: str, port: int, tls: ssl.SSLContext | None = None
) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(factory, host, port, backlog=1024, ssl=tls)
    except OSError as error:
        raise UsageError(
            f"cannot listen ({error.strerror})",
            where=f"{host}:{port}",
            hint="stop what uses the port, or choose another",
        ) from error


async def _shut_down(driver: Driver, broker: Broker) -> None:
    """Run a controlled shutdown, for at most SHUTDOWN_TIMEOUT_S seconds."""
    driver.do(broker.shut_down)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
            while not broker.may_stop:
                await asyncio.sleep(POLL_S)


async def _no_shutdown() -> None:
    pass


async def _run_until_stopped(
    driver: Driver,
    server: asyncio.Server,
    background: Coroutine[None, None, None],
    before_end: Callable[[], Coroutine[None, None, None]] = _no_shutdown,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tasks = [asyncio.create_task(background), asyncio.create_task(_watch_parent(stop))]
    stopping = asyncio.create_task(stop.wait())
    awaited: list[asyncio.Future[Any]] = [stopping, driver.failed]
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
    if not driver.failed.done():
        await before_end()
    for task in (*tasks, stopping):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    server.close()
    if driver.failed.done():
        error = driver.failed.result()
        if not isinstance(error, OSError):
            raise error
        where = getattr(error, "filename", None) or "data folder"
        raise UsageError(
            f"the disk failed: {error}", where=str(where), hint="free space or fix the disk, then start again"
        ) from error


async def _watch_parent(stop: asyncio.Event) -> None:
    """Stop this node when its parent process ends, even by SIGKILL; the cluster supervisor sets the variable."""
    parent = os.environ.get(PARENT)
    while parent is not None and os.getppid() == int(parent):
        await asyncio.sleep(0.5)
    if parent is not None:
        stop.set()

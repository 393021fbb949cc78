"""One node as one process: listens, says when it is ready, ends cleanly on SIGTERM and Ctrl-C."""

import asyncio
import contextlib
import os
import resource
import signal
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from reference.broker import Broker
from reference.config import BrokerConfig, StoreConfig
from reference.drivers.connection import ClientConnection, Listener
from reference.drivers.files import Disk
from reference.drivers.limits import Limits
from reference.drivers.logs import log_as, log_to_stderr
from reference.drivers.metrics_port import REQUEST_MAX, MetricsPort
from reference.drivers.security import Security
from reference.drivers.tcp import Driver, StoreConnection
from reference.drivers.trace_file import TraceFile
from reference.drivers.zookeeper import ZooKeeperLink, store_hosts
from reference.events import STORE
from reference.metadata_cache import Endpoint
from reference.metadata_store import MetadataStore
from reference.metrics import exposition
from spec.formats.verdict import UsageError

SWEEP_S = 1.0
POLL_S = 0.02
LEAVE_S = 5.0
Ready = Callable[[str], None]


def run_node(config: BrokerConfig | StoreConfig, on_ready: Ready, *, trace: Path | None = None) -> None:
    """Run until told to stop. UsageError for a port in use, a folder of somebody else, or a disk that refuses.

    `trace`: the folder where it writes what it does, step by step.
    """
    if isinstance(config, BrokerConfig):
        run = _run_broker(config, on_ready, TraceFile(trace, str(config.broker_id)) if trace else None)
    else:
        run = _run_store(config, on_ready, TraceFile(trace, STORE) if trace else None)
    _allow_descriptors()
    asyncio.run(run)


def _allow_descriptors() -> None:
    """A connection or a segment is a descriptor each, and the usual soft limit is no more than 1024."""
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
    hosts = store_hosts(config.metadata_store)
    if hosts is not None:
        link = ZooKeeperLink(hosts, lambda message: driver.receive(STORE, message), lambda: driver.closed(STORE, STORE))
        driver.store_link = link
    limits = Limits(config)
    listener = Listener(
        driver, broker.served, config.socket_request_max_bytes, limits, broker.meters, security.authenticator
    )
    accept = _accept(listener, config.wire_defects)
    server = await _listen(accept, config.host, config.port, security.server_context)
    driver.start()
    if config.metrics_port:
        await _serve_metrics(config, broker, limits)

    async def announce() -> None:
        while not broker.cache.is_alive(config.broker_id):
            await asyncio.sleep(POLL_S)
        on_ready(f"{config.host}:{config.port}")
        await limits.sweep_forever(SWEEP_S)

    await _until_stopped(driver, server, announce(), lambda: _leave(driver, broker))
    broker.stop(driver.now())
    disk.flush_all()
    disk.close()


def _accept(listener: Listener, defects: tuple[str, ...]) -> Callable[[], asyncio.Protocol]:
    """What stands behind a connection; planted defects are loaded only where there are any."""
    if not defects:
        return lambda: ClientConnection(listener)
    from reference.drivers.defects.connection import DefectiveConnection
    from reference.drivers.defects.table import check_defects

    check_defects(defects)
    return lambda: DefectiveConnection(listener, defects)


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

    await _until_stopped(driver, server, announce())
    disk.close()


async def _serve_metrics(config: BrokerConfig, broker: Broker, limits: Limits) -> None:
    def metrics() -> str:
        return exposition(broker, {"ConnectionCount": len(limits), "QueuedBytes": limits.total})

    try:
        await asyncio.start_server(MetricsPort(metrics).serve, config.host, config.metrics_port, limit=REQUEST_MAX)
    except OSError as error:
        where = f"{config.host}:{config.metrics_port}"
        raise UsageError(f"cannot listen ({error.strerror})", where=where, mend="set another metrics_port") from error


async def _listen(
    factory: Callable[[], asyncio.Protocol], host: str, port: int, tls: ssl.SSLContext | None = None
) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(factory, host, port, backlog=1024, ssl=tls)
    except OSError as error:
        raise UsageError(
            f"cannot listen ({error.strerror})",
            where=f"{host}:{port}",
            mend="stop what uses the port, or choose another",
        ) from error


async def _leave(driver: Driver, broker: Broker) -> None:
    """A controlled shutdown, for as long as somebody answers."""
    driver.do(broker.shut_down)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            while not broker.may_stop:
                await asyncio.sleep(POLL_S)


async def _nothing() -> None:
    pass


async def _until_stopped(
    driver: Driver,
    server: asyncio.Server,
    background: Coroutine[None, None, None],
    before_end: Callable[[], Coroutine[None, None, None]] = _nothing,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tasks = [asyncio.create_task(background), asyncio.create_task(_orphaned(stop))]
    stopping = asyncio.create_task(stop.wait())
    waited: list[asyncio.Future[Any]] = [stopping, driver.failed]
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
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
        raise UsageError(f"the disk refuses: {error}", where=str(where), mend="free space, then start again") from error


async def _orphaned(stop: asyncio.Event) -> None:
    """Whoever started this node may be killed; then it must not live on (set by the cluster supervisor)."""
    parent = os.environ.get("HIGHWATER_PARENT")
    while parent is not None and os.getppid() == int(parent):
        await asyncio.sleep(0.5)
    if parent is not None:
        stop.set()

"""Run a recording until it is interrupted."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import IO, Any, Final

from highwater.fuzz.proxy.addresses import Address
from highwater.fuzz.proxy.faults import MessageFault
from highwater.fuzz.proxy.matching import Faults
from highwater.fuzz.proxy.proxy import Proxy
from highwater.fuzz.proxy.run import open_proxy
from highwater.fuzz.proxy.upstream import Upstream
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.framing import decode_response, encode_request
from highwater.reference.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from highwater.reports.recorder.decoder import FrameDecoder
from highwater.reports.recorder.exchanges import Cluster, Link
from highwater.reports.recorder.observer import Observer
from highwater.reports.recorder.recording import Recording
from highwater.signals import TERMINATION_SIGNALS
from highwater.spec.formats.history import Config

# --------------------------------------------------------------------------------------------------
# Ask the cluster for the topic settings on which verdicts depend.


TOPIC: Final = 2
VERSION: Final = 1  # the oldest version that Kafka 4 supports; available since 1.1
TIMEOUT_S: Final = 10.0
REPLY_LIMIT: Final = 16 << 20  # bytes
DAY_MS: Final = 86_400_000


async def record_topic_config(upstream: Upstream, topic: str, recording: Recording) -> bool:
    """Copy the topic settings into the header. Returns False if no broker answered."""
    try:
        settings = await asyncio.wait_for(_describe(upstream, topic), TIMEOUT_S)
        recording.update_config(**config_changes(recording.config, settings))
    except (OSError, EOFError):
        return False
    except (DecodeError, ValueError):
        return True
    return True


async def _describe(upstream: Upstream, topic: str) -> dict[str, str | None]:
    _, reader, writer = await upstream.connect()
    try:
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=None)
        writer.write(encode_request(DescribeConfigsRequest(resources=(resource,)), VERSION, 0, "highwater-record"))
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size > REPLY_LIMIT:
            raise ValueError("too long a reply")
        reply: DescribeConfigsResponse
        _, reply = decode_response(DescribeConfigsResponse, VERSION, await reader.readexactly(size))
    finally:
        writer.close()
    return {entry.name: entry.value for result in reply.results for entry in result.configs}


def config_changes(config: Config, settings: dict[str, str | None]) -> dict[str, Any]:
    """Return header changes: the weakest setting of all topics. Retention of a day or more is ignored."""
    known: dict[str, Any] = {}
    if unclean := settings.get("unclean.leader.election.enable"):
        known["unclean_election"] = config.unclean_election or unclean == "true"
    if policy := settings.get("cleanup.policy"):
        known["compaction"] = config.compaction or "compact" in policy
    if (retention_ms := settings.get("retention.ms")) and (size := settings.get("retention.bytes")):
        brief = 0 <= int(retention_ms) < DAY_MS or int(size) >= 0
        known["retention"] = config.retention or ("delete" in (settings.get("cleanup.policy") or "") and brief)
    if least := settings.get("min.insync.replicas"):
        known["min_insync_replicas"] = min(config.min_insync_replicas or int(least), int(least))
    return known


EVERY_S: Final = 0.5
TRIES: Final = 60
"""How often to retry DescribeConfigs for a topic while no broker answers."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The listening address, the upstream brokers, TLS for clients, the groups to record, and the faults to inject."""

    listen: Address
    upstream: Upstream
    tls: ssl.SSLContext | None = None
    groups: Collection[str] = ()
    faults: Faults = field(default_factory=Faults)


async def record(
    endpoints: Endpoints, recording: Recording, ended: asyncio.Event, listening: Callable[[Address], object]
) -> None:
    """Forward and record until `ended` is set. Raises UsageError if the port cannot be opened."""
    cluster, observer = Cluster(recording, endpoints.groups), Observer()
    tell = endpoints.faults.on_strike

    def on_strike(fault: MessageFault, subject: str) -> None:
        recording.nemesis("message", value=f"{subject}: {fault}")
        if tell is not None:
            tell(fault, subject)

    endpoints.faults.on_strike = on_strike
    proxy = Proxy(
        endpoints.listen[0],
        endpoints.tls,
        faults=endpoints.faults,
        tap=lambda address: FrameDecoder(Link(cluster, address), observer),
        note=lambda text: recording.nemesis("message", value=text),
    )
    cluster.lives = proxy.broker_closed
    address = await open_proxy(proxy, endpoints.upstream, endpoints.listen)
    listening(address)
    attempts: dict[str, int] = {}
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), EVERY_S)
        if proxy.failure is not None:
            raise proxy.failure
        recording.flush()
        for topic in sorted(topic for topic in cluster.topics_seen if attempts.get(topic, 0) < TRIES):
            answered = await record_topic_config(endpoints.upstream, topic, recording)
            attempts[topic] = TRIES if answered else attempts.get(topic, 0) + 1
    await proxy.close()
    recording.flush()


async def record_until_interrupted(
    endpoints: Endpoints, recording: Recording, listening: Callable[[Address], object]
) -> None:
    ended = asyncio.Event()
    for number in TERMINATION_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await record(endpoints, recording, ended, listening)


def start_recording(sink: IO[bytes]) -> Recording:
    return Recording(sink, time.time_ns() // 1_000_000)

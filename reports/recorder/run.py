"""A recording from its beginning to Ctrl-C."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import IO, Any, Final

from highwater.errors import UsageError
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.framing import decode_response, encode_request
from highwater.reference.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from highwater.reports.recorder.addresses import Address
from highwater.reports.recorder.exchanges import Cluster
from highwater.reports.recorder.proxy import Proxy
from highwater.reports.recorder.recording import Recording
from highwater.reports.recorder.upstream import Upstream
from highwater.signals import TERMINATION_SIGNALS
from highwater.spec.formats.history import Config

# --------------------------------------------------------------------------------------------------
# Asks the cluster for what verdicts depend on: the settings of the topics that clients use.


TOPIC: Final = 2
VERSION: Final = 1  # the oldest that today's brokers speak, and all since 1.1 do
TIMEOUT_S: Final = 10.0
REPLY_LIMIT: Final = 16 << 20  # bytes
A_DAY_MS: Final = 86_400_000


async def learn(upstream: Upstream, topic: str, recording: Recording) -> bool:
    """What the broker tells goes into the header; one that refuses leaves it as it is. False if none answered."""
    try:
        settings = await asyncio.wait_for(_describe(upstream, topic), TIMEOUT_S)
        recording.know(**told_by(recording.config, settings))
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
    return {each.name: each.value for result in reply.results for each in result.configs}


def told_by(config: Config, settings: dict[str, str | None]) -> dict[str, Any]:
    """Over several topics the weakest promise counts. Retention of a day and more takes nothing while we look."""
    known: dict[str, Any] = {}
    if unclean := settings.get("unclean.leader.election.enable"):
        known["unclean_election"] = config.unclean_election or unclean == "true"
    if policy := settings.get("cleanup.policy"):
        known["compaction"] = config.compaction or "compact" in policy
    if (kept := settings.get("retention.ms")) and (size := settings.get("retention.bytes")):
        brief = 0 <= int(kept) < A_DAY_MS or int(size) >= 0
        known["retention"] = config.retention or ("delete" in (settings.get("cleanup.policy") or "") and brief)
    if least := settings.get("min.insync.replicas"):
        known["min_insync_replicas"] = min(config.min_insync_replicas or int(least), int(least))
    return known


EVERY_S: Final = 0.5
TRIES: Final = 60
"""How often a cluster that does not answer is asked for the settings of a topic."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Where clients come in, and where they are led to. `tls` is what they meet."""

    listen: Address
    upstream: Upstream
    tls: ssl.SSLContext | None = None
    groups: Collection[str] = ()


async def record(
    ends: Ends, recording: Recording, ended: asyncio.Event, listening: Callable[[Address], object]
) -> None:
    """Pass on and record until `ended`. UsageError when the port to listen on cannot be had."""
    cluster = Cluster(recording, ends.groups)
    proxy = Proxy(cluster, ends.listen[0], ends.tls)
    try:
        address = await proxy.listen(ends.upstream, ends.listen[1])
    except OSError as error:
        what = f"cannot listen on {ends.listen[0]}:{ends.listen[1]} ({error.strerror})"
        raise UsageError(what, where="--listen", hint="choose a port that is free, or 0") from error
    listening(address)
    asked: dict[str, int] = {}
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), EVERY_S)
        if proxy.failure is not None:
            raise proxy.failure
        recording.flush()
        for topic in sorted(topic for topic in cluster.topics_seen if asked.get(topic, 0) < TRIES):
            answered = await learn(ends.upstream, topic, recording)
            asked[topic] = TRIES if answered else asked.get(topic, 0) + 1
    await proxy.close()
    recording.flush()


async def record_until_interrupted(ends: Ends, recording: Recording, listening: Callable[[Address], object]) -> None:
    ended = asyncio.Event()
    for number in TERMINATION_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await record(ends, recording, ended, listening)


def begun(sink: IO[bytes]) -> Recording:
    return Recording(sink, time.time_ns() // 1_000_000)

"""Asks the cluster for what verdicts depend on: the settings of the topics that clients use."""

import asyncio
from typing import Any, Final

from reference.wire.errors import DecodeError
from reference.wire.framing import decode_response, encode_request
from reference.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from reports.recorder.recording import Recording
from reports.recorder.upstream import Upstream
from spec.formats.history import Config

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

"""A recording from its beginning to Ctrl-C."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import IO, Final

from reports.recorder.addresses import Address
from reports.recorder.exchange import Cluster
from reports.recorder.proxy import Proxy
from reports.recorder.recording import Recording
from reports.recorder.settings import learn
from reports.recorder.upstream import Upstream
from spec.formats.verdict import UsageError
from spec.interruption import TERMINATION_SIGNALS

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
        raise UsageError(what, where="--listen", mend="choose a port that is free, or 0") from error
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

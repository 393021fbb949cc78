"""A recording from its beginning to Ctrl-C."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection
from typing import IO, Final

from reports.recorder.addresses import Address
from reports.recorder.exchange import Cluster
from reports.recorder.proxy import Proxy
from reports.recorder.recording import Recording
from reports.recorder.settings import learn
from spec.formats.verdict import UsageError
from spec.interruption import ENDS

EVERY_S: Final = 0.5


async def record(
    listen: Address, upstream: Address, sink: IO[bytes], groups: Collection[str], say: Callable[[str], object]
) -> Recording:
    """Pass on and record until interrupted. UsageError when the port to listen on cannot be had."""
    recording = Recording(sink, time.time_ns() // 1_000_000)
    cluster = Cluster(recording, groups)
    proxy = Proxy(cluster, listen[0])
    ended = asyncio.Event()
    for number in ENDS:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        host, port = await proxy.listen(upstream, listen[1])
    except OSError as error:
        what = f"cannot listen on {listen[0]}:{listen[1]} ({error.strerror})"
        raise UsageError(what, where="--listen", mend="choose a port that is free, or 0") from error
    say(f"recording: clients connect to {host}:{port}; Ctrl-C ends it")
    asked: set[str] = set()
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), EVERY_S)
        if proxy.failure is not None:
            raise proxy.failure
        recording.flush()
        for topic in sorted(cluster.topics_seen - asked):
            asked.add(topic)
            await learn(upstream, topic, recording)
    await proxy.close()
    recording.flush()
    return recording

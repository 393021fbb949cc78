"""The proxy ends all connections when it is closed, in whatever state it finds them."""

import asyncio

import pytest

from highwater.fuzz.proxy.addresses import Address
from highwater.fuzz.proxy.proxy import Proxy
from highwater.fuzz.proxy.upstream import Upstream

WAIT_S = 30


async def _rest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return what is received until the other side ends the connection."""
    try:
        async with asyncio.timeout(WAIT_S):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.transport.abort()


async def _closed_after(turns: int, leaves: bool) -> None:
    """Close the proxy `turns` steps of the loop after a client has arrived, or has arrived and left."""
    ended: list[asyncio.Task[bytes]] = []
    broker = await asyncio.start_server(
        lambda *streams: ended.append(asyncio.ensure_future(_rest(*streams))), "127.0.0.1", 0
    )
    address: Address = broker.sockets[0].getsockname()
    proxy = Proxy("127.0.0.1")
    reader, writer = await asyncio.open_connection(*await proxy.listen(Upstream((address,))))
    if leaves:
        writer.transport.abort()
    for _ in range(turns):
        await asyncio.sleep(0)
    await proxy.close()
    assert not proxy._clients
    assert not proxy._steps
    if not leaves:
        assert await _rest(reader, writer) == b""
    broker.close()
    assert await asyncio.gather(*ended) == [b""] * len(ended)


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("turns", range(12))
def test_closing_ends_every_connection(turns: int, leaves: bool) -> None:
    asyncio.run(_closed_after(turns, leaves))

"""A server can listen on a reserved port, and no other process can reserve it."""

import multiprocessing
import socket

import pytest

from highwater.ports import Ports


def take(count: int) -> list[int]:
    return list(Ports(count))


def test_concurrent_processes_reserve_different_ports() -> None:
    """Children of one parent start at the same candidate port, and keep their ports while the pool exists."""
    with multiprocessing.get_context("fork").Pool(4) as pool:
        taken = [port for ports in pool.map(take, [5] * 40) for port in ports]
    assert len(taken) == len(set(taken)) == 200


def test_reserved_ports_are_consecutive_and_a_server_can_listen_on_them() -> None:
    ports = Ports(3)
    first = ports[0]
    assert ports == [first, first + 1, first + 2]
    with socket.create_server(("127.0.0.1", first)), socket.socket() as second, pytest.raises(OSError, match="in use"):
        second.bind(("127.0.0.1", first))
    ports.release()
    assert ports == []
    with socket.socket() as server:
        server.bind(("127.0.0.1", first))

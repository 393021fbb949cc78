"""Writes the segments of `segments/`: `python -m highwater.reference.tests.apache_kafka.write_segments FOLDER`.

One broker of each release, with its own ZooKeeper or controller, and its own console producer in every codec.
The records of each topic: key `k0`, value `value 0 aaa…` and so on, COUNT of them, in batches.
"""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from highwater.ports import Ports
from highwater.reference.tests.apache_kafka.programs import command

COUNT: Final = 40
CODECS: Final = {
    "0.9.0.1": ("none", "gzip", "snappy", "lz4"),
    "0.10.2.2": ("none", "gzip", "snappy", "lz4"),
    "4.3.1": ("none", "gzip", "snappy", "lz4", "zstd"),
}
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
WAIT_S: Final = 60


def lines() -> str:
    return "".join(f"k{number}:value {number} {'a' * 30}\n" for number in range(COUNT))


@contextmanager
def process(log: Path, *line: str) -> Iterator[None]:
    with log.open("wb") as out:
        started = subprocess.Popen(line, stdout=out, stderr=out)
    try:
        yield
    finally:
        started.terminate()
        started.wait(WAIT_S)


def wait_for(port: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port}")


@contextmanager
def old_broker(version: str, folder: Path, port: int) -> Iterator[None]:
    zookeeper = Ports(1)[0]
    config = folder / "zoo.cfg"
    config.write_text(f"dataDir={folder}/zk\nclientPort={zookeeper}\nclientPortAddress=127.0.0.1\ntickTime=500\n")
    server = folder / "server.properties"
    server.write_text(
        f"broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={folder}/data\n"
        f"zookeeper.connect=127.0.0.1:{zookeeper}\nlog.index.interval.bytes=300\n"
    )
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    with process(folder / "zk.log", *command(version, main, str(config))):
        wait_for(zookeeper)
        with process(folder / "kafka.log", *command(version, "kafka.Kafka", str(server))):
            wait_for(port)
            yield


@contextmanager
def new_broker(version: str, folder: Path, port: int) -> Iterator[None]:
    controller = Ports(1)[0]
    server = folder / "server.properties"
    server.write_text(
        f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={folder}/data\nlog.index.interval.bytes=300\n"
    )
    subprocess.run(
        command(version, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(server)), check=True
    )
    with process(folder / "kafka.log", *command(version, "kafka.Kafka", str(server))):
        wait_for(port)
        yield


def produce(version: str, port: int, codec: str) -> None:
    new = version.startswith("4")
    main = "org.apache.kafka.tools.ConsoleProducer" if new else "kafka.tools.ConsoleProducer"
    where = "--bootstrap-server" if new else "--broker-list"
    prop = "--reader-property" if new else "--property"
    options = ["--topic", codec, "--compression-codec", codec, "--batch-size", "400" if new else "10"]
    options += [prop, "parse.key=true", prop, "key.separator=:"]
    subprocess.run(
        command(version, main, where, f"127.0.0.1:{port}", *options),
        input=lines(),
        text=True,
        check=True,
        timeout=WAIT_S,
    )


def main(target: Path) -> None:
    for version, codecs in CODECS.items():
        with tempfile.TemporaryDirectory() as name:
            folder, port = Path(name), Ports(1)[0]
            with (new_broker if version.startswith("4") else old_broker)(version, folder, port):
                for codec in codecs:
                    produce(version, port, codec)
            for codec in codecs:
                place = target / version / codec
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(folder / "data" / f"{codec}-0", place)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The Java consumer as a member of a group: `VerifiableConsumer`, which Kafka's own system tests run."""

import json
import signal
import subprocess
import threading
import time
from typing import Any, Final

from highwater.experiments.measures.observed import Observed
from highwater.experiments.plans import COOPERATIVE, EAGER, NEW_PROTOCOL, STATIC
from highwater.experiments.targets import Bench

PROGRAM: Final = "org.apache.kafka.tools.VerifiableConsumer"
ASSIGNORS: Final = {
    EAGER: "org.apache.kafka.clients.consumer.RangeAssignor",
    COOPERATIVE: "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    STATIC: "org.apache.kafka.clients.consumer.RangeAssignor",
}
END_S: Final = 15.0


class JavaMember:
    """A process of the Java consumer; its lines of JSON say what it was assigned and which records it received."""

    SINCE: Final = (4,)

    def __init__(self, name: str, bench: Bench, protocol: str, topic: str, observed: Observed) -> None:
        arguments = [
            "--bootstrap-server", bench.bootstrap, "--topic", topic, "--group-id", topic, "--reset-policy", "latest",
            "--enable-autocommit",
        ]  # fmt: skip
        if protocol == NEW_PROTOCOL:
            arguments += ["--group-protocol", "consumer"]
        else:
            arguments += ["--session-timeout", "10000", "--assignment-strategy", ASSIGNORS[protocol]]
        if protocol == STATIC:
            arguments += ["--group-instance-id", name]
        self._name, self._observed, self._closed = name, observed, False
        self._process = subprocess.Popen(
            bench.cluster.tool_command(PROGRAM, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a line of the log
            self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        partitions = {entry["partition"] for entry in event.get("partitions", ())}
        match event.get("name"):
            case "partitions_assigned":
                self._observed.assign(self._name, partitions)
            case "partitions_revoked" | "partitions_lost" if not self._closed:
                self._observed.revoke(self._name, partitions)
            case "records_consumed":
                for partition in partitions:
                    self._observed.received[partition].append(time.monotonic())

    def close(self) -> None:
        """End the process: its shutdown hook closes the consumer."""
        self._closed = True
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        self._observed.leave(self._name)

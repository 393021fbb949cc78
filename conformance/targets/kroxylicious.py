"""Kroxylicious, a proxy for Kafka, in front of a reference broker: what it changes is what the broker alone keeps."""

from highwater.artefacts import build
from highwater.conformance.targets.advertised import ProcessTarget
from highwater.conformance.targets.kfake import PROGRAM
from highwater.conformance.targets.reference import ReferenceTarget
from highwater.ports import Ports
from highwater.releases import KROXYLICIOUS, fetch_release
from highwater.toolchain import java

VERSION = "0.12.0"
NODE = 1
SOURCES = PROGRAM.with_name("kroxylicious")
SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
CONFIGURATION = """
virtualClusters:
- name: highwater
  targetCluster: {{bootstrapServers: "{upstream}"}}
  gateways:
  - name: default
    portIdentifiesNode:
      bootstrapAddress: "127.0.0.1:{bootstrap}"
      advertisedBrokerAddressPattern: 127.0.0.1
      nodeStartPort: {node_port}
      nodeIdRanges: [{{name: all, start: {node}, end: {node}}}]
"""


class Kroxylicious(ProcessTarget):
    """One broker behind the proxy; the proxy cannot be stopped without it."""

    def __init__(self) -> None:
        jars, self._ports = fetch_release(f"{KROXYLICIOUS}{VERSION}"), Ports(2)
        folder = build(SOURCES, "javac", "-cp", f"{jars}/*", "-d", ".", "Proxy.java")
        self._upstream = ReferenceTarget(1)
        bootstrap, node_port = self._ports
        configuration = CONFIGURATION.format(
            upstream=self._upstream.bootstrap, bootstrap=bootstrap, node_port=node_port, node=NODE
        )
        path = f"{jars}/*:{folder}"
        command = [str(java().executable), *SMALL, "-cp", path, "Proxy", f"127.0.0.1:{bootstrap}", configuration]
        try:
            super().__init__("kroxylicious", VERSION, command)
        except BaseException:
            self._upstream.close()
            raise
        self.capabilities, self.settings = frozenset(), self._upstream.settings

    def close(self) -> None:
        super().close()
        self._upstream.close()
        self._ports.release()

"""Targets by name: launched implementations, cluster files and addresses of external brokers."""

import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from highwater.conformance.targets.base import Target
from highwater.errors import UsageError
from highwater.releases import NEWEST
from highwater.spec.guards import find_guard

TARGETS: Final = (
    "reference[:N], simulator[:N], apache-kafka[:VERSION][:N], apache-kafka-faults[:VERSION][:N], kfake[:N], "
    "librdkafka-mock[:N], tansu, nisshi, kroxylicious"
)
KNOWN: Final = f"{TARGETS}, HOST:PORT[,HOST:PORT] or FILE.toml"
ADDRESSES: Final = re.compile(r"[^,\s:]+:[1-9]\d{0,4}(,[^,\s:]+:[1-9]\d{0,4})*")
LAUNCHED: Final = re.compile(r"([a-z-]+)(?::(\d+(?:\.\d+)+))?(?::([1-9]))?")
VERSIONED: Final = "apache-kafka"
FAULTY: Final = "apache-kafka-faults"
CONNECT_TIMEOUT_S: Final = 2.0


def _size(version: str, brokers: int) -> Mapping[str, Any]:
    return {"brokers": brokers}


def _nothing(version: str, brokers: int) -> Mapping[str, Any]:
    return {}


def _version_and_size(version: str, brokers: int) -> Mapping[str, Any]:
    return {"version": version, "brokers": brokers}


def _release(version: str, brokers: int) -> Mapping[str, Any]:
    # With the plugin, the next coordinator answered -1 for a committed offset (OFF-11) in each of three runs, without
    # it in one of three. One broker has no next one.
    return {"version": version, "brokers": brokers, "client_metrics": brokers == 1}


LAUNCHERS: Final[Mapping[str, tuple[str, Callable[[str, int], Mapping[str, Any]]]]] = {
    "reference": ("highwater.conformance.targets.reference:ReferenceTarget", _size),
    "simulator": ("highwater.fuzz.virtual.target:SimulatorTarget", _size),
    VERSIONED: ("highwater.conformance.targets.apache_kafka:ApacheKafka", _release),
    FAULTY: ("highwater.fuzz.chaos.target:FaultyApacheKafka", _version_and_size),
    "kfake": ("highwater.conformance.targets.kfake:kfake", _size),
    "librdkafka-mock": ("highwater.conformance.targets.librdkafka_mock:librdkafka_mock", _size),
    "tansu": ("highwater.conformance.targets.tansu:tansu", _nothing),
    "nisshi": ("highwater.conformance.targets.tansu:nisshi", _nothing),
    "kroxylicious": ("highwater.conformance.targets.kroxylicious:Kroxylicious", _nothing),
}
"""By name, what launches the target, and its arguments for a release and a number of brokers.

The module is imported at the launch. It may be in a package above this one: the simulated brokers belong to `fuzz`.
"""


def _launch(name: str, version: str, brokers: int, **options: Any) -> Target:
    place, arguments = LAUNCHERS[name]
    module, _, attribute = place.partition(":")
    target: Target = getattr(import_module(module), attribute)(**arguments(version, brokers), **options)
    return target


WITH_GUARDS: Final = frozenset({"reference", "simulator"})
"""Targets that can be launched without a guard, and with hidden settings."""
IN_VIRTUAL_TIME: Final = frozenset({"simulator"})
CLUSTERS: Final[Mapping[str, int]] = {"reference": 4, "apache-kafka": 2}
"""Clusters that a run launches of a target whose nodes can be stopped: a broker of Apache Kafka takes a gigabyte."""


def check_target(name: str) -> None:
    """Raise UsageError for a name that is not a target."""
    if name.endswith(".toml"):
        from highwater.conformance.targets.commands import read_cluster_file

        read_cluster_file(Path(name))
    elif _launched(name) is None and (not ADDRESSES.fullmatch(name) or name.partition(":")[0] in LAUNCHERS):
        raise UsageError("no such target", where=name, hint=f"known: {KNOWN}")


def check_reachable(name: str) -> None:
    """Connect once to a target that is an address; UsageError if no server accepts the connection.

    Loading the suite takes seconds, so a wrong address is reported before that.
    """
    if not ADDRESSES.fullmatch(name) or name.partition(":")[0] in LAUNCHERS:
        return
    address = name.partition(",")[0]
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"no server accepts connections ({reason.lower()})",
            where=address,
            hint="start the broker, or give its host and port",
        ) from error


def count_clusters(name: str, asked: int = 0) -> int:
    """Return how many clusters of a target a run launches; `asked` 0 leaves it to the target.

    One is used for all cases, the others for those that stop nodes. There is only one of a broker that runs already.
    """
    launched = _launched(name)
    return (asked or CLUSTERS.get(launched[1], 1)) if launched else 1


def _launched(name: str) -> re.Match[str] | None:
    found = LAUNCHED.fullmatch(name)
    return found if found and found[1] in LAUNCHERS and (not found[2] or found[1] in {VERSIONED, FAULTY}) else None


def launch_target(
    name: str, command_config: Path | None = None, guards_off: Sequence[str] = (),
    hidden: Mapping[str, object] | None = None,
) -> Target:  # fmt: skip
    """Launch a target or connect to it; the caller closes it.

    `guards_off` switches off guards of the reference (`spec/guards.toml`), which restores historical bugs; `hidden`
    settings are applied, but not reported in `settings`. Raises UsageError if the target is unknown or cannot be
    reached.
    """
    check_target(name)
    if guards_off or hidden:
        return _altered_reference(name, guards_off, hidden or {})
    if name.endswith(".toml"):
        from highwater.conformance.targets.commands import CommandTarget

        return CommandTarget(Path(name), command_config)
    launched = _launched(name)
    if launched is None:
        from highwater.conformance.targets.external import ExternalTarget

        return ExternalTarget(name, command_config)
    return _launch(launched[1], launched[2] or NEWEST, int(launched[3] or 1))


def runs_in_virtual_time(name: str) -> bool:
    """Return whether a run on this target needs the processor all the time, and no time passes while a case waits."""
    launched = _launched(name)
    return launched is not None and launched[1] in IN_VIRTUAL_TIME


def is_altered_at_launch(name: str) -> bool:
    """Return whether `launch_target` takes `guards_off` and `hidden` for this target."""
    launched = _launched(name)
    return launched is not None and launched[1] in WITH_GUARDS


def _altered_reference(name: str, guards_off: Sequence[str], hidden: Mapping[str, object]) -> Target:
    known = tuple(find_guard(guard).id for guard in guards_off)
    launched = _launched(name)
    if launched is None or launched[1] not in WITH_GUARDS:
        raise UsageError("only the reference has guards to switch off", where=name)
    return _launch(launched[1], "", int(launched[3] or 1), guards_off=known, hidden=hidden)


@contextmanager
def open_target(name: str, command_config: Path | None = None) -> Iterator[Target]:
    """Launch a target and close it at the end of the block."""
    target = launch_target(name, command_config)
    try:
        yield target
    finally:
        target.close()

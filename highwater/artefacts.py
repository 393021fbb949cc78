"""Files that some tests and targets need and no wheel contains: downloaded on demand, verified, and cached.

Each kind is downloaded by its ordinary client with that client's own settings, so a user's mirror or proxy is used.
`artefacts.toml` beside this file is the catalogue.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final, Literal, NoReturn

import msgspec

from highwater.errors import UsageError
from highwater.temporary import temporary_folder

CATALOGUE: Final = Path(__file__).with_name("artefacts.toml")
CLIENT_TIMEOUT_S: Final = 600


class Artefact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of the catalogue: its source, and the SHA-256 and size (bytes) that it must have."""

    name: str
    kind: Literal["maven", "go", "debian", "pypi"]
    coordinates: str
    version: str
    sha256: str
    size: int


class Client(msgspec.Struct, frozen=True):
    """The program that downloads a kind of artefact.

    In `command`, braces name fields of the artefact, or `folder`, the download folder.
    """

    command: tuple[str, ...]
    suffix: str
    install_hint: str


CLIENTS: Final = {
    "maven": Client(
        (
            *("mvn", "--quiet", "--batch-mode", "dependency:copy"),
            *("-Dartifact={coordinates}:{version}", "-DoutputDirectory={folder}"),
        ),
        suffix=".jar",
        install_hint="install Maven, e.g. apt-get install maven",
    ),
    "go": Client(
        ("go", "mod", "download", "-modcacherw", "{coordinates}@{version}"),
        suffix=".zip",
        install_hint="install Go, e.g. apt-get install golang",
    ),
    "pypi": Client(
        (
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
            *("--platform", "manylinux2014_x86_64", "--dest", "{folder}", "{coordinates}=={version}"),
        ),
        suffix=".whl",
        install_hint="install pip in this environment",
    ),
    "debian": Client(
        ("apt-get", "--quiet", "download", "{coordinates}={version}"),
        suffix=".deb",
        install_hint="use Debian or a distribution based on it",
    ),
}


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/highwater`, else `~/.cache/highwater`; create it if it is missing."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "highwater"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content as hexadecimal digits."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def find_artefact(name: str) -> Artefact:
    """Return the catalogue's entry; raise UsageError with the known names if there is none."""
    listed = msgspec.convert(tomllib.loads(CATALOGUE.read_text())["artefact"], list[Artefact])
    for artefact in listed:
        if artefact.name == name:
            return artefact
    raise UsageError(f"no artefact {name!r}", where=str(CATALOGUE), hint=f"known: {[each.name for each in listed]}")


def cached_artefact(name: str) -> Path | None:
    """Return the file if it is in the cache with the right checksum, else None; never downloads."""
    artefact = find_artefact(name)
    path = _cache_path(artefact)
    return path if path.is_file() and sha256_of(path) == artefact.sha256 else None


def fetch_artefact(name: str) -> Path:
    """Return the verified file, downloading it on first use.

    Raises UsageError if the client of its kind is missing or fails, or if the file has another checksum.
    """
    present = cached_artefact(name)
    if present is not None:
        return present
    artefact = find_artefact(name)
    print(f"fetching {name} {artefact.version}, {artefact.size / 1e6:.1f} MB", file=sys.stderr)
    path = _cache_path(artefact)
    path.parent.mkdir(parents=True, exist_ok=True)
    # On the same file system as the final path: only then is the rename atomic.
    with temporary_folder(place=cache_folder()) as folder:
        fetched = _download(artefact, folder)
        found = sha256_of(fetched)
        if found != artefact.sha256:
            _fail(artefact, f"its sha256 is {found}, not {artefact.sha256}", "check the mirror that the client uses")
        fetched.replace(path)
    return path


def move_into_cache(finished: Path, path: Path) -> None:
    """Rename a finished folder to its path in the cache; if another process was faster, keep its folder."""
    try:
        finished.rename(path)
    except OSError:
        if not path.is_dir():
            raise


def _cache_path(artefact: Artefact) -> Path:
    suffix = CLIENTS[artefact.kind].suffix
    return cache_folder() / "artefacts" / f"{artefact.name}-{artefact.version}{suffix}"


def _download(artefact: Artefact, folder: Path) -> Path:
    client = CLIENTS[artefact.kind]
    program = shutil.which(client.command[0])
    if program is None:
        _fail(artefact, f"{client.command[0]} is not on PATH", client.install_hint)
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
        _fail(artefact, f"{client.command[0]} did not finish within {CLIENT_TIMEOUT_S} s", "check the network")
    if run.returncode != 0:
        last = (run.stdout + run.stderr).strip().splitlines()[-1:] or ["no output"]
        _fail(artefact, f"{client.command[0]} failed: {last[0]}", "check the network and the client's settings")
    files = sorted(folder.rglob(f"*{client.suffix}"))
    if len(files) != 1:
        _fail(
            artefact,
            f"{client.command[0]} downloaded {len(files)} files instead of one",
            "run the client by hand to find the cause",
        )
    return files[0]


def _fail(artefact: Artefact, why: str, install_hint: str) -> NoReturn:
    raise UsageError(why, where=f"{artefact.name} {artefact.version} ({artefact.kind})", hint=install_hint)


# --------------------------------------------------------------------------------------------------
# Programs in other languages: built into the user's cache, and rebuilt when their source changes.


BUILD_TIMEOUT_S: Final = 600


def build(sources: Path, tool: str, *command: str, variant: str = "") -> Path:
    """Run `tool command...` in a copy of the folder and return the copy; raise UsageError if that fails.

    `variant` names the copy that another command makes of the same folder.
    """
    program = shutil.which(tool)
    if program is None:
        raise UsageError(f"{tool} is not on PATH", where=str(sources), hint=f"install {tool}")
    files = sorted(path for path in sources.iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    path = cache_folder() / "builds" / f"{sources.name}{variant}-{digest}"
    if path.is_dir():
        return path
    print(f"Building {sources.name} with {tool}. This happens once and may take minutes.", file=sys.stderr)
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(place=cache_folder()) as name:
        finished = name / "made"
        shutil.copytree(sources, finished)
        try:
            subprocess.run(
                [program, *command], cwd=finished, check=True, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            last = (str(error.stderr or error).strip().splitlines() or [""])[-1]
            raise UsageError(
                f"{tool} {' '.join(command)}: {last}", where=str(sources), hint="check the network and the build tool"
            ) from error
        move_into_cache(finished, path)
    return path

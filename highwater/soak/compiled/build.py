"""Compile the modules of `modules.toml` into a folder of the cache that is named by the digest of all sources.

The folder is a complete copy of the package, with an extension module beside the source of each compiled module, which
Python prefers. The sources stay as they are, so that a digest of the code is the same there. Everything else happens in
a scratch folder: the sources are rewritten (`native_classes`), mypyc writes C, and the C compiler compiles that.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

import highwater
from highwater import conformance, fuzz, reference, reports, spec
from highwater.artefacts import cache_folder, move_into_cache
from highwater.errors import UsageError
from highwater.soak.compiled.generate import CONFIG
from highwater.soak.compiled.native_classes import rewritten
from highwater.temporary import temporary_folder

TABLE: Final = Path(__file__).with_name("modules.toml")
PARTS: Final = {"spec": spec, "reference": reference, "conformance": conformance, "fuzz": fuzz, "reports": reports}
NOT_COPIED: Final = ("__pycache__", *PARTS, "examples")
GENERATE: Final = ("-P", "-m", "highwater.soak.compiled.generate")
FLAGS: Final = ("-O2", "-fno-semantic-interposition", "-DNDEBUG", "-fwrapv", "-fPIC", "-Werror=int-conversion")
"""`int-conversion`: mypyc 2.4.1 can confuse a member of an IntEnum with an int. `-w` would hide that."""
BUILD_TIMEOUT_S: Final = 3_600
KEPT_DAYS: Final = 3
MYPY_CONFIG: Final = "[mypy]\npython_version = 3.11\nignore_missing_imports = True\nfollow_imports = silent\n"


class Extension(msgspec.Struct, frozen=True):
    """One shared object that mypyc describes; paths are relative to the scratch folder."""

    name: str
    sources: tuple[str, ...]
    include_dirs: tuple[str, ...]

    @property
    def output(self) -> str:
        return self.name.replace(".", "/") + str(sysconfig.get_config_var("EXT_SUFFIX"))


def compiled_modules() -> list[str]:
    """Return the names of the modules that the table lists as compiled, without the package `highwater`."""
    table = tomllib.loads(TABLE.read_text())["compiled"]
    return [f"{package}.{name}" for package, names in table.items() for name in names]


def compiled_tree() -> Path:
    """Return the folder with the compiled package, built on first use.

    Raises UsageError if mypyc or a C compiler is missing, or if one of them fails.
    """
    path = cache_folder() / "compiled" / _digest()
    if path.is_dir():
        return path
    compiler = _compiler()
    modules = compiled_modules()
    print(f"Compiling {len(modules)} modules. This happens once for each version, and takes minutes.", file=sys.stderr)
    path.parent.mkdir(parents=True, exist_ok=True)
    _forget_old(path.parent)
    with temporary_folder(place=cache_folder()) as name:
        tree, scratch = name / "tree", name / "scratch"
        copy_sources(tree)
        copy_sources(scratch)
        extensions = _generate(scratch, modules)
        _compile(scratch, compiler, extensions)
        for extension in extensions:
            shutil.copy2(scratch / extension.output, tree / extension.output)
        move_into_cache(tree, path)
    return path


def _forget_old(folder: Path) -> None:
    """Remove what older versions and interrupted runs left; another run may still use a newer one."""
    oldest = time.time() - KEPT_DAYS * 86_400
    for entry in folder.iterdir():
        if entry.stat().st_mtime < oldest:
            shutil.rmtree(entry, ignore_errors=True)


# -- sources -----------------------------------------------------------------------------------------


def _source_files() -> Iterator[tuple[str, Path]]:
    """Yield each file of the package with its path below the folder that has `highwater`."""
    folders = {"highwater": Path(highwater.__path__[0])}
    folders |= {f"highwater/{name}": Path(part.__path__[0]) for name, part in PARTS.items()}
    for prefix, folder in folders.items():
        for root, names, files in os.walk(folder):
            here = Path(root)
            skipped = NOT_COPIED if here == folder and prefix == "highwater" else NOT_COPIED[:1]
            names[:] = sorted(name for name in names if name not in skipped)
            for file in sorted(files):
                if not file.endswith((".pyc", ".so")):
                    yield f"{prefix}/{(here / file).relative_to(folder)}", here / file


def _digest() -> str:
    digest = sha256(f"{sys.version} {sysconfig.get_platform()} {FLAGS}".encode())
    if find_spec("mypyc"):
        digest.update(version("mypy").encode())
    for name, path in _source_files():
        if path.suffix in {".py", ".toml"}:
            digest.update(f"\0{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def copy_sources(target: Path) -> None:
    """Write a complete copy of the package into a folder, for PYTHONPATH."""
    for name, path in _source_files():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target / name)


# -- tools -------------------------------------------------------------------------------------------


def _compiler() -> list[str]:
    """Return the command of the C compiler; raise UsageError if it, mypyc or Python's headers are missing."""
    if find_spec("mypyc") is None:
        raise UsageError("mypyc is not installed", where=sys.executable, hint="pip install mypy, or make setup")
    command = shlex.split(os.environ.get("CC", "gcc"))
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]} is not on PATH", where="CC, PATH", hint="install gcc, or set CC")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        raise UsageError("the C headers of Python are missing", where=str(header), hint="install python3.11-dev")
    return command


def _generate(scratch: Path, modules: list[str]) -> list[Extension]:
    """Rewrite the modules, and return what mypyc makes of them."""
    (scratch / CONFIG).write_text(MYPY_CONFIG)
    paths = [f"highwater/{module.replace('.', '/')}.py" for module in modules]
    for path in paths:
        source = scratch / path
        source.write_text(rewritten(source.read_text()))
    printed = _run(sys.executable, *GENERATE, *paths, folder=scratch)
    return msgspec.json.decode(printed.splitlines()[-1], type=list[Extension])


def _compile(scratch: Path, compiler: list[str], extensions: list[Extension]) -> None:
    """Compile and link the C files, in as many processes as there are cores."""
    include = sysconfig.get_path("include")

    def compiled(source: str, include_dirs: tuple[str, ...]) -> str:
        made = f"{source}.o"
        folders = [f"-I{folder}" for folder in (*include_dirs, include)]
        _run(*compiler, *FLAGS, *folders, "-c", source, "-o", made, folder=scratch)
        return made

    def linked(extension: Extension, objects: list[str]) -> None:
        (scratch / extension.output).parent.mkdir(parents=True, exist_ok=True)
        _run(*compiler, "-shared", *objects, "-o", extension.output, folder=scratch)

    jobs = {source: each.include_dirs for each in extensions for source in each.sources}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = dict(zip(jobs, pool.map(compiled, jobs, jobs.values()), strict=True))
        list(pool.map(linked, extensions, [[objects[source] for source in each.sources] for each in extensions]))


def _run(*command: str, folder: Path) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{command[0]} did not finish within {BUILD_TIMEOUT_S} s", where=str(folder)) from error
    if done.returncode:
        errors = [line for line in (done.stdout + done.stderr).splitlines() if "error" in line.lower()]
        raise UsageError(
            f"{Path(command[0]).name} failed: {(errors or ['no message'])[0]}",
            where=str(TABLE),
            hint="a module that mypyc cannot compile belongs under [interpreted]",
        )
    return done.stdout

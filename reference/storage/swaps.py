"""How a cleaned segment takes the place of the old one, so that a crash leaves one or the other whole.

`<base>.log.cleaned` is written and fsynced, then renamed over `<base>.log`; the indexes are built anew.
"""

from reference.storage.filesystem import FileSystem

CLEANED = ".cleaned"


def recover_swaps(fs: FileSystem, folder: str) -> None:
    """A cleaned file that never took its place is worth nothing: the old one is whole."""
    for name in fs.names(folder):
        if name.endswith(CLEANED):
            fs.delete(f"{folder}/{name}")

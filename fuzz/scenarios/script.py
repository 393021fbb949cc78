"""A story's script: one command a line, `#` begins a comment; what is printed comes back with the commands between."""

from collections.abc import Callable, Mapping

Command = Callable[..., None]


def play(
    script: str, commands: Mapping[str, Command], say: Callable[[str], None], after_each: Callable[[], None]
) -> None:
    """Carry out the commands, each echoed first. KeyError names a verb that nobody knows."""
    for line in script.splitlines():
        text = line.split("#")[0].strip()
        if text:
            say(f"> {text}")
            verb, *words = text.split()
            commands[verb](*words)
            after_each()

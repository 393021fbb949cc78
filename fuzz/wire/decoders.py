"""Fuzz our decoders with atheris (libFuzzer): `python -m highwater.fuzz.wire.decoders [--seconds N] [--seed N]`.

Inputs grow along the branches of the readers of `highwater.reference.wire`. For any bytes a reader must return a
message or raise `DecodeError`, and agree with the construct description. Exit code 77 for anything else: libFuzzer
prints the stack, and the input is written to the results folder. Where atheris has no wheel (anything but Linux on
x86_64), the program prints so and ends.
"""

import random
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from highwater.results import new_folder

CASE_BYTES: Final = 2
"""Bytes before the body that select the message and its version."""
BODY_MAX: Final = 4_096
INPUT_S: Final = 10
RSS_MB: Final = 1_024
BATCH_SHARE: Final = 64
"""Selectors below this number select a record batch."""


def decoders(
    seconds: Annotated[int, typer.Option(min=1, help="How long.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of libFuzzer and of the initial corpus.")] = 1,
) -> None:
    """Fuzz our own decoders, guided by branch coverage."""
    if find_spec("atheris") is None:
        print("skipped: atheris is not installed. On Linux x86_64: pip install atheris==3.0.0")
        return
    import atheris

    with atheris.instrument_imports(include=["highwater.reference.wire"]):
        attempt = readers()
    folder = new_folder("decoders", seed=seed)
    corpus = folder / "corpus"
    corpus.mkdir()
    write_seed_inputs(corpus, random.Random(seed))
    limits = [f"-max_total_time={seconds}", f"-max_len={BODY_MAX}", f"-timeout={INPUT_S}", f"-rss_limit_mb={RSS_MB}"]
    where = [f"-artifact_prefix={folder}/", str(corpus)]
    atheris.Setup([sys.argv[0], f"-seed={seed}", "-print_final_stats=1", *limits, *where], attempt)
    atheris.Fuzz()


def cases() -> list[tuple[type[Any], int]]:
    """Return every request and response in every version."""
    from highwater.reference.wire.registry import APIS

    return [
        (message, version)
        for api in APIS.values()
        for version in range(api.min_version, api.max_version + 1)
        for message in (api.request, api.response)
    ]


def readers() -> Callable[[bytes], None]:
    """Return the function to fuzz; it raises AssertionError if decoder and description do not agree."""
    from highwater.reference.wire import constructs as described
    from highwater.reference.wire.codec import decode
    from highwater.reference.wire.errors import DecodeError
    from highwater.reference.wire.records import decode_records

    def outcome(read: Callable[..., Any], *arguments: Any) -> str:
        try:
            return repr(read(*arguments))
        except DecodeError:
            return "refused"

    known = cases()

    def attempt(data: bytes) -> None:
        number, body = int.from_bytes(data[:CASE_BYTES], "big"), bytes(data[CASE_BYTES:])
        if number < BATCH_SHARE:
            outcome(decode_records, body)
            return
        message, version = known[number % len(known)]
        fast, slow = outcome(decode, message, version, body), outcome(described.parse, message, version, body)
        assert fast == slow, f"{message.__name__} version {version}: {fast[:300]}; described: {slow[:300]}"

    return attempt


def write_seed_inputs(corpus: Path, rng: random.Random) -> None:
    """Write one valid request of every version, and some record batches, as initial corpus."""
    from highwater.fuzz.wire.generate.requests import generate, records
    from highwater.reference.wire.codec import encode
    from highwater.reference.wire.errors import EncodeError
    from highwater.reference.wire.registry import api_of

    known = cases()
    for number, (message, version) in enumerate(known):
        api = api_of(message)
        if message is not api.request:
            continue
        place = number if number >= BATCH_SHARE else number + len(known)
        try:
            body = encode(generate(rng, api, version), version)
        except EncodeError:
            continue  # a value that this version cannot carry
        (corpus / f"{message.__name__}-{version}").write_bytes(place.to_bytes(CASE_BYTES, "big") + body)
    for number in range(BATCH_SHARE):
        (corpus / f"batch-{number}").write_bytes(number.to_bytes(CASE_BYTES, "big") + records(rng))


if __name__ == "__main__":
    typer.run(decoders)

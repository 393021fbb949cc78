"""Read EDN as Clojure prints it: a stream of forms, with a fast path for plain lines.

A keyword becomes the string ":name", a symbol its name, a map a list that begins with `MAP`, a set a list that begins
with `SET`, and a vector or list a list. A plain line (no string, no character, no tag) is turned into
JSON by replacing bytes and decoded in C, many lines at once; any other line goes through a tokenizer.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.importers.sources import LINE_LIMIT, numbered_lines

MAP: Final = "{"
SET: Final = "#{"
BATCH: Final = 128  # lines decoded together
LONG: Final = 1 << 16  # a line of more bytes than this ends a batch
KEYWORDS: Final = 64  # keywords whose quoted form is cached
OP_TAG: Final = b"#jepsen.history.Op"

_decode_json = msgspec.json.Decoder().decode
_PUNCTUATION: Final = bytes.maketrans(b" \n()}", b",,[]]")
_ODD: Final = re.compile(rb'["\\#;]').search
_UNQUOTED: Final = re.compile(rb'(?<!"):[^,\[\]"]+[,\]]')
_TOKEN: Final = re.compile(
    r"""[\s,]*(?:
      (?P<open>\#?\{|[\[(])|(?P<close>[\])}])|(?P<string>"(?:[^"\\]|\\.)*")|(?P<skip>;[^\n]*|\#_|\#[A-Za-z][^\s,\[\](){}"]*)
      |(?P<number>[-+]?[0-9][^\s,\[\](){}";]*)|(?P<char>\\(?:[A-Za-z0-9]+|.))|(?P<name>[^\s,\[\](){}";\\]+))""",
    re.VERBOSE | re.DOTALL,
)
_WORDS: Final[dict[str, Any]] = {"nil": None, "true": True, "false": False}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_BRACKET: Final = re.compile(rb'[{}]|"(?:[^"\\]|\\.)*"|;[^\n]*|\\.|"', re.DOTALL)


class EdnError(ValueError):
    """The text is not an EDN form."""


DEPTH: Final = 200
"""Nested forms that are read: `repr` and the decoders are recursive, and histories need about five."""


def parse(text: str) -> Any:
    """Parse exactly one form of any kind. Raises EdnError."""
    stack: list[list[Any]] = [[]]
    closers = [""]
    position, end = 0, len(text)
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            if text[position:].strip(" \t\r\n,"):
                raise EdnError(f"column {position + 1}: cannot be read")
            break
        position = match.end()
        kind, token = match.lastgroup, match[match.lastgroup or 0]
        if kind == "open":
            if len(stack) > DEPTH:
                raise EdnError(f"column {position}: nested more than {DEPTH} deep")
            stack.append([token] if token in {MAP, SET} else [])
            closers.append({"[": "]", "(": ")"}.get(token, "}"))
        elif kind == "close":
            if token != closers.pop():
                raise EdnError(f"column {position}: {token} closes nothing")
            done = stack.pop()
            stack[-1].append(done)
        elif kind != "skip":
            stack[-1].append(_atom(kind, token))
        elif token == "#_":
            raise EdnError(f"column {position}: #_ is not read")
    if len(stack) != 1 or len(stack[0]) != 1:
        raise EdnError("a bracket is open at the end" if len(stack) > 1 else "expected one form")
    return stack[0][0]


def _atom(kind: str | None, token: str) -> Any:
    if kind == "name":
        return _WORDS.get(token, token)
    if kind == "string":
        return _ESCAPE.sub(_unescape, token[1:-1]) if "\\" in token else token[1:-1]
    if kind == "number":
        return _number(token)
    return token


def _unescape(match: "re.Match[str]") -> str:
    found = match[1]
    return chr(int(found[1:], 16)) if len(found) > 1 else _ESCAPES.get(found, found)


def _number(token: str) -> Any:
    try:
        return int(token.rstrip("N"))
    except ValueError:
        try:
            return float(token.rstrip("M"))
        except ValueError:
            if "/" in token:
                return token
            raise EdnError(f"{token[:40]} is no number") from None


def forms(where: str, quarantine: Quarantine) -> Iterator[Any]:
    """Yield every map of a file: one a line, within a vector, or over many lines; tags are skipped."""
    batch = Batch(quarantine)
    for line in _complete_forms(where, quarantine):
        batch.lines.append(line)
        batch.numbers.append(quarantine.line)
        if len(batch.lines) == BATCH or len(line) > LONG:
            yield from batch.flush()
    yield from batch.flush()


class Batch:
    """Lines to decode together. Files have few keywords, so each is quoted by one replacement."""

    def __init__(self, quarantine: Quarantine) -> None:
        self.lines: list[bytes] = []
        self.numbers: list[int] = []
        self._quarantine = quarantine
        self._quoted: dict[bytes, bytes] = {}

    def flush(self) -> Iterator[Any]:
        lines, numbers, here = self.lines, self.numbers, self._quarantine.line
        self.lines, self.numbers = [], []
        if _ODD(b"\n".join(lines)) is None:
            yield from self._plain(lines, numbers)
        else:
            numbered = zip(lines, numbers, strict=True)
            for odd, run in groupby(numbered, lambda numbered_line: _ODD(numbered_line[0]) is not None):
                some, their_numbers = zip(*run, strict=True)
                yield from self._one_by_one(some, their_numbers) if odd else self._plain(some, their_numbers)
        self._quarantine.line = here

    def _plain(self, lines: Sequence[bytes], numbers: Sequence[int]) -> Iterator[Any]:
        try:
            found = _decode_json(self._as_json(b"\n".join(lines)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = []
        if len(found) == len(lines):
            for self._quarantine.line, form in zip(numbers, found, strict=True):
                yield form
        else:
            yield from self._one_by_one(lines, numbers)

    def _one_by_one(self, lines: Sequence[bytes], numbers: Sequence[int]) -> Iterator[Any]:
        for self._quarantine.line, line in zip(numbers, lines, strict=True):
            try:
                form = parse(line.decode())
            except (EdnError, UnicodeDecodeError) as error:
                self._quarantine.add(f"no EDN: {error}", matters=b":process :nemesis" not in line)
            else:
                yield form

    def _as_json(self, text: bytes) -> bytes:
        """Convert lines to JSON: separators become commas, keywords strings, braces marked brackets."""
        text = text.replace(b", ", b" ").translate(_PUNCTUATION)
        text = text.replace(b"{", b'["{",').replace(b'["{",]', b'["{"]')
        if b"nil" in text:
            text = text.replace(b",nil", b",null").replace(b"[nil", b"[null")
        for keyword, quoted in self._quoted.items():
            text = text.replace(keyword, quoted)
        if text.count(b":") != text.count(b'":'):
            new = {keyword: b'"' + keyword[:-1] + b'"' + keyword[-1:] for keyword in _UNQUOTED.findall(text)}
            for keyword, quoted in new.items():
                text = text.replace(keyword, quoted)
            if len(self._quoted) < KEYWORDS:
                self._quoted |= new
        return b"[" + text + b"]"


def _complete_forms(where: str, quarantine: Quarantine) -> Iterator[bytes]:
    """Yield lines that hold one map each; forms over many lines are joined first.

    A line that starts with an operation in column 1 ends a form that was left open before it.
    """
    pending = Pending(quarantine)
    for line in numbered_lines(where, quarantine):
        text = line.strip().removeprefix(OP_TAG)
        if pending.buffer and (not pending.depth or line.startswith((b"{:", OP_TAG))):
            pending.abandon()
        if not pending.depth and _may_be_whole(text):
            yield text
        elif text:
            yield from pending.feed(line)
    pending.abandon()


def _may_be_whole(text: bytes) -> bool:
    braces = text[:1] == b"{" and text[-1:] == b"}" and text.count(b"{") == text.count(b"}")
    return braces and (b'"' not in text or not text.count(b'"') % 2)


class Pending:
    """Splits forms over many lines, or many forms on one line, where the outermost brace closes."""

    def __init__(self, quarantine: Quarantine) -> None:
        self.quarantine = quarantine
        self.buffer = b""
        self._line = 0
        self._start = self._scanned = self.depth = 0

    def abandon(self) -> None:
        """Quarantine an unfinished form; the brackets and white space of a vector are ignored."""
        if self.buffer.strip(b" \t\r\n,[]()"):
            self.quarantine.add("a form that does not end", line=self._line)
        self._cut(len(self.buffer))

    def feed(self, text: bytes) -> Iterator[bytes]:
        if not self.depth:
            self._line = self.quarantine.line
        self.buffer += text
        if len(self.buffer) > LINE_LIMIT:
            self.quarantine.add(f"a form longer than {LINE_LIMIT >> 20} MB", line=self._line)
            self._cut(len(self.buffer))
        used = 0
        for match in _BRACKET.finditer(self.buffer, self._scanned):
            token = match[0]
            if token == b'"':  # a string that continues on the next line
                break
            self._scanned = match.end()
            if token == b"{":
                self._start = self._start if self.depth else match.start()
                self.depth += 1
            elif token == b"}" and self.depth:
                self.depth -= 1
                if not self.depth:
                    used = match.end()
                    yield self.buffer[self._start : used]
        self._cut(used)

    def _cut(self, used: int) -> None:
        """Drop consumed text; other text between forms is reported by `abandon`."""
        self.buffer = self.buffer[used:]
        if used:
            self._scanned = max(0, self._scanned - used)
            self._start -= used
        if not self.buffer:
            self._start = self._scanned = self.depth = 0

"""A browser controlled over its debugging pipe: opens pages, presses keys, and reads what is shown."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-pipe",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
AS_3_AND_4 = """import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])"""  # where the browser's debugging pipe is
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here; Debian's package is `chromium`")


class Page:
    """One open page. Every call waits for the browser's answer; the pytest time-out is the limit."""

    def __init__(self, calls: IO[bytes], answers: IO[bytes]) -> None:
        self._calls, self._answers = calls, answers
        self._number, self._session, self._rest = 0, "", b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._calls.write(json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply
                result: dict[str, Any] = reply["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._answers.fileno(), 1 << 16)
            assert data, "the browser has gone"
            self._rest += data
        first, _, self._rest = self._rest.partition(b"\0")
        reply: dict[str, Any] = json.loads(first)
        return reply

    def open(self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.as_uri())
        while self.ask("document.readyState") != "complete" or self.ask("location.protocol") != "file:":
            pass

    def ask(self, expression: str) -> Any:
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    start = [sys.executable, "-c", AS_3_AND_4, str(their_in), str(their_out)]
    process = subprocess.Popen(
        [*start, BROWSER or "", *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(their_in, their_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(their_in)
    os.close(their_out)
    try:
        with os.fdopen(our_in, "rb") as answers, os.fdopen(our_out, "wb", 0) as calls:
            page = Page(calls, answers)
            yield page
            page.call("Browser.close")
    finally:
        process.terminate()
        process.wait()

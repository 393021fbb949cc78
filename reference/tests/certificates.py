"""Self-signed certificates for tests."""

import shutil
import subprocess
from pathlib import Path

import pytest


def self_signed(folder: Path) -> Path:
    """Return a certificate for 127.0.0.1 with its key in one file; skips the test if openssl is missing."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not on PATH")
    path = folder / "broker.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(path), "-out", f"{path}.crt", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path

"""A console as people start it: `fedforget serve` as a process, on a port of its own."""

from __future__ import annotations

import ipaddress
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass
class RunningConsole:
    process: subprocess.Popen[str]
    said: list[str]

    @property
    def url(self) -> str:
        return self._find(r"The console is at (\S+)")

    @property
    def admin_link(self) -> str:
        return self._find(r"(http\S+/link/\S+)")

    def _find(self, pattern: str, patience: float = 60.0) -> str:
        until = time.monotonic() + patience
        while time.monotonic() < until:
            found = re.search(pattern, "".join(self.said))
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError("the console did not say it: " + "".join(self.said))


@contextmanager
def running_console(home: Path, *options: str) -> Iterator[RunningConsole]:
    """Started, and stopped as Ctrl-C would."""
    code = "from fedforget.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--home", str(home), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said: list[str] = []

    def listen() -> None:
        assert process.stdout is not None
        said.extend(iter(process.stdout.readline, ""))

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield RunningConsole(process, said)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
        thread.join(10)


def own_certificate(folder: Path) -> tuple[Path, Path]:
    """For 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return files

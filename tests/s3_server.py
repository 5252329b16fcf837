"""moto's S3 server on this machine, for tests by the real protocol, and s3fs as its client."""

import socket
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Server:
    """An S3 server that can be taken away and brought back; its buckets are empty then."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, "the server did not start"
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask_who_calls(self, wanted: bool) -> None:
        """Whether requests of somebody unknown are refused from now on."""
        url = f"http://127.0.0.1:{self.port}/moto-api/reset-auth"
        allowed = b"0" if wanted else b"1000000000"
        urllib.request.urlopen(urllib.request.Request(url, allowed, {"Content-Type": "text/plain"})).close()


@contextmanager
def bucket(server: Server, name: str) -> Iterator[Any]:
    """A bucket, as s3fs sees it, with credentials in the environment as usual."""
    import s3fs

    with pytest.MonkeyPatch.context() as patch:
        for variable, value in {
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "very-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
            "AWS_MAX_ATTEMPTS": "1",
        }.items():
            patch.setenv(variable, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            s3fs.S3FileSystem.clear_instance_cache()
            found = s3fs.S3FileSystem()
            if not found.exists(name):
                found.mkdir(name)
        yield found
        s3fs.S3FileSystem.clear_instance_cache()

"""Several machines, as far as a kernel can pretend: network namespaces behind a bridge, each with a disk of its own."""

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENT = 120.0  # seconds that a busy machine may take to start a process
NETWORK = "10.77.0"


def unavailable() -> str | None:
    """Why no namespaces can be made here, if that is so."""
    if os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces are made by root"
    if shutil.which("ip") is None:
        return "there is no ip command (iproute2)"
    name = f"svm-{secrets.token_hex(4)}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    entered = subprocess.run(["ip", "netns", "exec", name, "true"], capture_output=True, text=True)
    wired = subprocess.run(["ip", "-n", name, "link", "add", "br0", "type", "bridge"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    failed = next((one for one in (made, entered, wired) if one.returncode), None)
    return f"no network namespaces here: {failed.stderr.strip()}" if failed else None


class Hosts:
    """Machines 10.77.0.1, 10.77.0.2, ... that reach each other and nothing else; the first one is the switch, too.

    Each works in a folder of its own, and sees nothing in the folders of the others.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._prefix = f"svm-{secrets.token_hex(3)}"
        self._processes: list[subprocess.Popen[Any]] = []
        self.names = list(names)
        self.address = {name: f"{NETWORK}.{number}" for number, name in enumerate(names, 1)}
        switch = self._space(self.names[0])
        for name in names:
            self.folder(name).mkdir(parents=True)
            _ip("netns", "add", self._space(name))
            _ip("-n", self._space(name), "link", "set", "lo", "up")
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "addr", "add", f"{self.address[self.names[0]]}/24", "dev", "br0")
        _ip("-n", switch, "link", "set", "br0", "up")
        for number, name in enumerate(self.names[1:], 2):
            space, port = self._space(name), f"port{number}"
            _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", switch, "link", "set", port, "master", "br0", "up")
            _ip("-n", space, "addr", "add", f"{self.address[name]}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")

    def _space(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def folder(self, name: str) -> Path:
        return self._folder / name

    def cable(self, name: str, *, plugged: bool) -> list[str]:
        """The command that pulls a machine's cable, or puts it in again."""
        return ["ip", "-n", self._space(name), "link", "set", "eth0", "up" if plugged else "down"]

    def out_of_reach(self, name: str, other: str) -> None:
        """From now on one machine cannot reach another."""
        _ip("-n", self._space(name), "route", "add", "unreachable", self.address[other])

    def start(
        self, name: str, *command: str, env: Mapping[str, str] = {}, log: str | None = None
    ) -> subprocess.Popen[str]:
        """Run a command on a machine, in its folder; what it says is in a file there, or can be read here."""
        hide = "; ".join(f'mount -t tmpfs none "{self.folder(other)}"' for other in self.names if other != name)
        run = ["ip", "netns", "exec", self._space(name), "sh", "-c", f'set -e; {hide}; exec "$@"', "sh", *command]
        out: Any = open(self.folder(name) / log, "a") if log else subprocess.PIPE  # noqa: SIM115
        try:
            process = subprocess.Popen(
                run,
                cwd=self.folder(name),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                text=True,
                start_new_session=True,
            )
        finally:
            if log:
                out.close()
        self._processes.append(process)
        return process

    def run(self, name: str, *command: str, env: Mapping[str, str] = {}) -> tuple[int, str, str]:
        process = self.start(name, *command, env=env)
        try:
            out, err = process.communicate(timeout=PATIENT)
        except subprocess.TimeoutExpired:
            end(process)
            out, err = process.communicate()
            raise AssertionError(f"{' '.join(command)} did not end: {out}{err}") from None
        return process.returncode, out, err

    def listens(self, name: str, port: int) -> bool:
        found = subprocess.run(
            ["ip", "netns", "exec", self._space(name), "cat", "/proc/net/tcp", "/proc/net/tcp6"],
            capture_output=True,
            text=True,
        )
        return any(
            line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
            for line in found.stdout.splitlines()
            if ":" in line
        )

    def wait_for(self, name: str, port: int) -> None:
        until = time.monotonic() + PATIENT
        while not self.listens(name, port):
            assert time.monotonic() < until, f"nobody listens at port {port} of {name}"
            time.sleep(0.1)

    def close(self) -> None:
        for process in self._processes:
            end(process)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        for name in reversed(self.names):
            subprocess.run(["ip", "netns", "del", self._space(name)], capture_output=True)


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process, and all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)

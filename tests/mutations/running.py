"""The collecting run, and one mutation after the other on several copies at once.

Two copies with one process each are quicker than one copy with two workers: most mutations are noticed by one of the
first tests, and what takes time is to start pytest and to compile kernels.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mutations import hook, recording_site
from mutations.choosing import Choice, Chooser
from mutations.reach import Reach
from mutations.sources import Mutation
from mutations.trees import Tree

PYTEST = (sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider")
PATIENCE = 60.0  # seconds that a test may take more than five times what it took before
COMPILING = 90.0  # and so many more where kernels must be compiled
START = 120.0  # seconds to start pytest and to import tests
NOTICED, SURVIVED, TIMEOUT, UNTESTED, BROKEN = "noticed", "SURVIVED", "noticed (timeout)", "NO TESTS", "NOT RUN"


class Outcome(NamedTuple):
    mutation: Mutation
    result: str
    by: str  # the test that noticed it, or a remark
    seconds: float
    tests: int  # that were run
    chosen: int

    @property
    def noticed(self) -> bool:
        return self.result in (NOTICED, TIMEOUT)


def collect(tree: Tree, into: Path, paths: list[str], workers: int) -> int:
    """Run tests with the recorder; what it finds is in the directory `into`. Returns pytest's exit code."""
    site = recording_site.write(into)
    environment = tree.environment(
        **{hook.ROOT: str(tree.root), hook.INTO: str(into), "PYTHONPYCACHEPREFIX": str(into.parent / "pycache")}
    )
    environment["PYTHONPATH"] = os.pathsep.join([str(site), environment["PYTHONPATH"]])
    whole = ["--all"] if has_tiers(tree) else []
    command = [*PYTEST, "-p", "mutations.recording", "-n", str(workers), *whole, *paths]
    return subprocess.run(command, cwd=tree.root, env=environment, check=False).returncode


def has_tiers(tree: Tree) -> bool:
    """Whether tests are in two tiers, of which plain pytest runs one."""
    told = subprocess.run(
        [*PYTEST, "-n", "0", "--help"], cwd=tree.root, env=tree.environment(), capture_output=True, text=True
    )
    return "--all " in told.stdout


class Runner:
    """Runs the tests that were chosen for a mutation."""

    def __init__(self, chooser: Chooser, reach: Reach, seconds: float, *, tiers: bool) -> None:
        self._chooser = chooser
        self._reach = reach
        self._seconds = seconds
        self._tiers = tiers

    def run_all(self, mutations: list[Mutation], trees: list[Tree], tell: Callable[[Outcome], None]) -> list[Outcome]:
        """Each tree takes the next mutation when it is done with one; outcomes in the order of the catalogue."""
        todo: queue.SimpleQueue[Mutation] = queue.SimpleQueue()
        for mutation in mutations:
            todo.put(mutation)
        found: dict[Mutation, Outcome] = {}
        lock = threading.Lock()
        stop = threading.Event()

        def work(tree: Tree) -> None:
            while not stop.is_set():
                try:
                    mutation = todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    outcome = self.run(mutation, tree, stop)
                except Exception as error:
                    outcome = Outcome(mutation, BROKEN, f"{type(error).__name__}: {error}", 0.0, 0, 0)
                with lock:
                    if not stop.is_set():
                        found[mutation] = outcome
                        tell(outcome)

        crew = [threading.Thread(target=work, args=(tree,)) for tree in trees]
        for thread in crew:
            thread.start()
        try:
            for thread in crew:
                thread.join()
        except KeyboardInterrupt:
            stop.set()
            for thread in crew:
                thread.join()
        return [found[mutation] for mutation in mutations if mutation in found]

    def run(self, mutation: Mutation, tree: Tree, stop: threading.Event) -> Outcome:
        begun = time.monotonic()
        function, text = self._reach.sources.mutated(mutation)
        choice = self._chooser.choose(function)
        chosen = len(choice.tests) + len(choice.files)
        if not chosen:
            return Outcome(mutation, UNTESTED, choice.remark, 0.0, 0, 0)
        patience = PATIENCE + (COMPILING if self._reach.baked_in(function) else 0.0)
        fault = tree.put(function, text, self._reach)
        try:
            with tempfile.TemporaryDirectory(prefix="mutations-") as place:
                result, by, tests = self._tests(tree, choice, Path(place), patience, stop)
        finally:
            fault.remove()
        remark = "; ".join(filter(None, [by, choice.remark]))
        return Outcome(mutation, result, remark, time.monotonic() - begun, tests, chosen)

    def _tests(
        self, tree: Tree, choice: Choice, place: Path, patience: float, stop: threading.Event
    ) -> tuple[str, str, int]:
        """The result, by which test, and how many were run."""
        report, plan, output = place / "report", place / "plan.json", place / "output"
        expected = {name: self._chooser.seconds(name) for name in choice.tests}
        told = {"tests": choice.tests, "files": choice.files, "expected": expected}
        plan.write_text(json.dumps({**told, "seconds": self._seconds, "report": str(report)}), encoding="utf-8")
        report.touch()
        files = list(dict.fromkeys([*(name.partition("::")[0] for name in choice.tests), *choice.files]))
        whole = ["--all"] if self._tiers else []
        command = [*PYTEST, "-p", "mutations.ordering", "-x", "-n", "0", "--tb=line", *whole, *files]
        environment = tree.environment(MUTATIONS_PLAN=str(plan))
        with open(output, "wb") as out:
            process = subprocess.Popen(
                command, cwd=tree.root, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
            hung = self._wait(process, report, expected, patience, stop)
        lines = report.read_text(encoding="utf-8").splitlines()
        started = [line.partition(" ")[2] for line in lines if line.startswith("start ")]
        failed = [line.partition(" ")[2] for line in lines if line.startswith("fail ")]
        left = [int(line.partition(" ")[2]) for line in lines if line.startswith("left ")]
        if failed:
            return NOTICED, failed[0], len(started)
        if hung:
            return TIMEOUT, started[-1] if started else "when tests are imported", len(started)
        if process.returncode not in (0, 5):  # it did not even come to a test, or died in one
            last = output.read_bytes().decode(errors="replace").strip().splitlines()[-1:]
            where = started[-1] if started else "when tests are imported"
            return NOTICED, f"{where} (pytest ended with {process.returncode}: {' '.join(last)[:100]})", len(started)
        if not started:
            return UNTESTED, "none of the recorded tests is there any more", 0
        return SURVIVED, f"no time for {left[0]} more tests" if left and left[0] else "", len(started)

    def _wait(
        self, process: "subprocess.Popen[bytes]", report: Path, expected: dict[str, float], patience: float,
        stop: threading.Event,
    ) -> bool:  # fmt: skip
        """Wait for pytest to end; True if a test took so long that it was killed."""
        size, since, limit = 0, time.monotonic(), START
        while process.poll() is None:
            time.sleep(0.1)
            now = report.stat().st_size
            if now != size:
                size, since = now, time.monotonic()
                last = report.read_text(encoding="utf-8").splitlines()[-1].partition(" ")[2]
                limit = patience + 5.0 * expected.get(last, 12.0)
            if stop.is_set() or time.monotonic() - since > limit:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return not stop.is_set()
        _kill_rest(process.pid)
        return False


def _kill_rest(group: int) -> None:
    """Processes that a test has left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)

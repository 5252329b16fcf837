"""A cluster of several machines: network namespaces, each with a disk of its own, and a bucket that all of them reach.

The command is given on one machine, the scheduler runs on another, workers on three more. A cable is pulled, a worker
killed, the scheduler killed: the run ends with the same bits, or goes on later from a checkpoint in the bucket.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hosts
import pytest
from hosts import Hosts, end
from whole_runs import lines

pytest.importorskip("distributed")
pytest.importorskip("moto", reason="moto's S3 server is not installed")
pytest.importorskip("s3fs", reason="s3fs is not installed")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(hosts.unavailable() is not None, reason=hosts.unavailable() or ""),
]

PYTHON = sys.executable
ROWS = 300
SECRET = "very-secret-indeed"
WORKERS = {  # with and without a nanny, one thread or two
    "one": ("--nthreads", "1"),
    "two": ("--nthreads", "1", "--no-nanny"),
    "three": ("--nthreads", "2", "--no-nanny"),
}
AT = "tcp://10.77.0.2:8786"
DATA = "s3://data/rows.svm"
RUN = {
    "data.train": DATA,
    "output.model": None,
    "penalty.l2": 1e-2,
    "cluster.at": AT,
    "cluster.shards": 3,
    "storage_options.s3": {
        "key": "${BUCKET_KEY}",
        "secret": "${BUCKET_SECRET}",
        "endpoint_url": "http://10.77.0.1:5000",
    },
}
DCD = RUN | {"solver": "dcd", "loss": "hinge", "solver.tol": 5e-2, "cluster.storage": "s3://data/run"}
NEWTON = RUN | {"solver": "newton", "solver.tol": 1e-2}
ASGD = RUN | {"solver": "asgd", "solver.passes": 2}


class Site(Hosts):
    """The machines, and what runs on them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ["store", "scheduler", *WORKERS, "driver"])
        kept = ("PATH", "HOME", "PYTHONPATH", "STREAMSVM_CACHE_DIR", "LANG")
        self.env = {name: os.environ[name] for name in kept if name in os.environ}
        self.env |= {"BUCKET_KEY": "somebody", "BUCKET_SECRET": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
        self.env |= {"NUMBA_DISABLE_JIT": "1"}  # few rows: plain Python is quicker than to load kernels everywhere
        self.env |= {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "11s"}  # the least; how long nobody misses a pulled cable
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def open(self) -> None:
        self.start("store", PYTHON, "-m", "moto.server", "-H", "10.77.0.1", "-p", "5000", env=self.env, log="log")
        self.start_scheduler()
        for name in WORKERS:
            self.start_worker(name)
            self.out_of_reach("driver", name)  # the driver needs to reach the scheduler alone
        self.wait_for("store", 5000)
        self.wait_for("scheduler", 8786)

    def start_scheduler(self) -> None:
        command = ("-m", "distributed.cli.dask_scheduler", "--host", self.address["scheduler"], "--port", "8786")
        self.processes["scheduler"] = self.start(
            "scheduler", PYTHON, *command, "--no-dashboard", env=self.env, log="log"
        )

    def start_worker(self, name: str) -> None:
        own = ("--local-directory", str(self.folder(name) / "scratch"), *WORKERS[name])
        command = ("-m", "distributed.cli.dask_worker", AT, "--no-dashboard", *own)
        self.processes[name] = self.start(name, PYTHON, *command, env=self.env, log="log")

    def killed(self, name: str) -> list[str]:
        """The command that kills what runs on a machine."""
        return [PYTHON, "-c", f"import os; os.killpg({self.processes[name].pid}, 9)"]

    def made(self, *runs: tuple[dict[str, Any], list[list[str]]], patience: float = 60.0) -> list[dict[str, Any]]:
        """What comes of runs for which the command is given on the machine of that name."""
        script = str(Path(__file__).parent / "hosts_driver.py")
        code, out, err = self.run("driver", PYTHON, script, str(patience), json.dumps(runs), env=self.env)
        assert code == 0, err
        assert SECRET not in out + err
        return [json.loads(line) for line in out.splitlines()]

    def streamsvm(self, *words: str) -> tuple[int, str, str]:
        options = [f"storage_options.s3.{name}={value}" for name, value in RUN["storage_options.s3"].items()]
        sets = [word for option in options for word in ("--set", option)]
        code, out, err = self.run("driver", PYTHON, "-m", "streamsvm", *words, *sets, env=self.env)
        assert SECRET not in out + err
        return code, out, err

    def in_bucket(self, text: str) -> str:
        """What a few lines of Python say that have the bucket's file system as `files`."""
        setup = (
            "import os, s3fs; files = s3fs.S3FileSystem(key=os.environ['BUCKET_KEY'], "
            "secret=os.environ['BUCKET_SECRET'], endpoint_url='http://10.77.0.1:5000'); "
        )
        code, out, err = self.run("store", PYTHON, "-c", setup + text, env=self.env)
        assert code == 0, err
        return out

    def logs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self._folder.glob("*/log"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    try:
        made.open()
        text = "\n".join(lines(ROWS, features=40)) + "\n"
        (made.folder("driver") / "rows.svm").write_text(text)
        (made.folder("store") / "rows.svm").write_text(text)
        made.in_bucket("files.mkdir('data'); files.put('rows.svm', 'data/rows.svm')")
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def unbroken(site: Site) -> dict[str, str]:
    """The bits that each solver learns while nothing happens."""
    dcd, newton, asgd = site.made((DCD, []), (NEWTON, []), (ASGD, []))
    assert dcd["gap"] <= 5e-2 and newton["gap"] <= 1e-2
    assert site.in_bucket("print(files.find('data'))").strip() == "['data/rows.svm']"  # no dual variable is left
    return {"dcd": dcd["bits"], "newton": newton["bits"], "asgd": asgd["bits"]}


def test_commands(site: Site) -> None:
    at = ("--cluster", AT)
    model = site.folder("driver") / "model.safetensors"
    code, _, err = site.streamsvm("train", DATA, "--l2", "0.01", "--passes", "1", *at, "-o", model.name)
    assert code == 0 and "on 3 workers with 4 threads" in err, err
    assert SECRET.encode() not in model.read_bytes()
    code, there, err = site.streamsvm("evaluate", model.name, DATA, *at, "--json")
    assert code == 0, err
    assert json.loads(there)["examples"] == ROWS
    assert site.streamsvm("evaluate", model.name, "rows.svm", "--json")[1] == there  # to the last bit
    code, _, err = site.streamsvm("predict", model.name, DATA, *at, "-o", "s3://data/out/part-*.txt")
    assert code == 0 and f"{ROWS} rows in 4 parts, up to s3://data/out/part-00003.txt" in err, err
    parts = site.in_bucket("print(b''.join(files.cat_file(one) for one in sorted(files.find('data/out'))).decode())")
    here = site.streamsvm("predict", model.name, "rows.svm")[1]
    assert parts.strip() == here.strip() and len(here.splitlines()) == ROWS
    site.in_bucket("files.rm('data/out', recursive=True)")


def test_places_that_machines_do_not_share(site: Site) -> None:
    at = ("--cluster", AT)
    code, _, err = site.streamsvm("train", "rows.svm", "--solver", "newton", "--C", "1", *at, "-q")
    assert code == 3 and "rows.svm: cannot open: No such file" in err and "(on worker tcp://10.77.0." in err
    assert "a shared file system, or a bucket" in err and len(err.strip().splitlines()) == 1
    code, _, err = site.streamsvm("train", DATA, "--solver", "dcd", "--C", "1", *at, "-q", "--set", "cluster.storage=x")
    assert code == 3 and "not seen here: cluster.storage must be" in err


def test_a_cable_that_is_pulled_and_a_worker_that_is_killed(site: Site, unbroken: dict[str, str]) -> None:
    pulled, killed = [site.cable("one", plugged=False)], [site.killed("two")]
    cut, less, least = site.made((DCD, pulled), (NEWTON, killed), (ASGD, []))
    assert cut["bits"] == unbroken["dcd"] and any("of which 2 are left" in note for note in cut["notes"])
    assert less["bits"] == unbroken["newton"] and any("of which 1 is left" in note for note in less["notes"])
    assert least["bits"] == unbroken["asgd"]
    subprocess.run(site.cable("one", plugged=True), check=True)


def test_a_scheduler_that_is_killed_and_a_checkpoint_in_the_bucket(site: Site, unbroken: dict[str, str]) -> None:
    kept = DCD | {"checkpoint.dir": "s3://data/kept"}
    (lost,) = site.made((kept, [site.killed("scheduler")]), patience=3.0)
    assert AT in lost["lost"] and "does not answer any more" in lost["lost"]
    names = site.in_bucket("print(files.find('data/kept'), files.find('data/run'))")
    assert "data/kept/checkpoint-" in names and ".dual" in names
    for name in WORKERS:
        end(site.processes[name])
    site.start_scheduler()
    site.start_worker("three")
    site.wait_for("scheduler", 8786)
    (found,) = site.made((kept | {"checkpoint.resume": True}, []))
    assert any(note.startswith("going on from") for note in found["notes"])
    assert found["bits"] == unbroken["dcd"]
    assert SECRET not in site.logs()
    assert site.in_bucket(f"print(any(b'{SECRET}' in files.cat_file(one) for one in files.find('data')))") == "False\n"

"""Kernels: compiled once for all processes, or in memory, or not at all, with the same result."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from libsvm_twin import twin

from streamsvm import jit
from streamsvm.batch import Batch

TESTS = str(Path(__file__).parent)
TEXT = (
    b"+1 1:0.5 3:1e-3 17:0.1234567890123\r\n# comment\n-1 9:2 2:4 2:0.25 9:1\n1\nbad 1:1\n1 1:spam\n"
    b"0 qid:4 123456789:0.1234567890123456789\t5:-7 # 6:1\n1 18446744073709551615:1\n1 1:99999999999999999999e-5\n"
    b"1 1:16777217.00000000000000000000001 2:1.100000083446502574524572537484345957636833190917968749 3:1e39\n"
    b"1 1:16777217.00000000000000000000001 2:1.100000083446502574524572537484345957636833190917968749 3:4.35\n"
)

WORK = """
import json, sys
from streamsvm import jit, passes, shuffle
from streamsvm.io import libsvm
from libsvm_twin import parsed, rows_of
from streamsvm.shuffle import ShuffleBuffer, random_order, taken

text = bytes.fromhex(sys.argv[1])
result = parsed(text)
batch = result.batch
mixed = list(ShuffleBuffer(2, 1).shuffled(b for b in [batch, batch]))
rows = rows_of(batch, *mixed, taken(batch, random_order(batch.rows, 3)))
passes.touch(batch.indices, batch.values)
kernels = [libsvm.parse_rows, shuffle.permute, shuffle.copy_rows, shuffle.replace_rows, passes.touch]
counts = None if jit.DISABLED else [
    [sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values())] for kernel in kernels
]
print(json.dumps([[[part.hex() for part in row] for row in rows], [f.message for f in result.faults], counts]))
"""


def run(script: str, *arguments: str, **environment: str) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([TESTS, *sys.path]), **environment}
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    return done.stdout


@pytest.mark.full
@pytest.mark.skipif(jit.CACHE is None, reason="no directory for a cache")
def test_another_process_compiles_nothing():
    run(WORK, TEXT.hex())
    rows, _, counts = json.loads(run(WORK, TEXT.hex()))
    assert [misses for _, misses in counts] == [0] * 5 and all(hits >= 1 for hits, _ in counts)
    assert len(rows) > 10


def test_plain_python_gives_the_same():
    """The same sources without numba: a second oracle, and no warning although whole numbers wrap around."""
    compiled = json.loads(run(WORK, TEXT.hex()))[:2]
    plain = json.loads(run(WORK, TEXT.hex(), NUMBA_DISABLE_JIT="1"))[:2]
    assert plain == compiled
    rows, bad = twin(TEXT)
    assert len(rows) >= 4 and len(bad) >= 4
    assert plain[0][: len(rows)] == [[part.hex() for part in row] for row in rows] and len(plain[1]) == len(bad)


IN_MEMORY = """
import numpy as np
from streamsvm import jit
from streamsvm.shuffle import permute
order = np.arange(5)
permute(order, np.array([1], np.uint64))
print(jit.CACHE, jit.compiled_before(), sorted(order.tolist()))
"""


def test_no_directory_for_a_cache():
    assert run(IN_MEMORY, STREAMSVM_CACHE_DIR="/dev/null/none") == "None False [0, 1, 2, 3, 4]\n"


def test_a_directory_of_someone_else(tmp_path):
    """Its files are pickles, so they are not even looked at."""
    if os.getuid() != 0:
        pytest.skip("only root can give a directory away")
    theirs = tmp_path / "kernels"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    assert run(IN_MEMORY, STREAMSVM_CACHE_DIR=str(tmp_path)).startswith("None False")
    assert os.listdir(theirs) == []


def test_no_home_directory(monkeypatch):
    def lost():
        raise RuntimeError("no home")

    monkeypatch.setattr(jit, "user_cache_directory", lost)
    assert jit._prepare_cache() is None


def test_the_cache_is_private_and_old_ones_go(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMSVM_CACHE_DIR", str(tmp_path))
    for name, days in (("old", 31), ("recent", 29)):
        (tmp_path / "kernels" / name).mkdir(parents=True)
        os.utime(tmp_path / "kernels" / name, (time.time() - days * 86400,) * 2)
    chosen = jit._prepare_cache()
    assert chosen == tmp_path / "kernels" / jit.sources_hash()
    assert sorted(os.listdir(tmp_path / "kernels")) == sorted(["recent", jit.sources_hash()])
    assert [stat.S_IMODE(path.stat().st_mode) for path in (chosen, chosen.parent)] == [0o700, 0o700]
    os.utime(chosen, (0, 0))
    assert jit._prepare_cache() == chosen and chosen.stat().st_mtime > time.time() - 60


def test_other_sources_have_another_cache(tmp_path, monkeypatch):
    """An edit anywhere, a new file or another name: numba itself would only notice the first in the same file."""
    package = tmp_path / "streamsvm"
    shutil.copytree(Path(jit.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    first = jit.sources_hash()
    monkeypatch.setattr(jit, "__file__", str(package / "jit.py"))
    assert jit.sources_hash() == first
    (package / "io" / "new.py").write_text("")
    second = jit.sources_hash()
    (package / "io" / "new.py").rename(package / "io" / "newer.py")
    third = jit.sources_hash()
    (package / "losses.py").write_text((package / "losses.py").read_text() + "#")
    assert len({first, second, third, jit.sources_hash()}) == 4


def some_rows() -> Batch:
    ends, numbers = np.array([0, 1, 2]), np.ones(2, np.float32)
    return Batch(ends, np.arange(2, dtype=np.uint32), numbers, numbers.copy(), numbers.copy())


@pytest.mark.skipif(jit.DISABLED, reason="nothing is compiled")
def test_mapped_rows_need_no_kernel_of_their_own():
    @jit.cold
    def total(batch):
        return batch.values.sum()

    rows = some_rows()
    for names in ([], ["values"], ["indices", "values", "weights"], Batch._fields):
        mapped = rows._replace(**{name: getattr(rows, name).view() for name in names})
        for name in names:
            getattr(mapped, name).setflags(write=False)
        assert total(mapped) == 2.0
    assert len(total.signatures) == 1


@pytest.mark.skipif(jit.DISABLED, reason="nothing is compiled")
def test_no_kernel_writes_to_a_batch():
    @jit.cold
    def scale(batch):
        batch.values[0] = 2.0

    with pytest.raises(Exception, match="[Cc]annot modify readonly array"):
        scale(some_rows())

"""A run is killed with SIGKILL, again and again, and goes on each time. Its model is that of a run left in peace.

python examples/kill_and_resume.py
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

DATA = Path(__file__).parent / "data/a9a.train.svm.gz"
COMMAND = [sys.executable, "-c", "from streamsvm.cli import main; main()", "train", str(DATA), "--passes", "500", "-q"]


def checkpoints(place: Path) -> set[str]:
    return {path.name for path in place.glob("checkpoint-*")}


with tempfile.TemporaryDirectory() as directory:
    work = Path(directory)
    peace, killed, kept = work / "peace.safetensors", work / "killed.safetensors", work / "checkpoints"
    output = ["-o", "model.safetensors"]  # the same name for both: a model file also says how it was made
    subprocess.run([*COMMAND, *output], cwd=work, stdout=subprocess.DEVNULL, check=True)
    (work / "model.safetensors").rename(peace)

    resumable = [*COMMAND, *output, "--checkpoint", str(kept), "--every", "100ms", "--resume"]
    for _ in range(3):
        before = checkpoints(kept)
        run = subprocess.Popen(resumable, cwd=work, stdout=subprocess.DEVNULL)
        while run.poll() is None and not checkpoints(kept) - before:
            time.sleep(0.01)
        time.sleep(0.3)  # let it learn a little more, some of which is lost with the kill
        run.kill()
        run.wait()
        shown = subprocess.run(
            [sys.executable, "-c", "from streamsvm.cli import main; main()", "inspect", str(kept), "--top", "0"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        print("killed; " + next(line for line in shown.stdout.splitlines() if line.startswith("stands")))
    subprocess.run(resumable, cwd=work, stdout=subprocess.DEVNULL, check=True)
    (work / "model.safetensors").rename(killed)

    print("identical, bit for bit:", peace.read_bytes() == killed.read_bytes())

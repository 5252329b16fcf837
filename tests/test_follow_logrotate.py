"""The real logrotate, with the stanza that is shipped and with others that people have."""

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from followed import Reader, append

LOGROTATE = shutil.which("logrotate") or shutil.which("/usr/sbin/logrotate")
DEPLOY = Path(__file__).parents[1] / "examples/deploy"
pytestmark = pytest.mark.skipif(LOGROTATE is None, reason="logrotate is not installed")


def shipped() -> str:
    """The stanza of the examples, without the service that is not here."""
    text = (DEPLOY / "logrotate.conf").read_text()
    body = text[text.index("{") + 1 : text.rindex("}")]
    return re.sub(r"postrotate.*endscript", "", body, flags=re.DOTALL)


STANZAS = {
    "shipped": shipped(),
    "created": "rotate 3\ncreate",
    "dated": "rotate 9\ndateext\ndateformat -%Y%m%d-%s\ncreate",
    "dated before the ending": "rotate 9\ndateext\nextension .log\ndateformat -%s\ncreate",
    "compressed at once": "rotate 3\ncreate\ncompress",
    "copied": "rotate 3\ncopytruncate",
    "copied and compressed": "rotate 3\ncopytruncate\ncompress\ndelaycompress",
}


class Rotation:
    def __init__(self, place: Path, stanza: str) -> None:
        self.log = place / "clicks.log"
        self._conf, self._state = place / "rotate.conf", place / "rotate.state"
        self._conf.write_text(f"{self.log} {{\nsu root root\n{stanza}\n}}\n")
        self._conf.chmod(0o600)
        self.dated = "%s" in stanza

    def now(self) -> None:
        assert LOGROTATE is not None
        command = [LOGROTATE, "--force", "--state", str(self._state), str(self._conf)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.fixture(params=STANZAS)
def rotation(request: pytest.FixtureRequest, tmp_path: Path) -> Rotation:
    made = Rotation(tmp_path, STANZAS[request.param])
    try:
        append(made.log, "probe\n")
        made.now()
    except AssertionError as error:
        pytest.skip(f"logrotate cannot rotate here: {error}")
    for path in tmp_path.glob("clicks*"):
        path.unlink()
    return made


@pytest.mark.parametrize("compressed", [False, True])
def test_while_it_follows(rotation: Rotation, compressed: bool) -> None:
    reader = Reader(rotation.log, compressed=compressed)
    expected = []
    for number in range(4):
        for part in "abc":
            append(rotation.log, f"{number}{part}\n")
            expected.append(f"{number}{part}")
            reader.now += 0.25
            reader.round()
        rest = f"{number} not read before the rotation"
        append(rotation.log, f"{rest}\n")
        expected.append(rest)
        rotation.now()
        reader.settle()
        wait_for_another_second(rotation)
    assert reader.lines == expected
    reader.close()


@pytest.mark.parametrize("compressed", [False, True])
def test_while_it_is_stopped(rotation: Rotation, compressed: bool, request: pytest.FixtureRequest) -> None:
    stanza = request.node.callspec.params["rotation"]
    if stanza == "compressed at once" and not compressed:
        pytest.skip("the rest of the file is in the compressed one only, which nobody asked for")
    reader = Reader(rotation.log, compressed=compressed)
    append(rotation.log, "1\n2\n")
    reader.settle()
    reader.restart()
    append(rotation.log, "3\n")
    rotation.now()
    append(rotation.log, "4\n")
    assert reader.settle(60.0) == ["1", "2", "3", "4"]
    reader.restart()
    assert reader.settle(60.0) == ["1", "2", "3", "4"]
    reader.close()


def wait_for_another_second(rotation: Rotation) -> None:
    """Dated names have seconds: a second rotation within one would be refused."""
    if rotation.dated:
        time.sleep(1.0)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_understood() -> None:
    command = ["systemd-analyze", "verify", str(DEPLOY / "streamsvm.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    complaints = [line for line in done.stderr.splitlines() if "streamsvm" in line and "not executable" not in line]
    assert complaints == []

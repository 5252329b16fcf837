"""The directory that, on PYTHONPATH, makes every Python process load the recorder."""

from pathlib import Path

TEXT = """
import os
import sys

sys.path.append({tests!r})
from mutations import hook

hook.install()
"""


def write(into: Path) -> Path:
    site = into.parent / "site"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(TEXT.format(tests=str(Path(__file__).parents[1])), encoding="utf-8")
    return site

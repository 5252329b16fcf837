"""Where and with what the numbers were made: without this a number means nothing."""

import os
import platform
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "streamsvm", "numpy", "numba", "pyarrow", "vowpalwabbit", "scikit-learn", "scipy", "liblinear-official",
)  # fmt: skip


def describe() -> dict[str, str]:
    """Processor, cores, memory, load, system and versions, as text."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f} GB",
        "load before": f"{os.getloadavg()[0]:.2f}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _field(path: str, name: str) -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), None)

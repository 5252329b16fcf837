"""Where this user's files may be kept: a private cache directory, checked before it is trusted."""

import os
import stat
import sys
from pathlib import Path


def user_cache_directory() -> Path:
    """STREAMSVM_CACHE_DIR, else the platform's usual place. RuntimeError where there is no home directory."""
    chosen = os.environ.get("STREAMSVM_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "streamsvm"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "streamsvm"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamsvm"


def private_directory(path: Path) -> bool:
    """Make `path` a directory that only this user can enter; False where that cannot be had."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            return False
        if sys.platform != "win32":
            if found.st_uid != os.getuid():
                return False
            if found.st_mode & 0o022:  # others may have put something there
                return False
            if found.st_mode & 0o077:
                path.chmod(0o700)
        return os.access(path, os.W_OK)
    except OSError:
        return False

"""Where files may be kept: a directory of this user's alone, or none."""

import os
import stat
import sys
from pathlib import Path

import pytest

from streamsvm import places
from streamsvm.places import private_directory, user_cache_directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_directory_is_private(tmp_path):
    old = os.umask(0)
    try:
        assert private_directory(tmp_path / "a" / "b")
    finally:
        os.umask(old)
    assert mode(tmp_path / "a" / "b") == 0o700
    assert private_directory(tmp_path / "a" / "b"), "and stays so"


@pytest.mark.parametrize("before", [0o755, 0o750, 0o701])
def test_a_readable_directory_is_closed(tmp_path, before):
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(before)
    assert private_directory(path)
    assert mode(path) == 0o700


@pytest.mark.parametrize("before", [0o777, 0o770, 0o702])
def test_a_directory_that_others_could_write_is_refused(tmp_path, before):
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(before)
    assert not private_directory(path)
    assert mode(path) == before


def test_links_are_refused(tmp_path):
    """Whoever made the link decides where it leads."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert not private_directory(tmp_path / "link")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    assert not private_directory(tmp_path / "nowhere")
    assert not (tmp_path / "gone").exists()


def test_a_directory_of_someone_else_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "theirs"
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    monkeypatch.setattr(places.os, "getuid", lambda: path.stat().st_uid + 1)
    assert not private_directory(path)
    assert mode(path) == 0o755


def test_other_obstacles(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    assert not private_directory(tmp_path / "file")
    assert not private_directory(tmp_path / "file" / "below")
    assert not private_directory(Path("/dev/null/below"))
    monkeypatch.setattr(places.os, "access", lambda path, how: False)
    assert not private_directory(tmp_path / "unwritable")


def test_the_usual_place(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("STREAMSVM_CACHE_DIR", "/chosen")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert user_cache_directory() == Path("/chosen")
    monkeypatch.setenv("STREAMSVM_CACHE_DIR", "")
    assert user_cache_directory() == Path("/xdg/streamsvm")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert user_cache_directory() == Path("/home/me/.cache/streamsvm")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert user_cache_directory() == Path("/home/me/Library/Caches/streamsvm")

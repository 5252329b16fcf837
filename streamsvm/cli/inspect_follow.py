"""Where a run of `follow` stands, by its last checkpoint and by what is in its logs now: for people, for monitoring.

Nothing is read but sizes, and the few bytes by which files are known; the run itself may go on meanwhile.
"""

import calendar
import os
import time
from contextlib import closing
from typing import Any

from streamsvm.config import expand
from streamsvm.io.follow import Follower
from streamsvm.io.logs import Log, Options
from streamsvm.io.marks import Marks

BEHIND = 6  # the exit code that says that a run is further behind than it may be
PROBLEMS = ("truncated", "lost", "unfinished", "too_long", "errors")


def describe_logs(state: dict[str, Any]) -> dict[str, Any]:
    """Each log, how much of it has not been learned, what went wrong so far, and how old it all is."""
    run, tally = state["run"], state["passes"]["tally"]
    marks = Marks.restored(tally["position"])
    follow = run["config"]["follow"]
    patterns = [expand(source[0]) for source in run["sources"]]
    notes: list[str] = []
    options = Options(0.0, bool(follow["compressed"]))
    with closing(Follower(patterns, marks, options, note=notes.append)) as follower:
        follower.first_look()
        logs = [_log(log) for log in follower.logs.values() if log.open_tails() or log.wanted is not None]
    model = expand(run["config"]["output"]["model"] or "")
    return {
        "logs": logs,
        "behind": sum(log["behind"] for log in logs),
        "problems": {name: getattr(marks.counts, name) for name in PROBLEMS} | {"bad_rows": tally["bad_rows"]},
        "files": marks.counts.files,
        "warnings": notes,
        "ages": {
            "checkpoint": _since(calendar.timegm(time.strptime(run["written"], "%Y-%m-%d %H:%M:%S UTC"))),
            "model": _since(os.path.getmtime(model)) if os.path.exists(model) else None,
            "last_write": _since(max((mark.written for mark in marks.files), default=0) / 1e9) if marks.files else None,
        },
    }


def _since(moment: float) -> float:
    return max(0.0, time.time() - moment)


def _log(log: Log) -> dict[str, Any]:
    """One log: the file that is read, how far, and how many bytes follow, those of files that wait included."""
    tails = log.open_tails()
    mark = tails[0].mark if tails else log.wanted
    assert mark is not None
    return {
        "log": log.path,
        "file": mark.path if tails else None,
        "byte": mark.offset,
        "line": mark.line,
        "behind": log.lag,
        "waiting_files": max(0, len(tails) - 1),
    }


def log_lines(found: dict[str, Any]) -> list[str]:
    """The same as text."""
    lines = []
    for log in found["logs"]:
        where = f"line {log['line']:,} of {log['file'] or 'a file that is not found'}"
        more = f", {log['waiting_files']:,} more files wait" if log["waiting_files"] else ""
        lines.append(f"log      {log['log']}: {where}, {log['behind']:,} bytes behind{more}")
    counted = [f"{count:,} {name.replace('_', ' ')}" for name, count in found["problems"].items() if count]
    lines.append(f"problems {', '.join(counted) or 'none'}")
    ages = found["ages"]
    told = [f"{name.replace('_', ' ')} {seconds:,.0f} s" for name, seconds in ages.items() if seconds is not None]
    lines.append(f"age      {', '.join(told)}")
    return [*lines, *found["warnings"]]

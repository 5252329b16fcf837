"""LIBSVM text to arrays, nothing learned: scikit-learn's reader against streamsvm's, by `workers/parse_rate.py`."""

import json
import sys
from functools import partial

from bench import Bench, Check, Section, failures, ratio
from data import Dataset
from peers.peer import WORKERS
from process import Command, interleave, run, warm_pages


def text_to_arrays(bench: Bench) -> Section:
    """Both read the same slice; streamsvm also the main file, since a slice is over in a blink."""
    wanted = [("sklearn", bench.part), ("streamsvm", bench.part), ("streamsvm", bench.main)]
    tasks = {f"{who}, {data.megabytes:.0f} MB": (who, data) for who, data in wanted if bench.peer(who)}
    jobs = {name: partial(_best_seconds, bench, who, data) for name, (who, data) in tasks.items()}
    timings = interleave(jobs, bench.repeat, bench.say)
    section = Section(
        "parsing",
        "LIBSVM text to arrays, imports and compilation not counted",
        ["reader", "best s", "worst/best", "MB/s"],
        notes=failures(timings),
        raw={name: timing.seconds for name, timing in timings.items()},
    )
    rates: dict[str, float] = {}
    for name, (who, data) in tasks.items():
        timing = timings[name]
        if timing.seconds:
            rate = data.megabytes / timing.best
            rates[who] = max(rate, rates.get(who, 0))
            section.rows.append([name, timing.best, timing.spread, rate])
    if rates.keys() >= {"streamsvm", "sklearn"}:
        faster = ratio(rates["streamsvm"], rates["sklearn"])
        section.checks.append(Check("text to arrays, against sklearn", faster, 20.0))
    return section


def _best_seconds(bench: Bench, who: str, data: Dataset) -> float:
    warm_pages(data.svm)
    tries = "3" if who == "streamsvm" else "1"
    argv = [sys.executable, str(WORKERS / "parse_rate.py"), who, str(bench.small.svm), str(data.svm), tries]
    told = json.loads(run(Command(argv, {"STREAMSVM_CACHE_DIR": str(bench.work / "streamsvm")})).output)
    if told["rows"] != data.rows:
        raise ValueError(f"{who} read {told['rows']} of {data.rows} rows")
    return float(min(told["seconds"]))

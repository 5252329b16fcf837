"""Golden models: what version 0.1 has learned and what it says of rows, kept so that no later version says otherwise.

    python tests/golden/make.py                  from the root of the repository: makes what is not there yet
    python tests/golden/make.py --force NAME     makes one model anew

A golden file is only ever added. Files that are there are never overwritten, because a model that somebody has saved
must score its rows to the same bits for ever; `--force NAME` is for a model that was not released yet.

    data/           tiny files, made by data_files.py once
    models/         a model for each name of the table below: safetensors, or LIBLINEAR's text; names beside it
    expected.json   for each its file and checksum, classes, bias, and the scores, labels and probabilities of some rows

Numbers are little-endian doubles in base64. test_golden.py reads all of it, and trains nothing.
"""

import argparse
import base64
import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

HOME = Path(__file__).parent
DATA, MODELS, EXPECTED = HOME / "data", HOME / "models", HOME / "expected.json"

Floats = npt.NDArray[np.float64]


class Golden(NamedTuple):
    """What is learned from a file of data/: settings by their names in YAML, and who does it."""

    data: str
    settings: dict[str, Any] = {}
    by: str = "train"  # tune; estimator: StreamSVC.fit_stream, whose arguments are the settings
    ending: str = "safetensors"  # model: what is learned is exported as LIBLINEAR's text

    @property
    def rows(self) -> str:
        """The file whose rows are scored."""
        name, ending = self.data.removesuffix(".gz").split(".")
        return f"{name}.rows.{ending}"


L2 = {"penalty.l2": 1e-3}
HELD_OUT = {"data.holdout": 3}
NO_CURVE = {**L2, "calibration": "none"}
HASHED = {"features.hash_bits": 8}
EXACT_MAP = {"solver": "dcd", "penalty.C": 1.0, "solver.tol": 0.01}
TABLE = {
    "data.label": "label",
    "data.weight": "share",
    "features.ignore": ["id"],
    "features.log1p": ["visits"],
    "features.text": ["note"],
    "features.hash_bits": 9,
    **L2,
}
RECORDS = {
    "data.label": "level",
    "data.weight": "share",
    "features.ignore": ["id"],
    "features.numeric": ["age", "income", "visits", "shape"],
    "features.categorical": ["city", "device", "tags"],
    "features.hash_bits": 8,
    **L2,
}

GOLDEN = {
    # Row by row, two classes. So few rows have curves and thresholds only from rows that are held out.
    "asgd": Golden("two.svm"),
    "asgd_platt": Golden("two.svm", {**L2, **HELD_OUT, "calibration": "platt"}),
    "asgd_smoothed_hinge_none": Golden("two.svm", {**NO_CURVE, "loss": "smoothed_hinge", "bias": "none"}),
    "asgd_logistic_free": Golden("two.svm", {**NO_CURVE, "loss": "logistic", "bias": "free"}),
    "asgd_isotonic": Golden("two.svm", {**L2, **HELD_OUT, "calibration": "isotonic"}),
    "asgd_gzip_holdout": Golden("two.svm.gz", {**L2, "data.holdout": 5, "solver.passes": 3}),
    "asgd_weighted": Golden("weighted.svm", L2),
    "sgd_hinge": Golden("two.svm", {**NO_CURVE, "solver": "sgd", "loss": "hinge"}),
    "sgd_free_shuffled": Golden("two.svm", {**L2, "solver": "sgd", "bias": "free", "data.shuffle": 64}),
    "sgd_init": Golden("weighted.svm", {**L2, "solver": "sgd", "loss": "hinge", "solver.init": "sgd_weighted_hinge"}),
    "sgd_weighted_hinge": Golden("weighted.svm", {**L2, "solver": "sgd", "loss": "hinge", "data.limit": 150}),
    "pegasos_hinge": Golden("two.svm", {**NO_CURVE, "solver": "pegasos", "loss": "hinge", "solver.passes": 2}),
    "pegasos_batches": Golden(
        "two.svm", {**L2, "solver": "pegasos", "loss": "hinge", "solver.batch_size": 4, "solver.average": True}
    ),
    "sgdqn_hinge": Golden("two.svm", {**L2, "solver": "sgdqn", "loss": "hinge"}),
    "zhang": Golden("two.svm", {**L2, "solver": "zhang", "bias": {"kind": "penalised", "scale": 2.0}}),
    "folos_l1": Golden("two.svm", {"solver": "folos", "penalty.l1": 1e-2}),
    "adagrad_l1_logistic": Golden("two.svm", {"solver": "adagrad", "penalty.l1": 1e-2, "loss": "logistic"}),
    "ftrl_elastic_logistic": Golden(
        "two.svm", {"solver": "ftrl", "penalty.l1": 5e-3, "penalty.l2": 1e-3, "loss": "logistic"}
    ),
    "balanced_f1": Golden("two.svm", {**L2, **HELD_OUT, "data.class_weights": "balanced", "threshold": "f1"}),
    "costs": Golden(
        "two.svm",
        {
            **L2,
            **HELD_OUT,
            "data.class_weights": {1: 3, -1: 1},
            "threshold": {"by": "cost", "costs": {1: 5, -1: 1}},
        },
    ),
    "hashed_indices": Golden("two.svm", {**L2, "features.hash_bits": 3}),
    "maxabs_passes": Golden("dense.svm", {**L2, "features.scale": "maxabs", "solver.passes": 2}),
    "standard": Golden("dense.svm", {**L2, "features.scale": "standard"}),
    "fixed_dim": Golden("two.svm", {**L2, "features.dim": 20, "features.scale": "none", "data.sample": 0.5}),
    "classes_turned": Golden("two.svm", {**L2, "data.classes": [1, -1]}),
    "tuned": Golden("two.svm", {"tune.candidates": 4, "data.holdout": 5}, by="tune"),
    "tuned_solvers": Golden(
        "two.svm",
        {"tune.l2": [1e-4, 1e-2], "tune.solver": ["sgd", "asgd"], "loss": "hinge", "data.holdout": 5},
        by="tune",
    ),
    # The optimum, two classes.
    "dcd_hinge": Golden("two.svm", {"solver": "dcd", "loss": "hinge", "penalty.C": 1.0}),
    "dcd_isotonic": Golden("two.svm", {"solver": "dcd", "calibration": "isotonic", **L2}),
    "dcd_logistic_none": Golden("two.svm", {"solver": "dcd", "loss": "logistic", "bias": "none", **L2}),
    "dcd_path": Golden("two.svm", {"solver": "dcd", "penalty.path": [1e-4, 1e-3, 1e-2], "data.holdout": 5}),
    "newton_free": Golden("two.svm", {"solver": "newton", "bias": "free", "calibration": "platt", **L2}),
    "newton_smoothed_hinge": Golden("two.svm", {"solver": "newton", "loss": "smoothed_hinge", **L2}),
    "ocas_hinge": Golden("two.svm", {"solver": "ocas", "loss": "hinge", "penalty.l2": 1e-2}),
    "bmrm": Golden("two.svm", {"solver": "bmrm", "penalty.l2": 1e-2}),
    "auto": Golden("weighted.svm", {"solver": "auto", **L2}),
    "estimator": Golden("two.svm", {"C": 1.0, "solver": "newton", "loss": "logistic"}, by="estimator"),
    "estimator_classes": Golden("classes.svm", {"l2": 1e-3, "threshold": "f1", "settings": HELD_OUT}, by="estimator"),
    "liblinear": Golden("two.svm", {"solver": "dcd", "loss": "hinge", "penalty.C": 1.0}, ending="model"),
    "liblinear_logistic": Golden("two.svm", {"solver": "newton", "loss": "logistic", **L2}, ending="model"),
    "liblinear_classes": Golden("classes.svm", {"solver": "dcd", "loss": "hinge", **L2}, ending="model"),
    # More than two classes.
    "ova_asgd": Golden("classes.svm", L2),
    "ova_isotonic_logistic": Golden("classes.svm", {**L2, **HELD_OUT, "calibration": "isotonic", "loss": "logistic"}),
    "ova_ftrl_logistic": Golden(
        "classes.svm", {"solver": "ftrl", "penalty.l1": 1e-3, "loss": "logistic", "calibration": "none"}
    ),
    "ova_dcd_platt": Golden("classes.svm", {**L2, "solver": "dcd", "calibration": "platt", "data.holdout": 4}),
    "ova_two_classes": Golden("two.svm", {**L2, "multiclass": "ova"}),
    "crammer_singer_sgd": Golden(
        "classes.svm", {**L2, "multiclass": "crammer_singer", "solver": "sgd", "loss": "hinge", "bias": "free"}
    ),
    "crammer_singer_asgd": Golden("classes.svm", {**L2, "multiclass": "crammer_singer", "data.classes": [5, 1, 2, 3]}),
    "crammer_singer_dcd": Golden(
        "classes.svm", {**L2, "multiclass": "crammer_singer", "solver": "dcd", "loss": "hinge"}
    ),
    # Formats, and what becomes of columns.
    "vw": Golden("clicks.vw", {**L2, **HASHED}),
    "vw_interactions_names": Golden(
        "clicks.vw",
        {**L2, **HASHED, "features.interactions": [["a", "u"]], "features.names": True, "loss": "logistic"},
    ),
    "csv_names": Golden("table.csv", {**TABLE, "features.names": True, "features.scale": "standard"}),
    "csv_interactions": Golden(
        "table.csv",
        {
            **TABLE,
            "features.log1p": None,
            "features.bucketize": {"age": [30, 50, 65], "visits": [5, 20]},
            "features.interactions": [["city", "device"], ["age", "city", "device"]],
            "features.ngrams": 2,
            "features.scale": "maxabs",
            "loss": "logistic",
        },
    ),
    "tsv_fruits": Golden("fruits.tsv", {**TABLE, "features.scale": "maxabs"}),
    "tsv_fruits_dcd": Golden(
        "fruits.tsv", {**TABLE, "solver": "dcd", "features.scale": "standard", "calibration": "isotonic"}
    ),
    "jsonl": Golden(
        "events.jsonl",
        {
            "data.label": "clicked",
            "features.ignore": ["share"],
            "features.scale": "maxabs",
            "features.names": True,
            **HASHED,
            **L2,
        },
    ),
    "parquet": Golden("visits.parquet", {**RECORDS, "features.scale": "maxabs"}),
    "arrow": Golden("levels.arrow", {**RECORDS, "features.scale": "standard", "multiclass": "crammer_singer"}),
    # Maps and kernel learners.
    "rbf_bins": Golden("dense.svm", {**EXACT_MAP, "map": {"kind": "rbf", "size": 16}}),
    "rbf_wide": Golden("wide.svm", {**EXACT_MAP, "map": {"kind": "rbf", "size": 12}}),
    "bins_asgd": Golden("dense.svm", {**L2, "solver": "asgd", "map": {"kind": "bins", "size": 8, "gamma": 0.7}}),
    "nystroem": Golden("dense.svm", {**EXACT_MAP, "map": {"kind": "nystroem", "size": 24}, "calibration": "platt"}),
    "nystroem_classes": Golden(
        "classes.svm", {**EXACT_MAP, "map": {"kind": "nystroem", "size": 20, "landmarks": "sample"}}
    ),
    "prototypes": Golden("dense.svm", {**EXACT_MAP, "map": {"kind": "prototypes", "size": 20}}),
    "fourier": Golden("dense.svm", {**EXACT_MAP, "map": {"kind": "fourier", "size": 50}}),
    "fourier_fast": Golden("dense.svm", {**EXACT_MAP, "map": {"kind": "fourier_fast", "size": 72}}),
    "polynomial": Golden("dense.svm", {**EXACT_MAP, "map": {"kind": "polynomial", "degree": 3}}),
    "polynomial_pure": Golden("dense.svm", {**EXACT_MAP, "map": {"kind": "polynomial", "coef0": 0.0, "gamma": 0.5}}),
    "polynomial_hashed": Golden("dense.svm", {**EXACT_MAP, "map": {"kind": "polynomial", "degree": 3, "size": 50}}),
    "map_of_table": Golden(
        "table.csv", {**TABLE, "features.text": None, "solver": "dcd", "map": {"kind": "nystroem", "size": 10}}
    ),
    "norma": Golden("dense.svm", {"solver": {"name": "norma", "budget": 20}, "loss": "hinge"}),
    "norma_polynomial": Golden(
        "dense.svm",
        {"solver": {"name": "norma", "budget": 15, "kernel": "polynomial", "degree": 2, "upkeep": "oldest"}, **L2},
    ),
    "kernel_pegasos": Golden("dense.svm", {"solver": {"name": "kernel_pegasos", "budget": 20}, **L2}),
    "kernel_pegasos_linear": Golden(
        "two.svm", {"solver": {"name": "kernel_pegasos", "budget": 12, "kernel": "linear"}, **L2}
    ),
}
HASHED_POLYNOMIAL_BITS = 9  # of the golden one; what users have takes 16 MB


def shown(path: Path) -> str:
    """A file as a model names it: relative, so that nobody's directories are in there."""
    return path.relative_to(Path.cwd()).as_posix()


def file_of(name: str) -> Path:
    return MODELS / f"{name}.{GOLDEN[name].ending}"


def learn(name: str) -> None:
    """Train and save one model."""
    import streamsvm.features.maps.make as maps
    from streamsvm import StreamSVC, load_settings, train, tune
    from streamsvm.exchange import save_liblinear

    golden, out = GOLDEN[name], shown(file_of(name))
    if golden.by == "estimator":
        StreamSVC(**golden.settings).fit_stream(shown(DATA / golden.data)).model_.save(out)
        return
    given = {**golden.settings, "data.train": shown(DATA / golden.data), "output.model": None}
    if "solver.init" in given:
        given["solver.init"] = shown(file_of(given["solver.init"]))
    usual, maps.WEIGHTS = maps.WEIGHTS, HASHED_POLYNOMIAL_BITS if name == "polynomial_hashed" else maps.WEIGHTS
    model = (tune if golden.by == "tune" else train)(load_settings(overrides=given, environ={})).model
    maps.WEIGHTS = usual
    if golden.ending == "safetensors":
        model.save(out)
    else:
        save_liblinear(model, out, note=print)


def packed(numbers: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, "<f8").tobytes()).decode()


def outputs(name: str) -> dict[str, Any]:
    """What the saved model says of the rows of its file."""
    from streamsvm import load_model, open_stream
    from streamsvm.io.names_file import load_names

    path, golden = file_of(name), GOLDEN[name]
    model = load_model(str(path))
    scores = np.concatenate([model.scores(batch) for batch in open_stream(str(DATA / golden.rows), model=model)])
    found = {
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "rows": golden.rows,
        "classes": model.classes,
        "bias": packed(np.atleast_1d(model.bias)),
        "scores": packed(scores),
        "labels": [model.class_text(code) for code in model.codes(scores)],
    }
    if model.probable:
        found["probabilities"] = packed(model.probabilities(scores))
    if "names" in model.recipe:
        kept = load_names(str(path), model.recipe["names"])
        found["names"] = [f"{i} {s:+} {n}" for i, s, n in zip(kept.indices, kept.signs, kept.names, strict=True)]
    return found


def read_expected() -> dict[str, Any]:
    return json.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.exists() else {}


def write_expected(found: dict[str, Any]) -> None:
    """A line for each model, in the order of the table."""
    order = [name for name in GOLDEN if name in found]
    lines = [f"{json.dumps(name)}: {json.dumps(found[name], ensure_ascii=False)}" for name in order]
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    from data_files import write_data

    parser = argparse.ArgumentParser(description="Make the golden models that are not there yet.")
    parser.add_argument("--force", metavar="NAME", action="append", default=[], choices=list(GOLDEN))
    forced = parser.parse_args().force
    write_data(DATA)
    MODELS.mkdir(exist_ok=True)
    expected = read_expected()
    todo = [name for name in GOLDEN if name in forced or name not in expected]
    todo.sort(key=lambda name: "solver.init" in GOLDEN[name].settings)  # those that go on come after the others
    there = [name for name in todo if file_of(name).exists() and name not in forced]
    if there:
        raise SystemExit(f"golden models are never overwritten, but these have no expected outputs: {', '.join(there)}")
    for name in todo:
        learn(name)
        expected[name] = outputs(name)
        write_expected(expected)
        print(f"{name}: {file_of(name).stat().st_size:,} bytes", flush=True)
    print(f"{len(todo)} made, {len(GOLDEN) - len(todo)} kept as they are")


if __name__ == "__main__":
    main()

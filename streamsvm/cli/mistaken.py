"""Words that people bring along from other programs, and what they are called here."""

import os
import re
from collections.abc import Sequence

COMMANDS = ("train", "tune", "follow", "predict", "evaluate", "inspect", "convert", "export", "config")
OTHER_COMMANDS = {
    **dict.fromkeys(("fit", "learn", "run", "svm-train", "resume"), "train"),
    **dict.fromkeys(("test", "eval", "score", "validate"), "evaluate"),
    **dict.fromkeys(("apply", "classify", "infer"), "predict"),
    **dict.fromkeys(("info", "show", "describe", "weights"), "inspect"),
    **dict.fromkeys(("search", "cv", "grid"), "tune"),
    **dict.fromkeys(("tail", "watch", "serve"), "follow"),
}
_STEP = "the first step size is --eta0; left out, it is chosen on the first rows"
_PASSES = "sweeps over the data are --passes"
_L2 = "the penalty is --l2, or --C on the scale of LIBLINEAR"
_DATA = "data is named without a flag, as in: streamsvm train data.svm"
_MODEL = "a model is named without a flag, as in: streamsvm predict model.safetensors new.svm; train writes it to -o"
OTHER_FLAGS = {
    **dict.fromkeys(("--lr", "--learning-rate", "--eta", "--step-size"), _STEP),
    **dict.fromkeys(("--epochs", "--epoch", "--max-iter", "--n-iter", "--iterations", "--iters"), _PASSES),
    **dict.fromkeys(("--alpha", "--lambda", "--reg", "--regularization", "--weight-decay"), _L2),
    **dict.fromkeys(("-c", "-C"), "the penalty of LIBLINEAR is --C"),
    **dict.fromkeys(("--target", "--y", "--label-column", "--label-col", "--response"), "the label is --label COLUMN"),
    **dict.fromkeys(("--optimizer", "--algorithm"), "the algorithm is --solver"),
    **dict.fromkeys(("--data", "--train", "--input", "--file", "-d", "-f", "-i"), _DATA),
    **dict.fromkeys(("--model", "-m"), _MODEL),
    "--config": "settings are named without a flag, as in: streamsvm train my.yaml",
    "--batch-size": "only pegasos has mini-batches: --solver pegasos --set solver.batch_size=16",
    "--kernel": "models are linear; pairs of columns are --interactions",
    **dict.fromkeys(("--verbose", "-v"), "a run tells what it does, but with --quiet; see --print-config"),
    **dict.fromkeys(("--jobs", "--n-jobs", "--workers", "-j"), "threads that parse are --threads"),
    **dict.fromkeys(("--ram", "--mem", "--max-memory"), "the ceiling for memory is --memory, such as 256MB"),
    **dict.fromkeys(("--random-state", "--random-seed"), "the seed is --seed"),
    **dict.fromkeys(("--sep", "--separator"), "what stands between fields is --delimiter"),
    **dict.fromkeys(("--probability", "--proba", "--prob"), "probabilities are --probabilities"),
    **dict.fromkeys(("--validation", "--valid", "--val"), "rows kept aside are --holdout N, other data is --test"),
}  # fmt: skip


def advice(words: Sequence[str]) -> str | None:
    """What is wrong with a command line, if it has a word that means something elsewhere and nothing here."""
    if not words:
        return None
    first = words[0]
    if first in COMMANDS:
        flags = [re.sub("_", "-", word.split("=")[0]) for word in words[1 : _end_of_flags(words)]]
        found = next((flag for flag in flags if flag in OTHER_FLAGS), None)
        return f"{found}: {OTHER_FLAGS[found]}" if found else None
    if first in OTHER_COMMANDS:
        return f"{first}: that is called {OTHER_COMMANDS[first]} here, as in: streamsvm {OTHER_COMMANDS[first]} --help"
    if not first.startswith("-") and (os.path.exists(first) or re.search(r"[./*]", first)):
        command = "inspect" if first.endswith(".safetensors") else "train"
        return f"{first}: a command comes first, as in: streamsvm {command} {first}"
    return None


def _end_of_flags(words: Sequence[str]) -> int:
    return list(words).index("--") if "--" in words else len(words)

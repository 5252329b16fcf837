"""The names that users choose from, in the order in which help and errors list them.

Light on purpose: settings, tab completion and help have them without what they stand for. That is in `losses`,
`solvers`, `config/solvers` and `readers`; a test sees to it that all agree.
"""

ONLINE = ("asgd", "sgd", "pegasos", "sgdqn", "zhang", "folos", "adagrad", "ftrl")
EXACT = ("dcd", "newton", "bmrm", "ocas", "auto")  # which prove how far the optimum is
KERNEL = ("norma", "kernel_pegasos")  # whose weights are those of rows that they keep
SOLVERS = (*ONLINE, *EXACT, *KERNEL)

LOSSES = ("squared_hinge", "hinge", "smoothed_hinge", "logistic")
SMOOTH_LOSSES = ("squared_hinge", "smoothed_hinge", "logistic")  # with a curvature

MAPS = ("rbf", "bins", "nystroem", "prototypes", "fourier", "fourier_fast", "polynomial")

PLAIN = ("libsvm", "vw")  # formats without columns
TABLES = ("csv", "jsonl", "parquet", "arrow")
FORMATS = (*PLAIN, *TABLES)
WRITTEN = ("libsvm", "vw", "csv", "jsonl", "parquet", "arrow")  # which `convert` can make
LINES = ("libsvm", "vw", "csv", "jsonl")  # which can be followed while they are written

DATE_PARTS = ("hour", "weekday", "day", "month", "time")  # what is taken of dates; the time is a number

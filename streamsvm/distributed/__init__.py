"""The same solvers on many machines: Dask workers read and learn, each its own shards of the data.

    source --shards--> workers: parse, cache, learn     driver: adds up what they found, decides, tells, keeps the model

    cluster      the only door to Dask: tasks for shards, results in order, workers that die, hang or come later
    shards       which spans of the source (io/spans) make a shard
    job          what every task of a run must know, and what a worker has open of its shards
    work         what workers do: each a function of what it is given, so that it can be done again elsewhere
    team         a job and its shards as the driver sees them
    passes, feed, groups, sums      what runs and solvers ask for, answered by all shards together
    cocoa        dcd in rounds (CoCoA+), with the exact gap over all shards; versions has the dual variables
    fitting, averaging              the runs: exact solvers, and online ones whose weights are averaged
    serving      evaluate and predict

What is learned depends on the shards and the seed, not on how many workers there are or which of them is first.
"""

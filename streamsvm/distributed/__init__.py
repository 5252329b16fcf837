"""The same solvers on many machines: Dask workers read and learn, each its own shards of the data.

    source --shards--> workers: parse, cache, learn     driver: adds up what they found, decides, tells, keeps the model

    watch        what the driver hears of them: who is there, who did what (crew.py), how far an exchange has come
    opening      the door to Dask: a local cluster, one behind an address, or somebody's client
    cluster      tasks for shards, results in order, workers that die, hang or come later
    preload      what workers that are started here have in mind of signals
    joining      who listens at an address, and whether workers have what tasks need
    shards       which spans of the source (io/spans) make a shard
    job          what every task of a run must know, and what a worker has open of its shards
    work         what workers do: each a function of what it is given, so that it can be done again elsewhere
    team         a job and its shards as the driver sees them
    passes, feed, groups, sums      what runs and solvers ask for, answered by all shards together
    dcd          dcd in rounds, with the exact gap over all shards; dual_work is what workers do for it, agreement has
                 the formulas by which shards agree, versions the dual variables in storage
    runs         what all runs on a cluster tell of the workers
    fitting, averaging              the runs: exact solvers, and online ones whose weights are averaged
    tuning       many candidates at once, each of them averaged; tuning_work is what workers do for it
    held_out     rows that are not learned, scored where they are
    serving      evaluate and predict

What is learned depends on the shards and the seed, not on how many workers there are or which of them is first.
"""

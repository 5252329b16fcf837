"""Workers as Slurm jobs (pip install dask-jobqueue), and a run on them; the shared file system is seen by all nodes."""

from dask.distributed import Client
from dask_jobqueue import SLURMCluster

from streamsvm import load_settings, train

if __name__ == "__main__":
    with SLURMCluster(
        queue="normal",
        cores=4,
        processes=4,
        memory="32GB",
        walltime="02:00:00",
        local_directory="/scratch",
        job_script_prologue=["source /shared/venv/bin/activate"],
    ) as cluster:
        cluster.scale(jobs=8)
        given = {"data.train": "/shared/rows/part-*.svm", "solver": "newton", "penalty.C": 1.0, "cluster.shards": 32}
        with Client(cluster) as client:
            client.wait_for_workers(32)
            print(train(load_settings(overrides=given), client=client).result["gap"])

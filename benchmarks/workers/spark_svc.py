"""Spark's LinearSVC, from LIBSVM text to weights, in a process of its own.

    spark_svc.py DATA MODEL FEATURES L2 ITERATIONS MASTER MEMORY     minimises

    regParam/2 ||w||^2 + mean of max(0, 1 - y w.x),    no intercept, features as they are, by OWL-QN

Prints the objective after each iteration, by Spark's own figures. Spark is told the number of features, so it reads the
file once less; a tolerance of 0 lets the number of iterations alone decide when it ends.
"""

import json
import sys

import numpy as np
from pyspark.ml.classification import LinearSVC
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql


def main(data: str, model: str, features: str, l2: str, iterations: str, master: str, memory: str) -> None:
    session = (
        SparkSession.builder.master(master)
        .config("spark.driver.memory", memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    rows = session.read.format("libsvm").option("numFeatures", features).load(data)
    rows = rows.withColumn("label", sql.when(rows.label > 0, 1.0).otherwise(0.0))  # it takes 0 and 1 only
    learner = LinearSVC(regParam=float(l2), maxIter=int(iterations), tol=0.0, fitIntercept=False, standardization=False)
    fitted = learner.fit(rows)
    with open(model, "wb") as out:
        np.savez(out, weights=fitted.coefficients.toArray(), bias=fitted.intercept)
    print(json.dumps({"objectives": list(fitted.summary().objectiveHistory)}))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

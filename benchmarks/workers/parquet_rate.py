"""How fast pyarrow hands over a Parquet file, in a process of its own: parquet_rate.py FILE BATCH_ROWS.

Nothing is done with the batches. Prints {"rows": n, "seconds": s}, imports left out; whoever runs it has its own clock.
"""

import json
import sys
import time

import pyarrow.parquet as pq


def main(path: str, batch_rows: str) -> None:
    started = time.perf_counter()
    rows = sum(batch.num_rows for batch in pq.ParquetFile(path).iter_batches(batch_size=int(batch_rows)))
    print(json.dumps({"rows": rows, "seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main(*sys.argv[1:])

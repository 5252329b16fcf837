"""How fast text becomes arrays, in a process of its own: parse_rate.py streamsvm|sklearn WARM_FILE FILE REPEAT.

A first reading, of a small file, takes imports and compilation out of the clock. Prints {"rows": n, "seconds": []}.
"""

import json
import sys
import time


def streamsvm_parse_rate(path: str) -> int:
    from streamsvm import open_stream

    rows = 0
    for batch in open_stream(path):
        rows += len(batch.labels)
    return rows


def sklearn_parse_rate(path: str) -> int:
    from sklearn.datasets import load_svmlight_file

    return int(load_svmlight_file(path)[0].shape[0])


def main(who: str, warm: str, path: str, repeat: str) -> None:
    parse = {"streamsvm": streamsvm_parse_rate, "sklearn": sklearn_parse_rate}[who]
    parse(warm)
    seconds = []
    rows = 0
    for _ in range(int(repeat)):
        started = time.perf_counter()
        rows = parse(path)
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"rows": rows, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])

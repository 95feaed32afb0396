"""Reading a model of 4 million transitions from each format, validated, beside pandas and SciPy.

    python -m benchmarks.files [--small]

Every format is read in a process of its own, so that its peak memory is its own. The opponent reads
the same CSV with `pandas.read_csv` and builds a SciPy matrix, with none of the validation.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tightrope as tr

FORMATS = ("csv", "npz", "json", "pandas")


def write_models(folder: Path, num_states: int) -> None:
    """The same random model, 4 actions and 10 successors a row, in every format."""
    rng = np.random.default_rng(0)
    width, rows = 10, 4 * num_states
    block = num_states // width
    nexts = rng.integers(0, block, (rows, width)) + block * np.arange(width)
    model = tr.FiniteMDP(
        transitions_data=rng.dirichlet(np.ones(width), rows).ravel(),
        transitions_indices=nexts.ravel().astype(np.int32),
        transitions_indptr=width * np.arange(rows + 1),
        transitions_shape=(num_states, 4, num_states),
        rewards=rng.random((num_states, 4)),
        costs={"cost": rng.random((num_states, 4))},
        capacities={"cost": 3.0},
        criterion=tr.Episodic(30),
    )
    for name in ("csv", "npz", "json"):
        tr.save(model, folder / f"model.{name}")


def read(kind: str, folder: str) -> None:
    """Read one file; prints seconds, peak memory and a checksum as JSON."""
    start = time.perf_counter()
    if kind == "pandas":
        import pandas as pd
        import scipy.sparse as sp

        table = pd.read_csv(Path(folder, "model.csv"), comment="#")
        rows = 4 * table["idstatefrom"] + table["idaction"]
        matrix = sp.csr_array((table["probability"], (rows, table["idstateto"])))
        checksum = float(matrix.data @ matrix.indices)
    else:
        model = tr.load(Path(folder, f"model.{kind}"))
        checksum = float(model.data @ model.indices)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "gib": peak, "checksum": checksum}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a tenth of the size")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--read", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(*options.read)
        return
    num_states = 10_000 if options.small else 100_000
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
          f"{40 * num_states:,} transitions, medians of {options.repeats}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        write_models(Path(folder), num_states)
        found = {}
        for kind in FORMATS:
            runs = []
            for _ in range(options.repeats):
                command = [sys.executable, "-m", "benchmarks.files", "--read", kind, folder]
                runs.append(
                    json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
                )
            found[kind] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    print(f"{'format':8} {'seconds':>9} {'peak GiB':>9} {'pandas / this':>14}")
    for kind, row in found.items():
        assert abs(row["checksum"] - found["pandas"]["checksum"]) <= 1e-6 * row["checksum"]
        ratio = found["pandas"]["seconds"] / row["seconds"]
        print(f"{kind:8} {row['seconds']:9.2f} {row['gib']:9.2f} {ratio:14.2f}")


if __name__ == "__main__":
    main()

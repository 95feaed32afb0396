"""``python -m benchmarks`` runs them all, one after the other."""

import runpy
from pathlib import Path

for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
    print(f"\n== {path.stem}", flush=True)
    runpy.run_module(f"benchmarks.{path.stem}", run_name="__main__")

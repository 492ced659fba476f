# SPDX-License-Identifier: Apache-2.0
"""The `engine` command: `python -m engine run config.toml`."""
import os
import pathlib
import shutil
import sys


def main() -> None:
    here = pathlib.Path(__file__).resolve()
    inside = here.parent / "native" / "bin" / "engine"  # in the wheel
    beside = [root / "bin" / "engine" for root in here.parents] + [here.parents[3] / "build" / "tools" / "engine"]
    found = next((str(p) for p in [inside, *beside] if p.is_file() and os.access(p, os.X_OK)), None)
    # The wheel installs a script of this name, which must not start itself.
    if found is None and pathlib.Path(sys.argv[0]).name != "engine":
        found = shutil.which("engine")
    if found is None:
        sys.exit("the engine command was not found beside this package")
    os.execv(found, ["engine", *sys.argv[1:]])


if __name__ == "__main__":
    main()

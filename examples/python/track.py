# SPDX-License-Identifier: Apache-2.0
"""Sends the metrics of a run to Weights & Biases, SwanLab or MLflow, while it trains or afterwards.

    pip install wandb
    python examples/python/track.py runs/quickstart/20261127-165706-b78a --to wandb

It reads metrics.jsonl and run.json in the run's directory and needs nothing else of the engine. It ends with the run; where
a run was killed, end it with Ctrl-C. A run that is resumed later is sent from its beginning by another call.
"""
import argparse
import importlib
import json
import pathlib
import time


def numbers(record: dict, prefix: str = "") -> dict:
    """All numbers of a line of metrics.jsonl: {"wait_seconds": {"data": 1}} becomes {"wait_seconds/data": 1}."""
    flat = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat |= numbers(value, f"{prefix}{key}/")
        elif isinstance(value, (int, float)):
            flat[prefix + key] = value
    return flat


def has_ended(directory: pathlib.Path) -> bool:
    return json.loads((directory / "run.json").read_text()).get("ended") is not None


def records(directory: pathlib.Path, pause: float):
    """The lines of metrics.jsonl in their order; waits for more until the run has ended."""
    with open(directory / "metrics.jsonl", encoding="utf-8") as file:
        last, part = False, ""
        while True:
            part += file.readline()
            if part.endswith("\n"):
                yield json.loads(part)
                part = ""
            elif last:
                return
            else:
                last = has_ended(directory)  # then one more look: lines may have come in between
                if not last:
                    time.sleep(pause)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, help="directory of the run")
    parser.add_argument("--to", choices=["wandb", "swanlab", "mlflow"], default="wandb")
    parser.add_argument("--project", default="engine")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between looks at a run that goes on")
    args = parser.parse_args()

    tracker = importlib.import_module(args.to)
    configuration = {"config": (args.run / "config.toml").read_text(), **json.loads((args.run / "run.json").read_text())}
    if args.to == "mlflow":
        tracker.set_experiment(args.project)
        tracker.start_run(run_name=args.run.name)
        tracker.log_dict(configuration, "run.json")
        log, finish = tracker.log_metrics, tracker.end_run
    else:
        name = {"wandb": "name", "swanlab": "experiment_name"}[args.to]
        tracker.init(project=args.project, config=configuration, **{name: args.run.name})
        log, finish = tracker.log, tracker.finish
    steps = 0
    for record in records(args.run, args.every):
        log(numbers(record), step=record["step"])
        steps += 1
    finish()
    print(f"{steps} steps sent to {args.to}")


if __name__ == "__main__":
    main()

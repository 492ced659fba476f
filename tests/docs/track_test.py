#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/python/track.py sends each line of a run's metrics once, in order, also those that come while it reads.

The trackers are stand-ins with the functions that the example calls.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/python/track.py"
STAND_IN = """
import json, os
def note(what, *args, **kwargs):
    with open(os.environ["SENT"], "a") as file: print(json.dumps([what, args, kwargs]), file=file)
def __getattr__(name):
    return lambda *args, **kwargs: note(name, *args, **kwargs)
"""


def line(step: int) -> str:
    return json.dumps({"v": 1, "step": step, "loss": 4.0 / step, "mfu": None, "wait_seconds": {"data": 0.5}}) + "\n"


class Track(unittest.TestCase):
    def send(self, to: str) -> list:
        with tempfile.TemporaryDirectory() as scratch:
            run, modules = pathlib.Path(scratch) / "a-run", pathlib.Path(scratch) / "modules"
            run.mkdir(), modules.mkdir()
            (modules / f"{to}.py").write_text(STAND_IN)
            (run / "config.toml").write_text("[train]\nsteps = 3\n")
            (run / "run.json").write_text('{"ended": null}')
            (run / "metrics.jsonl").write_text(line(1) + line(2)[:20])  # a line that is being written
            sent = pathlib.Path(scratch) / "sent"
            process = subprocess.Popen([sys.executable, EXAMPLE, run, "--to", to, "--project", "p", "--every", "0.05"],
                                       env=dict(os.environ, PYTHONPATH=str(modules), SENT=str(sent)))
            self.addCleanup(process.kill)
            while not (sent.exists() and '"step": 1}]' in sent.read_text()):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
                file.write(line(2)[20:] + line(3))
            (run / "run.json").write_text('{"ended": {"status": "done"}}')
            self.assertEqual(process.wait(60), 0)
            return [json.loads(each) for each in sent.read_text().splitlines()]

    def test_trackers(self):
        expected = [[{"v": 1, "step": step, "loss": 4.0 / step, "wait_seconds/data": 0.5}] for step in (1, 2, 3)]
        for to, log, last in [("wandb", "log", "finish"), ("swanlab", "log", "finish"),
                              ("mlflow", "log_metrics", "end_run")]:
            with self.subTest(to):
                calls = self.send(to)
                logged = [(args, kwargs) for name, args, kwargs in calls if name == log]
                self.assertEqual([args for args, _ in logged], expected)
                self.assertEqual([kwargs["step"] for _, kwargs in logged], [1, 2, 3])
                self.assertEqual(calls[-1][0], last)


if __name__ == "__main__":
    unittest.main()

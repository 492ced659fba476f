# SPDX-License-Identifier: Apache-2.0
"""Evaluates tasks of lm-evaluation-harness, which lie in a folder, by the engine:

    python3 harness.py MODEL FOLDER TASK...        MODEL: a run, or a Hugging Face directory
"""
import sys

import lm_eval
from lm_eval.tasks import TaskManager

from engine.lm_eval import Engine

model, folder, *tasks = sys.argv[1:]
results = lm_eval.simple_evaluate(model=Engine(model, batch_size=8), tasks=tasks,
                                  task_manager=TaskManager(include_path=folder))
for task, metrics in results["results"].items():
    for name, value in metrics.items():
        if isinstance(value, float):
            print(f"{task:24}{name:32}{value:.4f}")

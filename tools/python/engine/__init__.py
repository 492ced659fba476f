# SPDX-License-Identifier: Apache-2.0
"""Trains language models, one step at a time, and shares its tensors with other libraries.

    import engine

    with engine.open("config.toml", "train.steps=100") as run:
        for metrics in run:
            print(metrics.step, metrics.loss)

The package needs nothing but the standard library, and libengine.so. Arrays of NumPy, PyTorch, JAX and others come in
and go out by DLPack, without a copy.
"""
from __future__ import annotations

from typing import Any

from ._native import Error
from ._native import library as _library
from ._run import Run
from ._tensor import Evaluation, Metrics, Score, Tensor

__all__ = ["Error", "Evaluation", "Metrics", "Run", "Score", "Tensor", "open", "version"]
__version__ = _library.eng_session_version().decode()


def version() -> str:
    """The version of the engine."""
    return __version__


def open(target: Any = None, *overrides: str, **options: Any) -> Run:
    """Opens a configuration file, a run to resume it, or a Hugging Face directory; or the text of a configuration.

    target         the path; without it, `text` is given
    overrides      "section.key=value"; "-section.key" removes the value
    text           the configuration itself, instead of a file; `place` is the folder of its relative paths
    out            the run directory itself: new, empty, or a run; by default a new one below [run] out
    resume         "auto", "never", "must", or the step of a checkpoint
    files          False: no run directory, and nothing is saved
    gradients      True: the gradients of the last step can be taken; they have memory of their own
    logits         True: `Run.logits` can be called
    activations    names, also with `*` and `?`, of activations of the last micro-batch of a step, such as
                   "layers.*.output": they can be taken; `Run.activations` lists all names
    fields         what batches of your own bring beside tokens and labels: "loss_weights", "segments", "positions"
    lengths        of further forwards to the logits, planned with the rest, for `Run.score` and `Run.logits`; of as many
                   rows as a micro-batch
    train          False: only weights and forwards, without gradients, optimizer, run directory and [data]
    alone          True: one rank, whatever a launcher announces
    plugin_paths   folders that are searched for plugins first
    note           called with each note for the user; by default they go to stderr

    Nothing is allocated until the first step, or whatever else needs the weights. Under `mpirun -n N python train.py`
    every process is one rank of the run.
    """
    return Run(target, *overrides, **options)

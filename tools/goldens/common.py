# SPDX-License-Identifier: Apache-2.0
"""Code that the scripts beside this one share: a training run of a golden, its files, and their command line."""
import json
import pathlib
import platform
import sys

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden"


def add_training(about, tensors, hyper, series, train):
    """Trains by `hyper`, on `series` of tokens and labels; losses and gradient norms go into `about`."""
    tokens, labels = series
    tensors |= {"train.tokens": tokens.int(), "train.labels": labels.int()}
    hyper = {key: value for key, value in hyper.items() if key != "variant"}
    losses, norms = train(tokens, labels, hyper)
    about["training"] = {**hyper, "losses": losses, "grad_norms": norms}


def save(family, name, about, tensors, out):
    about["versions"] = {"torch": torch.__version__, "transformers": transformers.__version__,
                         "python": platform.python_version()}
    save_file({key: t.contiguous() for key, t in tensors.items()}, out / f"{family}_{name}.safetensors",
              metadata={"made_by": f"tools/goldens/{family}.py"})
    (out / f"{family}_{name}.json").write_text(json.dumps(about, indent=1) + "\n")


def main(variants, make, first_seed=1):
    """[OUT_DIR]: makes all variants, make(name, seed, folder) one of them."""
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    out.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    for seed, name in enumerate(variants, start=first_seed):
        about = make(name, seed, out)
        print(f"{name}: loss {about['loss']:.6f} over {about['labels_counted']} labels")
        if "training" in about:
            losses, norms = about["training"]["losses"], about["training"]["grad_norms"]
            print(f"  training: loss {losses[0]:.4f} -> {losses[-1]:.4f}, norms {min(norms):.2f} to {max(norms):.2f}")

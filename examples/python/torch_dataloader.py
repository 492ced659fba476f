# SPDX-License-Identifier: Apache-2.0
"""Feeds the engine from a torch DataLoader: the batches are torch tensors, which the engine reads where they lie.

    pip install torch
    python examples/python/torch_dataloader.py examples/quickstart.toml train.steps=20
"""
import pathlib
import sys

import engine
import torch


class Bytes(torch.utils.data.Dataset):
    """Windows of a text as bytes: (length + 1,) ids, of which the last is only a label."""

    def __init__(self, text: bytes, length: int):
        self.ids = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.length = length

    def __len__(self) -> int:
        return (len(self.ids) - 1) // self.length

    def __getitem__(self, k: int) -> torch.Tensor:
        return self.ids[k * self.length : (k + 1) * self.length + 1]


def main() -> None:
    text = b"".join(p.read_bytes() for p in sorted(pathlib.Path(__file__).resolve().parents[2].glob("docs/*.md")))
    # `files=False`: nothing is written; leave it out to have a run directory with checkpoints.
    with engine.open(sys.argv[1], *sys.argv[2:], files=False) as run:
        rows, length = run.batch_shape
        loader = torch.utils.data.DataLoader(Bytes(text, length), batch_size=rows, shuffle=True, drop_last=True,
                                             generator=torch.Generator().manual_seed(1))
        while run.steps_done < run.steps:
            for batch in loader:  # (rows, length + 1)
                metrics = run.step(tokens=batch)
                if metrics is None:
                    break
                print(f"step {metrics.step} loss {metrics.loss:.4f} waited {metrics.wait_data * 1e3:.2f} ms", flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""One training step of Mamba-130m in Hugging Face transformers on a CPU, by one of its scans.

python torch_mamba.py sequential|associative|mambapy ROUNDS [LENGTH]   prints one JSON object, as engine-bench-step does.
fp32, AdamW(fused=True), zero_grad(set_to_none=True), clip_grad_norm_. `mambapy` needs the package of that name.
"""
import json
import resource
import statistics
import sys
import time

import torch
import transformers
from transformers import MambaConfig, MambaForCausalLM


def main():
    mode, rounds = sys.argv[1], int(sys.argv[2])
    length = int(sys.argv[3]) if len(sys.argv) > 3 else 512
    torch.manual_seed(1)
    model = MambaForCausalLM(MambaConfig(
        vocab_size=50280, hidden_size=768, num_hidden_layers=24, use_cache=False,
        use_associative_scan=mode == "associative", use_mambapy=mode == "mambapy"))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(50280, (1, length))

    def step():
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({
        "mode": mode, "torch": torch.__version__, "transformers": transformers.__version__,
        "threads": torch.get_num_threads(), "parameters": sum(p.numel() for p in model.parameters()),
        "step_seconds": statistics.median(seconds), "tokens_per_second": length / statistics.median(seconds),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()

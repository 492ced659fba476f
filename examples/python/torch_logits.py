# SPDX-License-Identifier: Apache-2.0
"""Takes the engine's weights into a torch module, without a copy, and compares the logits of both.

    pip install torch
    python examples/python/torch_logits.py examples/quickstart.toml train.steps=5
"""
import sys
import tomllib

import engine
import torch
from torch import nn


class Block(nn.Module):
    """A LLaMA layer: rms_norm, rotary positions, causal attention, SwiGLU."""

    def __init__(self, weight, prefix: str, heads: int, epsilon: float, base: float):
        super().__init__()
        self.heads, self.epsilon, self.base = heads, epsilon, base
        for name in ("input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
                     "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
            setattr(self, name.split(".")[-1], nn.Parameter(weight(f"{prefix}.{name}.weight")))

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * weight

    def rotate(self, x: torch.Tensor) -> torch.Tensor:  # (B, H, T, D)
        half = x.shape[-1] // 2
        angle = torch.outer(torch.arange(x.shape[2]), self.base ** (-torch.arange(half) / half))
        cos, sin = torch.cos(angle), torch.sin(angle)
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # (B, T, C)
        b, t, c = x.shape
        y = self.norm(x, self.input_layernorm)
        q, k, v = ((y @ w.T).view(b, t, -1, c // self.heads).transpose(1, 2) for w in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (z.repeat_interleave(self.heads // z.shape[1], 1) for z in (k, v))
        y = nn.functional.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(b, t, c) @ self.o_proj.T
        y = self.norm(x, self.post_attention_layernorm)
        return x + (nn.functional.silu(y @ self.gate_proj.T) * (y @ self.up_proj.T)) @ self.down_proj.T


class Llama(nn.Module):
    """All parameters are the engine's memory: a step of the engine changes them."""

    def __init__(self, run: engine.Run, heads: int, layers: int, epsilon: float, base: float):
        super().__init__()

        def weight(name: str) -> torch.Tensor:
            return torch.from_dlpack(run[name])

        self.embed = nn.Parameter(weight("model.embed_tokens.weight"))
        self.layers = nn.ModuleList(Block(weight, f"model.layers.{k}", heads, epsilon, base) for k in range(layers))
        self.norm = nn.Parameter(weight("model.norm.weight"))
        self.head = nn.Parameter(weight("lm_head.weight")) if "lm_head.weight" in run else self.embed

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed[tokens]
        for layer in self.layers:
            x = layer(x)
        return self.layers[0].norm(x, self.norm) @ self.head.T


def main() -> None:
    with engine.open(sys.argv[1], *sys.argv[2:], "checkpoint.every=0", logits=True) as run:
        for metrics in run:
            print(f"step {metrics.step} loss {metrics.loss:.4f}")
        with open(f"{run.directory}/config.resolved.toml", "rb") as file:
            model = tomllib.load(file)["model"]
        module = Llama(run, model["num_attention_heads"], model["num_hidden_layers"], model["rms_norm_eps"],
                       model["rope_theta"])
        assert module.embed.data_ptr() == torch.from_dlpack(run["model.embed_tokens.weight"]).data_ptr()
        tokens = torch.randint(0, run.vocabulary, run.micro_batch_shape, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            theirs = module(tokens)
        ours = torch.from_dlpack(run.logits(tokens))
        worst = (ours - theirs).abs().max().item()
        print(f"logits {tuple(ours.shape)}: the largest difference is {worst:.2e}")
        assert worst < 1e-3 * ours.abs().max().item()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/session/huggingface/config_keys.json: what transformers writes into the config.json of each family that is read,
and the keys of config.json that it takes for defaults of generation. Needs transformers, without torch."""
import json
import pathlib

import transformers
from transformers import CONFIG_MAPPING, GenerationConfig

HERE = pathlib.Path(__file__).resolve().parents[2] / "tests/session/huggingface"
FAMILIES = ("llama", "mistral", "ministral", "internlm3", "qwen2", "qwen3", "olmo2", "phi3", "smollm3", "granite", "gpt_neox",
            "opt", "gpt2", "mamba", "mamba2", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "bamba", "falcon_h1", "falcon_mamba", "granitemoehybrid",
            "jamba", "nemotron_h")


def as_written(config):
    """Infinite numbers are objects in files."""
    return config._encode_special_floats(config.to_dict())


def main():
    out = {"transformers": transformers.__version__, "generation": sorted(GenerationConfig._get_default_generation_params()),
           "families": {name: as_written(CONFIG_MAPPING[name]()) for name in FAMILIES}}
    (HERE / "config_keys.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()

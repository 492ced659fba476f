// SPDX-License-Identifier: Apache-2.0
// Weights of a run as a Hugging Face directory.
#pragma once

#include <filesystem>

#include "session/config/config.hpp"
#include "session/huggingface/adapter.hpp"
#include "session/huggingface/export_tokenizer.hpp"

namespace eng {

struct Exported {
  uint64_t bytes = 0, tensors = 0, files = 0;  // of the weights
  uint64_t left = 0;                           // tensors that are for checkpoints alone (ENG_PARAM_NOT_EXPORTED)
  uint64_t maps = 0;                           // of an adapter, as its files name them
  std::vector<std::string> copied;             // tokenizer files of the origin
  std::vector<std::string> tokenizer;          // files of the tokenizer of [data]
};

// Writes `to`, which must not exist or be empty, from one complete checkpoint of a run with this configuration:
// config.json, model.safetensors (several and an index above `shard_bytes`), and the tokenizer files of `origin`, the
// Hugging Face directory that the run came from, if any; if it has no tokenizer, those of `tokenizer`. Everything is
// read back and compared before `to` gets its name. `dtype`: ENG_F32, ENG_BF16 or ENG_F16. `merged`: paths that are
// added to the weights of their maps. Throws Error(Exit::usage, disk or checkpoint) and then leaves no files.
Exported export_weights(const std::filesystem::path& checkpoint, const Config& config, const PluginSchema& plugin,
                        const std::filesystem::path& origin, const TokenizerSource& tokenizer,
                        const std::filesystem::path& to, int32_t dtype, uint64_t shard_bytes,
                        const std::vector<Adapter>& merged = {});

// Writes the trained paths of a checkpoint as PEFT does: adapter_config.json and adapter_model.safetensors. Otherwise
// as export_weights.
Exported export_adapter(const std::filesystem::path& checkpoint, const Config& config, const PluginSchema& plugin,
                        const std::filesystem::path& origin, const std::filesystem::path& to, int32_t dtype);

}  // namespace eng

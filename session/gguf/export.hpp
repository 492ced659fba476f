// SPDX-License-Identifier: Apache-2.0
// Weights of a run as one file that llama.cpp loads.
#pragma once

#include "session/config/config.hpp"
#include "session/gguf/vocabulary.hpp"
#include "session/huggingface/adapter.hpp"
#include "session/huggingface/arrangement.hpp"

namespace eng {

struct ExportedGguf {
  uint64_t bytes = 0, tensors = 0;  // of the file; tensors of the model
  uint64_t left = 0;                // tensors that are for checkpoints alone (ENG_PARAM_NOT_EXPORTED)
  uint64_t wider = 0;               // matrices of which q8_0 has no blocks, as f16
  std::vector<std::string> notes;
};

// Writes the file `to`, which must not exist, from one complete checkpoint of a run with this configuration. Vectors,
// norms and what else llama.cpp reads only so are f32, matrices have `type`. `merged`: paths that are added to the
// weights of their maps. The file is read back and compared before it gets its name. Throws Error(Exit::usage, data,
// disk or checkpoint) and then leaves no file.
ExportedGguf export_gguf(const std::filesystem::path& checkpoint, const Config& config, const PluginSchema& plugin,
                         const GgufTokenizer& tokenizer, const std::filesystem::path& to, GgufType type,
                         const std::vector<Adapter>& merged = {});

// Checks, before there is a checkpoint, all of export_gguf that needs no weights, for a run with these parameters of
// its model. Returns "llama, 21 tensors" and the notes. Throws Error(Exit::usage or data).
std::string check_gguf(const std::vector<TensorShape>& parameters, const Config& config, const PluginSchema& plugin,
                       const GgufTokenizer& tokenizer);

}  // namespace eng

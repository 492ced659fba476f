// SPDX-License-Identifier: Apache-2.0
// Weights that exist already, from a Hugging Face directory or a checkpoint: streamed, never held as a whole.
#pragma once

#include "core/checkpoint/checkpoint.hpp"
#include "core/config/pretrained.hpp"

namespace eng {

// Where the weights of a directory lie: itself, or the newest good checkpoint of a run. Throws
// Error(Exit::checkpoint).
std::filesystem::path find_weights(const std::filesystem::path& directory, const Peers& peers = {});

// Told how many bytes of all have been read.
using WeightsProgress = std::function<void(uint64_t done, uint64_t all)>;

// Fills exactly the ranges of the given parameters, each in its own element type, from model.safetensors, from the
// files that model.safetensors.index.json names, or from a checkpoint. `pretrained` says which names are accepted.
// Without `fill` only what needs no data is checked. Throws Error(Exit::checkpoint) that lists every tensor that is
// missing, that the model does not have, or that is of another shape; on all ranks alike.
void load_weights(const std::filesystem::path& directory, const Pretrained& pretrained,
                  const std::vector<TensorShare>& parameters, const Fill& fill, const WeightsProgress& progress = {},
                  const Peers& peers = {});

// model.safetensors.index.json: tensor -> file in the same directory. Throws Error(Exit::checkpoint).
std::map<std::string, std::string> parse_weights_index(const std::string& text, const std::string& where);

}  // namespace eng

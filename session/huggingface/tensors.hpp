// SPDX-License-Identifier: Apache-2.0
// The tensors of a Hugging Face directory: streamed, never completely in memory.
#pragma once

#include "session/checkpoint/checkpoint.hpp"
#include "session/plugins/pretrained.hpp"

namespace eng {

// Fills exactly the ranges of the given parameters, each in its own element type, from the first that the directory
// has: model.safetensors, the files that model.safetensors.index.json names, pytorch_model.bin, and those that
// pytorch_model.bin.index.json names. An optional one may be missing, and is then not filled. `pretrained` says which
// names are accepted. Without `fill`, checks only what needs no data. Throws an Error(Exit::checkpoint) that lists
// every tensor that is missing, unexpected, or of another shape.
void load_tensors(const std::filesystem::path& directory, const Pretrained& pretrained,
                  const std::vector<TensorShare>& parameters, const Fill& fill);

// The type that each of the given parameters has in such a directory, of one that is joined of several the widest. One
// that is missing there is left out.
std::map<std::string, int32_t> types_in_files(const std::filesystem::path& directory, const Pretrained& pretrained,
                                              const std::vector<TensorShare>& parameters);

// An index: tensor -> file in the same directory. Throws Error(Exit::checkpoint).
std::map<std::string, std::string> parse_weights_index(const std::string& text, const std::string& where);

}  // namespace eng

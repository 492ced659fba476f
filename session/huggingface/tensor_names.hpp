// SPDX-License-Identifier: Apache-2.0
// The names that tensors have in files of others, brought to those of the model.
#pragma once

#include <set>
#include <string>

#include "session/checkpoint/safetensors.hpp"
#include "session/plugins/pretrained.hpp"

namespace eng {

// Finds tensors under the names that trainers and libraries give them. A wrapper leaves its name in front of all
// tensors (`module.`, `_orig_mod.`), or between two parts of a name; a model saved without its head lacks the name of
// its body, and one saved inside of another has it twice.
class TensorNames {
 public:
  // `known`: the names that the model may have.
  TensorNames(std::set<std::string> known, const Pretrained& pretrained);
  // The model's name for a tensor of a file: the given one if no name of the model can be meant.
  std::string of(const std::string& name) const;
  // A tensor that is computed from others, and that older versions of libraries saved.
  bool is_buffer(const StoredTensor& tensor) const;

 private:
  std::string meant(const std::string& name) const;

  std::set<std::string> known_;
  std::set<std::string> bodies_;  // what the model's names begin with: "model.", "model.decoder."
  const Pretrained& pretrained_;
};

}  // namespace eng

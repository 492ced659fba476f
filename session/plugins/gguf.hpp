// SPDX-License-Identifier: Apache-2.0
// The spelling of a model's options and tensors in the files of llama.cpp (GGUF): [provides.gguf] of a model plugin
// (engine/plugin.h).
#pragma once

#include <variant>

#include "core/config/value.hpp"
#include "session/plugins/pretrained.hpp"

namespace eng {

// A number or boolean: a constant, an option, or computed of options and numbers.
struct GgufTerm {
  enum class Kind { value, product, quotient } kind = Kind::value;
  std::vector<std::variant<std::string, Value>> factors;  // options by their names; one, or of a quotient two
};
using GgufValue = std::vector<GgufTerm>;  // the first of which all options have a value

// Patterns of names are of tensors in the file, or of these without their last part, such as `.weight`.
struct GgufModel {
  std::string none;               // the reason why there can be no file; then nothing else is given
  std::string architecture;       // general.architecture, which the keys begin with
  std::vector<std::string> rope;  // values of the option rope_type that llama.cpp knows, if any
  std::vector<std::pair<std::string, std::string>> tensors;  // pattern of the model's names -> the file's
  std::vector<std::pair<std::string, GgufValue>> keys;       // key without the architecture -> its value
  std::map<std::string, GgufValue> require;                  // such a key -> the only value that llama.cpp supports
  std::map<std::string, std::vector<std::string>> fixed;     // option -> the supported values, as JSON
  std::map<std::string, GgufValue> interleave;               // pattern -> heads: a head's halves of rows alternate
  std::vector<std::string> squeeze, negative_exp, f32;       // patterns
  Pretrained arrangement;  // its `transpose` and `regroup` alone; names as in the file
};

}  // namespace eng
